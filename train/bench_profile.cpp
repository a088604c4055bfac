// Times per op and module, and their tables.
#include "train/bench_profile.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "autograd/node.h"
#include "tensor/format.h"

namespace eddy {
namespace {

void add_to(ProfileRow& row, std::int64_t calls, double forward, double backward) {
  row.calls += calls;
  row.forward += forward;
  row.backward += backward;
}

std::vector<ProfileRow> sorted_rows(const std::map<std::string, ProfileRow>& named) {
  std::vector<ProfileRow> rows;
  for (const auto& [name, row] : named) {
    rows.push_back(row);
    rows.back().name = name;
  }
  std::stable_sort(rows.begin(), rows.end(),
                   [](const ProfileRow& a, const ProfileRow& b) { return a.total() > b.total(); });
  return rows;
}

}  // namespace

double StepProfiler::lap() {
  const BenchClock::time_point now = BenchClock::now();
  return elapsed_seconds(std::exchange(last_, now), now);
}

void StepProfiler::start() {
  last_ = BenchClock::now();
}

void StepProfiler::mark(const std::string& part) {
  Entry& entry = parts_[part];
  entry.forward += lap();
  ++entry.calls;
}

void StepProfiler::forward_done(const char* op, const Scope* scope) {
  const double seconds = lap();
  Entry& entry = entries_[{op, scope}];
  entry.forward += seconds;
  ++entry.calls;
}

void StepProfiler::backward_done(const Node& node) {
  const double seconds = lap();
  entries_[{node.op, node.scope}].backward += seconds;
}

std::vector<ProfileRow> StepProfiler::by_op() const {
  std::map<std::string, ProfileRow> named;
  for (const auto& [key, entry] : entries_)
    add_to(named[key.first], entry.calls, entry.forward, entry.backward);
  for (const auto& [name, entry] : parts_) add_to(named[name], entry.calls, entry.forward, entry.backward);
  return sorted_rows(named);
}

std::vector<ProfileRow> StepProfiler::by_module() const {
  std::map<std::string, ProfileRow> named;
  for (const auto& [key, entry] : entries_)
    add_to(named[key.second->path.empty() ? "(no module)" : key.second->path], entry.calls, entry.forward,
           entry.backward);
  for (const auto& [name, entry] : parts_) add_to(named[name], entry.calls, entry.forward, entry.backward);
  return sorted_rows(named);
}

std::string profile_table(const std::string& head, const std::vector<ProfileRow>& rows, std::int64_t steps) {
  double whole = 0;
  for (const ProfileRow& row : rows) whole += row.total();
  const auto count = static_cast<double>(std::max<std::int64_t>(steps, 1));
  std::vector<std::vector<std::string>> cells{{head, "calls", "forward ms", "backward ms", "share %"}};
  for (const ProfileRow& row : rows)
    cells.push_back({row.name, table_number(static_cast<double>(row.calls) / count),
                     table_number(row.forward * 1e3 / count), table_number(row.backward * 1e3 / count),
                     fmt::format("{:.1f}", whole > 0 ? 100 * row.total() / whole : 0)});
  return text_table(cells);
}

nlohmann::json profile_json(const std::vector<ProfileRow>& rows, std::int64_t steps) {
  const auto count = static_cast<double>(std::max<std::int64_t>(steps, 1));
  nlohmann::json list = nlohmann::json::array();
  for (const ProfileRow& row : rows)
    list.push_back({{"name", row.name},
                    {"calls_per_step", static_cast<double>(row.calls) / count},
                    {"forward_ms", row.forward * 1e3 / count},
                    {"backward_ms", row.backward * 1e3 / count}});
  return list;
}

}  // namespace eddy
