// Evaluates the same batches twice, with the state and without.
#include "train/run/state_monitor.h"

#include <algorithm>
#include <cmath>

#include "tensor/base/format.h"

namespace eddy::training {

void StateMonitor::measure(const Task& task, const Model& model, const EvalOptions& options,
                           EvalResult& result, const EvalProgress& progress) const {
  if (batches_ == 0 || !result.carried) return;
  bool ended = false;
  const auto watched = [&](std::int64_t done, std::int64_t total) {
    ended = ended || (progress && !progress(done, total));
    return !ended;
  };
  EvalOptions part = options;
  bool same = false;  // as many batches as the evaluation had
  if (options.batches == 0 && options.sample > 0) {
    part.sample = std::min(batches_, options.sample);
    same = part.sample == options.sample;
  } else {
    part.batches = batches_;
    same = part.batches == options.batches;
  }
  const double loss_with_state = same ? result.loss : task.evaluate(model, part, watched).loss;
  part.clear_state = true;
  const double loss_cleared = task.evaluate(model, part, watched).loss;
  if (ended) return;
  result.metrics.emplace_back("state_gain", loss_cleared - loss_with_state);
  result.metrics.insert(result.metrics.end(), result.diagnostics.begin(), result.diagnostics.end());
}

std::string StateMonitor::warning(const EvalResult& result, double done) {
  for (const auto& [name, gain] : result.metrics) {
    if (name != "state_gain" || !std::isfinite(gain)) continue;
    if (gain >= kMinStateGain) warned_ = false;
    if (gain >= kMinStateGain || done < kStateGainCheckFrom || warned_) return {};
    warned_ = true;
    return fmt::format(
        "warning: the model ignores the carried state: clearing it changes the loss by {:+.2g} nats (a state in "
        "use: by {} or more). A recurrent model seldom recovers from this. Check the learning rate, the biases "
        "of its gates, and whether the text needs anything from further back than attention reaches",
        gain, kMinStateGain);
  }
  return {};
}

}  // namespace eddy::training
