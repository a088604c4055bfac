// Evaluates the events of a step when it has finished, and makes the tables.
#include "train/app/measure/profile.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "autograd/node.h"
#include "ops/backends.h"
#include "tensor/base/format.h"
#include "train/app/measure/bench.h"

namespace eddy::app {
using namespace training;
namespace {

// On the CPU the work is done when the call returns, so the host's clock serves.
class HostClock final : public DeviceClock {
 public:
  std::int64_t stamp() override {
    stamps_.push_back(Clock::now());
    return std::ssize(stamps_) - 1;
  }
  double seconds(std::int64_t from, std::int64_t to) override {
    return seconds_between(stamps_[static_cast<std::size_t>(from)], stamps_[static_cast<std::size_t>(to)]);
  }
  void clear() override { stamps_.clear(); }

 private:
  std::vector<Clock::time_point> stamps_;
};

void add_to(ProfileRow& row, const ProfileRow& part) {
  row.calls += part.calls;
  row.forward += part.forward;
  row.backward += part.backward;
  row.flops += part.flops;
  row.bytes += part.bytes;
  row.floor += part.floor;
  row.kernels += part.kernels;
}

std::vector<ProfileRow> longest_first(const std::map<std::string, ProfileRow>& named) {
  std::vector<ProfileRow> rows;
  for (const auto& [name, row] : named) {
    rows.push_back(row);
    rows.back().name = name;
  }
  std::stable_sort(rows.begin(), rows.end(),
                   [](const ProfileRow& a, const ProfileRow& b) { return a.total() > b.total(); });
  return rows;
}

double least_seconds(const ProfileRates& rates, const Cost& cost) {
  if (!cost.half || rates.half_product <= 0) return rates.ceilings.least_seconds(cost.flops, cost.bytes);
  return std::max(cost.flops / rates.half_product * 1e-9, rates.ceilings.least_seconds(0, cost.bytes));
}

std::string module_of(const Scope* scope) {
  return scope->path.empty() ? "(no module)" : scope->path;
}

ProfileRow sum_of(const std::vector<ProfileRow>& rows, const std::string& name) {
  ProfileRow sum;
  for (const ProfileRow& row : rows) add_to(sum, row);
  sum.name = name;
  return sum;
}

}  // namespace

StepProfiler::StepProfiler(Device device, ProfileRates rates)
    : rates_(std::move(rates)), device_(device), clock_(device_clock(device)) {
  if (clock_ == nullptr) clock_ = std::make_unique<HostClock>();
}

StepProfiler::~StepProfiler() = default;

void StepProfiler::start() {
  events_.clear();
  clock_->clear();
  synchronize(device_);
  begin_ = clock_->stamp();
}

void StepProfiler::mark(Kind kind, const char* op, const Scope* scope) {
  events_.push_back({kind, clock_->stamp(), op, scope});
}

void StepProfiler::kernel_done(const char*, const Cost& cost) {
  mark(Kind::kernel);
  Event& event = events_.back();
  event.flops = cost.flops;
  event.bytes = cost.bytes;
  event.floor = least_seconds(rates_, cost);
}
void StepProfiler::backward_done(const Node& node) {
  mark(Kind::backward, node.op, node.scope);
}

void StepProfiler::finish(const char* rest) {
  mark(Kind::rest, rest);
  ++steps_;
  ProfileRow part;  // since the last event of the tape
  double elapsed = 0;
  std::int64_t last = begin_;
  for (const Event& event : events_) {
    const double seconds = clock_->seconds(std::exchange(last, event.stamp), event.stamp);
    elapsed += seconds;
    if (event.kind == Kind::begin) continue;
    if (event.kind == Kind::kernel) {
      part.kernels += seconds;
      part.flops += event.flops;
      part.bytes += event.bytes;
      part.floor += event.floor;
      continue;
    }
    (event.kind == Kind::backward ? part.backward : part.forward) = elapsed;
    part.calls = event.kind == Kind::backward ? 0 : 1;
    add_to(rows_[{event.op, event.scope}], part);
    part = {};
    elapsed = 0;
  }
}

std::vector<ProfileRow> StepProfiler::named_rows(const std::function<std::string(const Key&)>& name) const {
  std::map<std::string, ProfileRow> named;
  for (const auto& [key, row] : rows_) add_to(named[name(key)], row);
  return longest_first(named);
}

std::vector<ProfileRow> StepProfiler::by_op() const {
  return named_rows([](const Key& key) { return std::string(key.first); });
}

std::vector<ProfileRow> StepProfiler::by_module() const {
  return named_rows(
      [](const Key& key) { return key.second == nullptr ? std::string(key.first) : module_of(key.second); });
}

std::vector<ProfileRow> over_layers(const std::vector<ProfileRow>& rows) {
  std::map<std::string, ProfileRow> named;
  for (const ProfileRow& row : rows) {
    std::string name;
    for (std::size_t at = 0; at < row.name.size();) {
      const std::size_t end = std::min(row.name.find('.', at), row.name.size());
      const std::string word = row.name.substr(at, end - at);
      const bool number = !word.empty() && word.find_first_not_of("0123456789") == std::string::npos;
      name += (at > 0 ? "." : "") + (number ? "*" : word);
      at = end + 1;
    }
    add_to(named[name], row);
  }
  return longest_first(named);
}

MeasuredTable profile_table(const std::string& head, const std::vector<ProfileRow>& rows,
                            std::int64_t steps) {
  constexpr double kShown = 1e-3;  // of the whole
  const ProfileRow sum = sum_of(rows, "sum");
  const auto count = static_cast<double>(std::max<std::int64_t>(steps, 1));
  const auto ms = [count](double seconds) { return fmt::format("{:.2f}", seconds * 1e3 / count); };
  MeasuredTable table;
  table.columns = {{"", head},    {"", "calls"}, {"", "forward ms"}, {"", "backward ms"},  {"", "share %"},
                   {"", "GFLOP"}, {"", "MiB"},   {"", "floor ms"},   {"", "+ in kernels"}, {"", "+ outside"}};
  const auto add = [&](const ProfileRow& row, const std::string& calls) {
    table.add({row.name, calls, ms(row.forward), ms(row.backward),
               fmt::format("{:.1f}", sum.total() > 0 ? 100 * row.total() / sum.total() : 0),
               fmt::format("{:.2f}", row.flops * 1e-9 / count),
               fmt::format("{:.1f}", row.bytes / (1 << 20) / count), ms(row.floor), ms(row.above_floor()),
               ms(row.outside())});
  };
  std::vector<ProfileRow> small;
  for (const ProfileRow& row : rows) {
    if (row.total() < kShown * sum.total())
      small.push_back(row);
    else
      add(row, fmt::format("{:.0f}", static_cast<double>(row.calls) / count));
  }
  if (!small.empty()) add(sum_of(small, fmt::format("({} more)", small.size())), "");
  add(sum, "");
  return table;
}

nlohmann::json profile_json(const std::vector<ProfileRow>& rows, std::int64_t steps) {
  const auto count = static_cast<double>(std::max<std::int64_t>(steps, 1));
  nlohmann::json list = nlohmann::json::array();
  for (const ProfileRow& row : rows)
    list.push_back({{"name", row.name},
                    {"calls_per_step", static_cast<double>(row.calls) / count},
                    {"forward_ms", row.forward * 1e3 / count},
                    {"backward_ms", row.backward * 1e3 / count},
                    {"flops", row.flops / count},
                    {"bytes", row.bytes / count},
                    {"floor_ms", row.floor * 1e3 / count},
                    {"kernels_ms", row.kernels * 1e3 / count},
                    {"outside_kernels_ms", row.outside() * 1e3 / count}});
  return list;
}

}  // namespace eddy::app
