// Gathers the facts of a run from its configuration, its task and its state.
#include "train/run/run_facts.h"

#include <filesystem>

#include "models/eddy/registry.h"
#include "tensor/base/format.h"
#include "train/eval/learning_verdict.h"
#include "train/record/run_series.h"
#include "train/tasks/task.h"

namespace eddy::training {

std::int64_t phase_began(const ReadyRun& run) {
  return last_growth(run.state.text_phases);
}

RunRecord facts_of(const RunConfig& config) {
  const ModelConfig& model = config.model;
  const std::int64_t time = segment_length(config);
  RunRecord facts;
  facts.model = fmt::format("{}/{}", model.family, model.model);
  facts.task = config.data.name;
  facts.parameters = count_parameters(model).count();
  facts.state_bytes = stream_bytes(model, time);
  facts.flops_per_token = forward_cost(model, time).flops / static_cast<double>(time);
  facts.text = config.data.path.text();
  return facts;
}

RunRecord record_of(const ReadyRun& run) {
  RunRecord record = facts_of(run.config);
  record.step = run.state.step;
  record.name = std::filesystem::absolute(run.folder).lexically_normal().filename().string();
  record.text_sha256 = run.state.text_sha256;
  return record;
}

double epochs_of(const ReadyRun& run) {
  return epochs_in(run.state.tokens, run.state.epoch_tokens);
}

std::string learning_verdict_of(const ReadyRun& run, const MetricsSummary& records) {
  if (run.state.epoch_tokens == 0 || run.state.step == 0 || run.config.train.eval_every == 0) return "";
  const RunSeries series(records.metrics(), phase_began(run));
  return learning_verdict(series.points(), epochs_of(run), series.promise());
}

}  // namespace eddy::training
