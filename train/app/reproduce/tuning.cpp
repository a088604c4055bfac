// Successive halving over the values of a row, whose trials are rows themselves.
#include "train/app/reproduce/tuning.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <optional>
#include <utility>

#include "tensor/base/format.h"
#include "train/app/reproduce/run.h"
#include "train/config/config.h"
#include "train/record/run_series.h"
#include "train/run/run_folder.h"

namespace eddy::app {
using namespace training;
namespace {

namespace fs = std::filesystem;
using Values = std::vector<std::string>;

// All combinations of the values; the last key changes first.
std::vector<Values> combinations(const ReproduceTune& tune) {
  std::vector<Values> all{{}};
  for (const ReproduceTune::Key& key : tune.keys) {
    std::vector<Values> longer;
    for (const Values& begun : all)
      for (const std::string& value : key.values) {
        longer.push_back(begun);
        longer.back().push_back(value);
      }
    all = std::move(longer);
  }
  return all;
}

// The rounds of so many combinations.
struct Rounds {
  std::size_t count = 0;   // R
  std::int64_t every = 1;  // steps of the first, and between the evaluations of all
  std::int64_t most = 1;   // S
  std::int64_t steps(std::size_t round) const { return std::min(every << round, most); }
};
Rounds rounds_of(std::size_t candidates, const TrainConfig& train) {
  Rounds rounds;
  while ((std::size_t{1} << rounds.count) < candidates) ++rounds.count;
  rounds.most = std::max<std::int64_t>(train.steps, 1);
  const std::int64_t least = std::min(std::max<std::int64_t>(train.warmup, 1), rounds.most);
  rounds.every = std::max(rounds.most >> rounds.count, least);
  return rounds;
}

// How many of `candidates` are left before a round.
std::size_t left_before(std::size_t candidates, std::size_t round) {
  const std::size_t parts = std::size_t{1} << round;
  return (candidates + parts - 1) / parts;
}

// The last part of a key's name and its value, as a part of a folder's name: "learning_rate-0.003".
std::string folder_text(const ReproduceTune& tune, const Values& values) {
  std::string text;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const std::string& key = tune.keys[i].key;
    text += fmt::format("{}{}-{}", i == 0 ? "" : "-", key.substr(key.rfind('.') + 1), values[i]);
  }
  for (char& c : text)
    if (c == '/' || c == ' ' || c == '"' || c == ',') c = '_';
  return text;
}

// The key of a result's values that has the number of a trial.
std::string score_key(const ReproduceTune& tune, std::int64_t steps) {
  return fmt::format("{} by step {}", tune.by, steps);
}

// The best number of a run until a step; NaN where it diverged.
double score_of(const ReproduceTune& tune, const fs::path& folder, std::int64_t steps) {
  const RunSeries run = RunSeries::read(folder / "metrics.jsonl");
  const auto until = [&](const std::string& measure) {
    Series series = run.evaluations(measure);
    while (!series.x.empty() && series.x.back() > static_cast<double>(steps)) {
      series.x.pop_back();
      series.y.pop_back();
    }
    return std::move(series.y);
  };
  const std::vector<double> losses = until("loss"), scores = until(tune.by);
  if (losses.empty() || scores.empty() || !std::isfinite(losses.back()) || !std::isfinite(scores.back()))
    return kNotMeasured;
  double lowest = losses.back(), best = scores.back();
  for (const double loss : losses) lowest = std::isfinite(loss) ? std::min(lowest, loss) : lowest;
  const std::vector<double> trained = run.steps(&StepRecord::loss).y;
  if (!trained.empty() && std::isfinite(trained.front())) lowest = std::min(lowest, trained.front());
  if (losses.back() > lowest + kGoodLossRange) return kNotMeasured;
  for (const double score : scores)
    if (std::isfinite(score))
      best = value_is(tune.better, Better::higher) ? std::max(best, score) : std::min(best, score);
  return best;
}

}  // namespace

std::string tuned_text(const ReproduceTune& tune, const Values& values) {
  std::string text;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const std::string& key = tune.keys[i].key;
    text += fmt::format("{}{} {}", i == 0 ? "" : ", ", key.substr(key.rfind('.') + 1), values[i]);
  }
  return text;
}

void set_tuned_values(const ReproduceTable& table, ReproduceRow& row, const Values& values) {
  std::map<std::string, std::string> texts;
  for (std::size_t i = 0; i < values.size(); ++i) texts[table.tune.keys[i].key] = values[i];
  keys_of(row.config).read_texts(texts);
  row.variant = "-" + folder_text(table.tune, values);
}

