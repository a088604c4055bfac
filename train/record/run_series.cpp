// Series and last numbers of the records.
#include "train/record/run_series.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "train/config/run_config.h"

namespace eddy::training {
namespace {

constexpr const char* kLoss = "loss";
constexpr double kFallenRate = 0.2;  // of the highest rate: the schedule nears its end

// What a page calls the evaluations of a kind.
std::string kind_of(const EvalRecord& eval) {
  const std::string name = value_is(eval.split, Split::valid) ? "validation" : eval.split;
  return eval.whole ? name + ", whole split" : name;
}

// The record of a run stands in its file again where the texts grow.
std::int64_t phase_of(const Metrics& records) {
  return records.run && records.run->step > 0 ? records.run->step : -1;
}

}  // namespace

RunSeries::RunSeries(Metrics records, std::optional<std::int64_t> phase_began)
    : records_(std::move(records)), phase_began_(phase_began.value_or(phase_of(records_))) {}

RunSeries RunSeries::read(const std::filesystem::path& file, std::optional<std::int64_t> phase_began) {
  return RunSeries(read_metrics(file), phase_began);
}

Series RunSeries::steps_and_peaks(double StepRecord::*field, std::string name) const {
  std::vector<StepRecord> all = records_.steps;
  all.insert(all.end(), records_.peaks.begin(), records_.peaks.end());
  std::stable_sort(all.begin(), all.end(),
                   [](const StepRecord& a, const StepRecord& b) { return a.step < b.step; });
  return series_of(records_.peaks.empty() ? records_.steps : all, field, std::move(name), 1);
}

std::int64_t RunSeries::most(std::int64_t StepRecord::*field) const {
  std::int64_t most = 0;
  for (const StepRecord& record : records_.steps) most = std::max(most, record.*field);
  return most;
}

std::vector<std::string> RunSeries::measures() const {
  std::vector<std::string> names;
  for (const EvalRecord& eval : records_.evals)
    for (const auto& [name, value] : eval.metrics)
      if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
  return names;
}

Series RunSeries::evaluations(const std::string& measure, std::string name) const {
  Series series{std::move(name), {}, {}};
  for (const EvalRecord& eval : records_.evals)
    if (const std::optional<double> value = measure_of(eval, measure); value && compares(eval))
      series.add(static_cast<double>(eval.step), *value);
  return series;
}

std::vector<Series> RunSeries::evaluations_by_split(const std::string& measure) const {
  std::vector<Series> all;
  for (const EvalRecord& eval : records_.evals) {
    const std::optional<double> value = measure_of(eval, measure);
    if (!value) continue;
    const std::string kind = kind_of(eval);
    auto series = std::find_if(all.begin(), all.end(), [&](const Series& s) { return s.name == kind; });
    if (series == all.end()) series = all.insert(series, {kind, {}, {}});
    series->add(static_cast<double>(eval.step), *value);
  }
  return all;
}

std::vector<EvalPoint> RunSeries::points(std::int64_t last) const {
  std::vector<EvalPoint> points;
  for (const EvalRecord& eval : records_.evals)
    if (compares(eval) && !eval.of_task && eval.step > phase_began_ && eval.step <= last)
      points.push_back({eval.step, eval.loss});
  return points;
}

std::string RunSeries::promise(std::int64_t last) const {
  double highest = 0, rate = 0, bits_per_nat = kNotMeasured;
  for (const StepRecord& record : records_.steps)
    if (record.step <= last && std::isfinite(record.learning_rate)) {
      rate = record.learning_rate;
      highest = std::max(highest, rate);
    }
  for (const EvalRecord& eval : records_.evals)
    if (const std::optional<double> bits = measure_of(eval, "bits_per_byte");
        bits && compares(eval) && eval.loss > 0)
      bits_per_nat = *bits / eval.loss;
  return promise_text(points(last), rate < kFallenRate * highest, bits_per_nat);
}

const EvalRecord* RunSeries::best() const {
  const EvalRecord* best = nullptr;
  for (const EvalRecord& eval : records_.evals)
    if (eval.step > phase_began_ && is_better(eval, best)) best = &eval;
  return best;
}

const EvalRecord* RunSeries::whole() const {
  const EvalRecord* last = nullptr;
  for (const EvalRecord& eval : records_.evals)
    if (eval.whole && value_is(eval.split, Split::valid)) last = &eval;
  return last;
}

RunSeries::FinalLoss RunSeries::final_training_loss() const {
  if (records_.steps.empty()) return {};
  const std::vector<double> losses = steps(&StepRecord::loss).y;
  const std::size_t recent = std::clamp<std::size_t>(losses.size() / 10, 1, 20);
  return {median({losses.end() - static_cast<std::ptrdiff_t>(recent), losses.end()}), recent};
}

double RunSeries::steady_median(double StepRecord::*field) const {
  constexpr std::size_t kEnough = 20;
  constexpr std::ptrdiff_t kFirst = 5;
  std::vector<double> values = steps(field).y;
  if (values.size() > kEnough) values.erase(values.begin(), values.begin() + kFirst);
  return median(std::move(values));
}

std::optional<double> RunSeries::state_gain() const {
  std::optional<double> gain;
  for (const EvalRecord& eval : records_.evals)
    if (const std::optional<double> value = measure_of(eval, "state_gain")) gain = value;
  return gain;
}

std::int64_t RunSeries::last_step() const {
  std::int64_t last = 0;
  const auto take = [&](const auto& records) {
    for (const auto& record : records) last = std::max(last, record.step);
  };
  take(records_.steps);
  take(records_.evals);
  take(records_.events);
  return last;
}

std::optional<double> measure_of(const EvalRecord& eval, const std::string& measure) {
  if (measure == kLoss) return eval.loss;
  for (const auto& [name, value] : eval.metrics)
    if (name == measure) return value;
  return std::nullopt;
}

bool less_is_better(const std::string& measure) {
  const auto has = [&](const char* word) { return measure.find(word) != std::string::npos; };
  return has("loss") || has("bits_per") || has("perplexity") || has("error");
}

std::vector<std::vector<std::size_t>> groups_by_seed(const std::vector<const RunConfig*>& configs) {
  struct Seeds {
    RunConfig config;  // with one seed
    std::set<std::int64_t> seeds;
    std::size_t group;
  };
  std::vector<std::vector<std::size_t>> groups;
  std::vector<Seeds> known;
  for (std::size_t i = 0; i < configs.size(); ++i) {
    if (configs[i] != nullptr) {
      RunConfig config = *configs[i];
      const std::int64_t seed = std::exchange(config.train.seed, 0);
      const auto found =
          std::find_if(known.begin(), known.end(), [&](const Seeds& one) { return one.config == config; });
      if (found == known.end()) {
        known.push_back({std::move(config), {seed}, groups.size()});
      } else if (found->seeds.insert(seed).second) {
        groups[found->group].push_back(i);
        continue;
      }
    }
    groups.push_back({i});
  }
  return groups;
}

}  // namespace eddy::training
