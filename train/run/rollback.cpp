// Which checkpoint is good, and the way back to it.
#include "train/run/rollback.h"

#include <cmath>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>

#include "models/optimizer/optimizer.h"
#include "tensor/base/format.h"
#include "train/run/checkpoint.h"
#include "train/run/run_folder.h"
#include "train/words/human_text.h"

namespace eddy::training {
namespace {

bool is_wanted(const ReadyRun& run) {
  return value_is(run.config.train.rollback, RollbackRule::automatic);
}

}  // namespace

bool is_planned(const TrainConfig& config, std::int64_t step, bool best) {
  const auto is_multiple = [step](std::int64_t every) { return every > 0 && step % every == 0; };
  return step == 0 || is_multiple(config.checkpoint_every) || (best && is_multiple(config.eval_every));
}

void note_checkpoint(ReadyRun& run, bool best) {
  if (is_wanted(run) && is_planned(run.config.train, run.state.step, best))
    run.state.candidate_step = run.state.step;
}

void note_outcome(ReadyRun& run, const StepResult& result) {
  TrainingState& state = run.state;
  state.bad_steps = result.finite ? 0 : state.bad_steps + 1;
  if (result.finite && !std::isfinite(result.loss)) return;  // no targets: it says nothing
  if (result.finite && state.candidate_step >= 0 && result.loss <= state.lowest_loss + kGoodLossRange)
    state.good_step = state.candidate_step;
  state.candidate_step = -1;
}

RollbackResult roll_back(ReadyRun& run, bool has_part) {
  TrainingState& state = run.state;
  const std::string failed = fmt::format("{} {} not finite", state.bad_steps,
                                         plural(state.bad_steps, "step was", "steps in a row were"));
  const auto ends = [&](const std::string& why) -> RollbackResult {
    state.bad_steps = 0;  // a resumed run tries as often again
    return {false, fmt::format("stopped: {}{}", failed, why)};
  };
  if (!is_wanted(run)) return ends("");
  const std::size_t times = state.rollbacks.size();
  if (times >= kMostRollbacks)
    return ends(fmt::format(
        ", and the run went back {} times already (a lower --train.learning_rate may help)", times));
  if (state.good_step < 0)
    return ends(
        ", and there is no good checkpoint yet to go back to (a lower --train.learning_rate may help)");
  const std::string name = fmt::format("step-{}", state.good_step);
  try {
    // Nothing changes before both files have been read.
    const std::filesystem::path checkpoint = run.folder / "checkpoints" / name;
    std::unique_ptr<Optimizer> whole = make_optimizer(run.model->params(), run.config.train);
    load_optimizer(checkpoint, *whole);
    load_weights(checkpoint, run.model->params());
    if (has_part)
      run.optimizer = std::move(whole);
    else
      run.optimizer->load(whole->save(), name);  // in its own memory, which captured steps hold
  } catch (const Error& error) {
    return ends(
        fmt::format(", and {}, the last good checkpoint, cannot be taken up: {}", name, error.what()));
  }
  run.carried = {};
  state.bad_steps = 0;
  state.candidate_step = state.step;
  state.rollbacks.push_back({state.step, state.good_step, state.rate_factor() / 2});
  return {
      true,
      fmt::format("step {}: {}: back to the weights of {}, the last good checkpoint, with {} of the learning "
                  "rate; the data of steps {} to {} are skipped (time {} of {})",
                  state.step, failed, name, state.rate_factor(), state.good_step + 1, state.step, times + 1,
                  kMostRollbacks)};
}

}  // namespace eddy::training
