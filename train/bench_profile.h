// Where a step's time goes, by op and by module. The profiler watches the tape (autograd/profile.h): all time
// since the event before belongs to the op that has just finished, so the parts add up to the whole, and what
// runs between ops (copies, allocation, the engine's queue) counts with the op that follows.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "autograd/profile.h"
#include "train/bench.h"

namespace eddy {

// units: seconds, over all steps watched.
struct ProfileRow {
  std::string name;
  std::int64_t calls = 0;
  double forward = 0;
  double backward = 0;
  double total() const { return forward + backward; }
};

class StepProfiler final : public TapeObserver {
 public:
  // Starts the clock of the next event.
  void start();
  // Gives the time since the last event to a part of the step that is no op, e.g. "(optimizer)".
  void mark(const std::string& part);
  void forward_done(const char* op, const Scope* scope) override;
  void backward_done(const Node& node) override;

  // The longest first.
  std::vector<ProfileRow> by_op() const;
  std::vector<ProfileRow> by_module() const;

 private:
  struct Entry {
    std::int64_t calls = 0;
    double forward = 0, backward = 0;
  };
  using Key = std::pair<const char*, const Scope*>;
  struct KeyHash {
    std::size_t operator()(const Key& key) const {
      return std::hash<const void*>()(key.first) * 31 + std::hash<const void*>()(key.second);
    }
  };
  double lap();

  BenchClock::time_point last_ = BenchClock::now();
  std::unordered_map<Key, Entry, KeyHash> entries_;
  std::map<std::string, Entry> parts_;
};

// A table of milliseconds per step: calls, forward, backward, share of the whole.
std::string profile_table(const std::string& head, const std::vector<ProfileRow>& rows, std::int64_t steps);
nlohmann::json profile_json(const std::vector<ProfileRow>& rows, std::int64_t steps);

}  // namespace eddy
