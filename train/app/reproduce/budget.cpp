// Steps from costs: steps of a row = steps of the reference row * its cost / cost of the row,
// or the seconds that all have / cost of the row.
#include "train/app/reproduce/budget.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "tensor/base/format.h"
#include "train/app/reproduce/row_check.h"
#include "train/app/reproduce/run.h"
#include "train/app/reproduce/time_left.h"
#include "train/config/run_config.h"
#include "train/files/folders.h"
#include "train/files/text_file.h"
#include "train/tasks/task.h"
#include "train/words/human_text.h"

namespace eddy::app {
using namespace training;
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr const char* kBudgetFile = "budget.json";
constexpr int kBudgetFormat = 1;
constexpr double kTimedSeconds = 4;  // for a row, and at most a quarter of what it is trained for
constexpr double kMostSteps = 1e12;  // of a run, as its key says
constexpr double kIdleLoad = 0.5;    // of other programs, in processors

double tokens_of_step(const RunConfig& config) {
  return static_cast<double>(config.train.batch * config.train.accumulate * segment_length(config));
}

// Of training: three times those of the forward pass.
double operations_of_step(const RunConfig& config, const RowSize& size) {
  return 3 * size.flops_per_token * tokens_of_step(config);
}

const ReproduceRow& reference_of(const ReproduceTable& table) {
  for (const ReproduceRow& row : table.rows)
    if (table.budget.of.empty() || row.name == table.budget.of || row.group == table.budget.of) return row;
  std::vector<std::string> names;
  for (const ReproduceRow& row : table.rows) names.push_back(row.name);
  fail<ConfigError>("{}: budget.of is \"{}\", which is no row at this scale (one of {})", table.budget.place,
                    table.budget.of, fmt::join(names, ", "));
}

// What was recorded: the cost of a step of each row, with the configuration that it is of.
std::map<std::string, json> read_costs(const ReproduceTable& table, const fs::path& folder) {
  const fs::path file = folder / kBudgetFile;
  std::error_code error;
  std::map<std::string, json> costs;
  if (fs::symlink_status(file, error).type() == fs::file_type::not_found) return costs;
  try {
    const json about = read_json_with_digest(file, kBudgetFormat);
    if (about.at("equal") == table.budget.equal)
      for (const auto& [name, cost] : about.at("rows").items()) costs[name] = cost;
  } catch (const json::exception&) {
    fail<FormatError>("reproduce: {} is damaged (remove it, and the steps are counted again)", file.string());
  } catch (const Error& damaged) {
    fail<IoError>("reproduce: {} cannot be read: {} (remove it, and the steps are counted again)",
                  file.string(), damaged.what());
  }
  return costs;
}

// The recorded cost of a row's step; 0 where there is none.
double cost_of(const std::map<std::string, json>& costs, const ReproduceRow& row, const fs::path& folder) {
  const auto found = costs.find(row.group);
  if (found == costs.end()) return 0;
  RunConfig had = run_config_from_json(found->second.at("config"), (folder / kBudgetFile).string());
  // Of training only what a step costs matters.
  const TrainConfig was = std::exchange(had.train, row.config.train);
  had.train.batch = was.batch;
  had.train.accumulate = was.accumulate;
  had.train.micro_batches = was.micro_batches;
  had.train.recompute = was.recompute;
  had.train.sequence = was.sequence;
  had.train.carry_state = was.carry_state;
  had.train.precision = was.precision;
  had.train.device = was.device;
  if (const std::vector<std::string> keys = contradictions(had, row.config); !keys.empty())
    fail<ConfigError>(
        "reproduce: the steps of {} in {} are of another configuration: {} (choose another --runs)",
        row.group, (folder / kBudgetFile).string(), fmt::join(keys, "; "));
  return found->second.at("cost").get<double>();
}

}  // namespace