ReproduceRow trial_row(const ReproduceTable& table, const ReproduceRow& row, const Trial& trial) {
  ReproduceRow one = row;
  for (const ReproduceRow& other : table.rows)  // the first of its seeds
    if (other.group == row.group) {
      one = other;
      break;
    }
  const Rounds rounds = rounds_of(combinations(table.tune).size(), one.config.train);
  set_tuned_values(table, one, trial.values);
  one.name =
      fmt::format("tune/{}/every-{}/{}", row.group, rounds.every, folder_text(table.tune, trial.values));
  one.variant.clear();
  one.title += ", " + tuned_text(table.tune, trial.values);
  TrainConfig& train = one.config.train;
  if (!can_have_more_steps(train)) one.name += fmt::format("-to-{}", trial.steps);
  train.steps = trial.steps;
  train.eval_every = rounds.every;
  train.state_gain_batches = 0;
  train.sample_tokens = 0;
  return one;
}

RowTuning tuning_of(const ReproduceTable& table, const ReproduceRow& row, const std::string& runs) {
  RowTuning tuning;
  std::vector<Values> left = combinations(table.tune);
  const std::size_t candidates = left.size();
  const Rounds rounds = rounds_of(candidates, row.config.train);
  const bool goes_on = can_have_more_steps(row.config.train);
  for (std::size_t round = 0; round < rounds.count && left.size() > 1; ++round) {
    const std::int64_t steps = rounds.steps(round);
    const std::int64_t already = goes_on && round > 0 ? rounds.steps(round - 1) : 0;
    std::vector<Trial> tried;
    for (const Values& values : left) {
      Trial trial{values, steps};
      const RowState state = row_state(table, trial_row(table, row, trial), runs);
      if (const auto found = state.kept.find(score_key(table.tune, steps)); found != state.kept.end()) {
        trial.score = found->second;
        tuning.done.push_back(trial);
        tried.push_back(std::move(trial));
      } else {
        tuning.next.push_back(std::move(trial));
        tuning.steps_left += steps - already;
      }
    }
    if (!tuning.next.empty()) {
      for (std::size_t later = round + 1; later < rounds.count; ++later)
        tuning.steps_left += static_cast<std::int64_t>(left_before(candidates, later)) *
                             (rounds.steps(later) - (goes_on ? rounds.steps(later - 1) : 0));
      return tuning;
    }
    std::erase_if(tried, [](const Trial& trial) { return !std::isfinite(trial.score); });
    std::stable_sort(tried.begin(), tried.end(), [&](const Trial& a, const Trial& b) {
      return value_is(table.tune.better, Better::higher) ? a.score > b.score : a.score < b.score;
    });
    left.clear();
    for (std::size_t i = 0; i < std::min(tried.size(), left_before(candidates, round + 1)); ++i)
      left.push_back(tried[i].values);
  }
  if (!left.empty()) tuning.best = left.front();
  return tuning;
}

ReproduceEnd run_trial(const ReproduceTable& table, const ReproduceRow& row, const Trial& trial,
                       const std::string& runs, const std::string& command, Ranks* ranks) {
  const ReproduceRow one = trial_row(table, row, trial);
  RowState state = row_state(table, one, runs);
  if (state.kept.contains(score_key(table.tune, trial.steps))) return ReproduceEnd::done;
  if (!state.trained) {
    if (train_row(one, state, command, ranks) == ReproduceEnd::interrupted) return ReproduceEnd::interrupted;
    state = row_state(table, one, runs);
  }
  const bool gave_up = state.result && state.result->ended == kGaveUp;
  keep_value(state.folder, score_key(table.tune, trial.steps),
             gave_up ? kNotMeasured : score_of(table.tune, state.folder, trial.steps));
  return ReproduceEnd::done;
}

std::vector<std::string> keys_on_border(const ReproduceTune& tune, const Values& best) {
  std::vector<std::string> keys;
  for (std::size_t i = 0; i < best.size(); ++i) {
    std::vector<double> numbers;
    for (const std::string& value : tune.keys[i].values) {
      char* end = nullptr;
      const double number = std::strtod(value.c_str(), &end);
      if (end != value.c_str() && *end == '\0') numbers.push_back(number);
    }
    if (numbers.size() != tune.keys[i].values.size() || numbers.size() < 2) continue;
    const auto [low, high] = std::minmax_element(numbers.begin(), numbers.end());
    const double won = std::strtod(best[i].c_str(), nullptr);
    if (won == *low || won == *high) keys.push_back(tune.keys[i].key);
  }
  return keys;
}

}  // namespace eddy::app
