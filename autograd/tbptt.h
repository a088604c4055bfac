// Truncated backpropagation through time: a long sequence runs in segments. The values of the recurrent state
// carry over the whole sequence; gradients go back a fixed number of tokens. Memory is that of
// `backprop_through` tokens, whatever the length of the sequence.
// Source: Williams and Peng, "An efficient gradient-based algorithm for on-line training of recurrent network
// trajectories" (1990), their BPTT(h; h') with h = h'.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "autograd/state.h"
#include "autograd/tape.h"

namespace eddy {

// The result of one segment.
struct TbpttStep {
  Tensor loss;  // one element; undefined for a segment that is not scored
  State state;  // for the next segment, with its graph
};

// The segments that one backward pass covered.
struct TbpttWindow {
  std::int64_t first_segment = 0;
  std::int64_t segments = 0;
  double loss = 0;   // the sum over its segments
  GraphStats graph;  // just before the pass, when the graph is largest; max_depth is that of this window
};

struct TbpttResult {
  std::vector<double> losses;  // one for each segment, NaN where it was not scored
  State state;                 // after the last segment, detached: the next run starts from it
};

// The loop. A window is backprop_through / segment segments of `segment` tokens; gradients flow back inside a
// window. With segment = 8 and backprop_through = 16:
//
//   tokens         0-7    8-15     16-23   24-31
//   values     h0 --> s0 --> s1 --|--> s2 --> s3 --|-->   the state carries over
//                     |      |    |    |      |    |
//                  loss 0 loss 1  | loss 2 loss 3  |      | detach: the state becomes a constant
//                     |      |    |    |      |    |
//   gradients     <-- s0 <-- s1   |<-- s2 <-- s3   |      one backward over the sum of a window's losses
//
// The first token of a window gets gradients from the whole window, the last one from its own loss alone:
// windows do not overlap, so every token runs once forward and once backward. Within a window the gradient is
// exact; across windows it is zero. A window that covers the whole sequence is full backpropagation.
struct TbpttLoop {
  // Runs a segment from the state after the one before. Segment 0 gets the state given to `run`.
  using Segment = std::function<TbpttStep(std::int64_t segment, const State& state)>;
  // Called after each backward pass, when the graph is freed: the place to log and to step an optimizer. The
  // next segments see its in-place writes.
  using AfterBackward = std::function<void(const TbpttWindow& window)>;

  std::int64_t segment = 1;           // in tokens
  std::int64_t backprop_through = 1;  // in tokens; a multiple of `segment`
  // The weight of every loss in the backward pass, e.g. 1 / segments of a window for the gradient of their
  // mean.
  double loss_weight = 1;

  // Returns the losses of `tokens` tokens and the state after them. Gradients are added to the leaves; the
  // last window is shorter when the windows do not divide the tokens.
  //
  // errors: ValueError when a size is not positive or `segment` does not divide the other sizes, before
  // anything runs; ShapeError for a loss of more than one element; GraphError for a loss that no leaf leads
  // to, as under NoGrad. After an error the caller still holds the initial state, and the leaves hold the
  // gradients summed so far.
  TbpttResult run(std::int64_t tokens, const State& state, const Segment& run_segment,
                  const AfterBackward& after_backward = {}) const;
};

}  // namespace eddy
