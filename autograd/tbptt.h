// Truncated backpropagation through time: a long sequence is run in segments, the numbers of the recurrent
// state go all the way, the gradients go back a fixed number of tokens. Memory is that of `backprop_through`
// tokens, whatever the length of the sequence.
// Source: Williams and Peng, "An efficient gradient-based algorithm for on-line training of recurrent network
// trajectories" (1990), their BPTT(h; h') with h = h'.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "autograd/state.h"
#include "autograd/tape.h"

namespace eddy {

// What one segment gives.
struct TbpttStep {
  Tensor loss;  // one element; undefined for a segment that is not scored
  State state;  // for the next segment, with its graph
};

// What one backward pass was over.
struct TbpttWindow {
  std::int64_t first_segment = 0;
  std::int64_t segments = 0;
  double loss = 0;   // the sum over its segments
  GraphStats graph;  // just before the pass, when the graph is largest; max_depth is that of this window
};

struct TbpttResult {
  std::vector<double> losses;  // one for each segment, NaN where it was not scored
  State state;                 // behind the last segment, without a graph: what the next run starts from
};

// Segments of `segment` tokens; gradients flow back through the `backprop_through` tokens of one window of
// backprop_through / segment segments. Here with segment = 8 and backprop_through = 16:
//
//   tokens         0-7    8-15     16-23   24-31
//   numbers    h0 --> s0 --> s1 --|--> s2 --> s3 --|-->   the state goes all the way
//                     |      |    |    |      |    |
//                  loss 0 loss 1  | loss 2 loss 3  |      | detach: the state goes on as a constant
//                     |      |    |    |      |    |
//   gradients     <-- s0 <-- s1   |<-- s2 <-- s3   |      one backward over the sum of a window's losses
//
// The first token of a window gets gradients from the whole window, the last one from its own loss alone:
// windows do not overlap, so that every token is run once forward and once backward. Within a window the
// gradient is exact; over cuts it is zero. A window that covers the whole sequence is full backpropagation.
struct TbpttLoop {
  // Runs a segment from the state the one before left; `state` is empty, or the initial one, for segment 0.
  using Segment = std::function<TbpttStep(std::int64_t segment, const State& state)>;
  // Called after each backward pass, when the graph is gone: the place to log, and to step an optimizer. What
  // it writes in place is seen by the next segments.
  using AfterBackward = std::function<void(const TbpttWindow& window)>;

  std::int64_t segment = 1;           // in tokens
  std::int64_t backprop_through = 1;  // in tokens; a multiple of `segment`
  // The weight of every loss in the backward pass, e.g. 1 / segments of a window for the gradient of their
  // mean.
  double loss_weight = 1;

  // The losses of `tokens` tokens and the state behind them. Gradients are summed into the leaves; the last
  // window is shorter when the windows do not divide the tokens.
  //
  // errors: ValueError when a size is not positive or `segment` does not divide the other sizes, before
  // anything runs; ShapeError for a loss of more than one element; GraphError for a loss that no leaf leads
  // to, as under NoGrad. After an error the caller still holds the state the run started from, and the leaves
  // what was summed so far.
  TbpttResult run(std::int64_t tokens, const State& state, const Segment& run_segment,
                  const AfterBackward& after_backward = {}) const;
};

}  // namespace eddy
