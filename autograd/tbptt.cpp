// The loop over windows and segments.
#include "autograd/tbptt.h"

#include <algorithm>
#include <limits>

#include "tensor/base/format.h"

namespace eddy {
namespace {

void check_sizes(const TbpttLoop& loop, std::int64_t tokens) {
  if (loop.segment < 1) fail<ValueError>("tbptt: a segment of {} tokens (at least 1)", loop.segment);
  if (loop.backprop_through < 1 || loop.backprop_through % loop.segment != 0)
    fail<ValueError>(
        "tbptt: backprop_through must be a multiple of segment: backprop_through {}, segment {} (cuts "
        "lie between segments)",
        loop.backprop_through, loop.segment);
  if (tokens < 0 || tokens % loop.segment != 0)
    fail<ValueError>("tbptt: segment must divide the tokens: tokens {}, segment {} (shorten the sequence)",
                     tokens, loop.segment);
}

}  // namespace

TbpttResult TbpttLoop::run(std::int64_t tokens, const State& state, const Segment& run_segment,
                           const AfterBackward& after_backward) const {
  check_sizes(*this, tokens);
  const std::int64_t segments = tokens / segment, per_window = backprop_through / segment;
  TbpttResult result;
  // Detached, because gradients of the first window would otherwise flow into the graph of the initial state.
  result.state = state.detach();
  for (std::int64_t first = 0; first < segments; first += per_window) {
    TbpttWindow window{first, std::min(per_window, segments - first), 0, {}};
    reset_graph_depth();
    std::vector<Tensor> scored, weights, values;
    for (std::int64_t i = first; i < first + window.segments; ++i) {
      TbpttStep step = run_segment(i, result.state);
      result.state = std::move(step.state);
      values.push_back(step.loss.defined() ? detach(step.loss) : Tensor());
      if (!step.loss.defined()) continue;
      if (step.loss.elements() != 1)
        fail<ShapeError>("tbptt: segment {} gave a loss {} (one element)", i, to_string(step.loss.shape()));
      weights.push_back(Tensor::full(step.loss.shape(), loss_weight, step.loss.dtype(), step.loss.device()));
      scored.push_back(std::move(step.loss));
    }
    window.graph = graph_stats();
    if (!scored.empty()) backward(scored, weights);
    // Nodes that no loss depends on live as long as these handles.
    scored.clear();
    result.state = result.state.detach();
    // Read only now, because reading waits for all work enqueued on the device.
    for (const Tensor& value : values) {
      result.losses.push_back(value.defined() ? value.item() : std::numeric_limits<double>::quiet_NaN());
      if (value.defined()) window.loss += result.losses.back();
    }
    if (after_backward) after_backward(window);
  }
  return result;
}

}  // namespace eddy