void settle_budget(ReproduceTable& table, const fs::path& folder,
                   const std::map<std::string, RowSize>& sizes) {
  if (table.budget.equal.empty()) return;
  const ReproduceRow reference = reference_of(table);
  const bool of_tokens = value_is(table.budget.equal, BudgetPart::tokens);
  const std::map<std::string, json> costs =
      of_tokens ? std::map<std::string, json>() : read_costs(table, folder);
  const auto cost = [&](const ReproduceRow& row) {
    if (of_tokens) return tokens_of_step(row.config);
    const double recorded = cost_of(costs, row, folder);
    const auto size = sizes.find(row.name);
    return recorded == 0 && size != sizes.end() ? operations_of_step(row.config, size->second) : recorded;
  };
  const double minutes = table.budget.minutes;
  const double all =
      minutes > 0 ? 60 * minutes : static_cast<double>(reference.config.train.steps) * cost(reference);
  for (ReproduceRow& row : table.rows) {
    if (!row.weights_of.empty()) continue;
    const double of_step = cost(row);
    row.counted = all > 0 && of_step > 0;
    if (row.counted) row.config.train.steps = std::llround(std::clamp(all / of_step, 1.0, kMostSteps));
  }
}

void check_budget(const ReproduceTable& table) {
  if (table.budget.equal.empty() || value_is(table.budget.equal, BudgetPart::tokens) ||
      table.budget.minutes > 0)
    return;
  if (const ReproduceRow& reference = reference_of(table); !reference.left_out.empty())
    fail<ConfigError>(
        "{}: the budget is that of the row {}, which cannot be trained: {} (budget.of names another)",
        table.budget.place, reference.group, reference.left_out);
}

void record_budget(const ReproduceTable& table, const fs::path& folder,
                   const std::function<void(std::string_view)>& log) {
  std::map<std::string, json> costs = read_costs(table, folder);
  const bool timed = value_is(table.budget.equal, BudgetPart::time);
  double load = 0;
  if (timed && ::getloadavg(&load, 1) == 1 && load > kIdleLoad)
    log(fmt::format(
        "warning: the load of this machine is {:.1f}: times of steps, which give the budget, should be "
        "taken on an idle one\n",
        load));
  const std::map<std::string, RowSize> sizes =
      timed ? std::map<std::string, RowSize>() : row_sizes(table, folder, true);
  RowTimer timer;
  const double minutes = table.budget.minutes;
  const double seconds = minutes > 0 ? std::min(kTimedSeconds, 60 * minutes / 4) : kTimedSeconds;
  for (const ReproduceRow& row : table.rows) {
    if (!row.weights_of.empty() || !row.left_out.empty() || costs.contains(row.group)) continue;
    double cost = 0;
    if (timed) {
      cost = timer.of(row.config, seconds).step;
      if (cost == 0)
        fail<ConfigError>("reproduce: a step of {} cannot be timed: the memory has no room for it", row.name);
      log(fmt::format("{}: a step takes {}\n", row.group, human_duration(cost)));
    } else {
      cost = operations_of_step(row.config, sizes.at(row.name));
    }
    costs[row.group] = {{"cost", cost}, {"config", to_json(row.config)}};
  }
  make_folders(folder);
  json about{{"equal", table.budget.equal}, {"rows", costs}};
  if (timed) about["load"] = load;
  replace_text_file(folder / kBudgetFile, text_with_digest(std::move(about), kBudgetFormat));
}

std::string budget_text(const ReproduceTable& table) {
  if (table.budget.equal.empty())
    return "budget: each row has the steps and the batches of its configuration";
  if (table.budget.minutes > 0)
    return fmt::format("budget: equal time of training, {} {} for each row",
                       human_number(table.budget.minutes), plural(table.budget.minutes, "minute"));
  const ReproduceRow& reference = reference_of(table);
  const double tokens = static_cast<double>(reference.config.train.steps) * tokens_of_step(reference.config);
  if (value_is(table.budget.equal, BudgetPart::tokens))
    return fmt::format("budget: equal tokens, {} of training for each row", human_count(tokens));
  const bool timed = value_is(table.budget.equal, BudgetPart::time);
  return fmt::format("budget: equal {}: each row has as many steps as take {} {} steps of the row {}",
                     timed ? "time of training" : "training operations",
                     timed ? "the time of" : "the operations of", reference.config.train.steps,
                     reference.group.empty() ? reference.name : reference.group);
}

}  // namespace eddy::app
