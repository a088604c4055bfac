// Gathers from a run in progress what others show of it.
#include "train/run/run_report.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>

#include "models/eddy/registry.h"
#include "tensor/base/format.h"
#include "train/eval/standing.h"
#include "train/plan/environment.h"
#include "train/tasks/task.h"

namespace eddy {
namespace {

std::int64_t phase_began(const ReadyRun& run) {
  return last_growth(run.state.text_phases);
}

}  // namespace

RunRecord facts_of(const RunConfig& config) {
  const ModelConfig& model = config.model;
  const std::int64_t time = segment_length(config);
  RunRecord facts;
  facts.model = fmt::format("{}/{}", model.family, model.model);
  facts.task = config.data.name;
  facts.parameters = count_parameters(model).count();
  facts.state_bytes = stream_bytes(model, time);
  facts.flops_per_token = forward_cost(model, time).flops / static_cast<double>(time);
  facts.text = config.data.path;
  return facts;
}

RunRecord record_of(const ReadyRun& run) {
  RunRecord record = facts_of(run.config);
  record.step = run.state.step;
  record.name = std::filesystem::absolute(run.folder).lexically_normal().filename().string();
  record.text_sha256 = run.state.text_sha256;
  return record;
}

double passes_of(const ReadyRun& run) {
  return passes_over(run.state.tokens, run.state.pass_tokens);
}

std::string standing_of(const ReadyRun& run, const MetricsSummary& records) {
  if (run.state.pass_tokens == 0 || run.state.step == 0 || run.config.train.eval_every == 0) return "";
  return standing_text(eval_points(records.metrics(), phase_began(run)), passes_of(run));
}

void LiveReport::note(double began, double ended) {
  interval_ = std::max(kLeastInterval, (ended - began) / kShare);
  next_ = ended + interval_;
}

void LiveReport::write(const ReadyRun& run, const MetricsSummary& records, PageStatus status, double seconds,
                       bool whole) {
  if (whole) sections_ = HtmlPage::rendered([&](HtmlPage& page) { run.task->report(page, *run.model); });
  const std::chrono::duration<double> written = std::chrono::system_clock::now().time_since_epoch();
  status.written_s = written.count();
  if (status.word == "running") status.every_s = std::ceil(interval_);
  ReportData data;
  data.status = std::move(status);
  data.seconds = seconds;
  data.sections = sections_;
  data.title = fmt::format("{} on {}", run.config.model.model, run.task->name());
  data.parameters = run.model->params().count();
  data.config = run.config;
  data.environment = environment_lines();
  data.metrics = records.metrics();
  data.phase_began = phase_began(run);
  data.tokens_seen = run.state.tokens;
  data.baselines = run.state.baselines;
  data.passes = passes_of(run);
  data.standing = standing_of(run, records);
  write_report(run.folder, data);
}

}  // namespace eddy
