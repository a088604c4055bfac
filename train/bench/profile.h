// Where a step's time goes, by op and by module, beside the least it could take.
//
//   time of an op  =  floor + kernels above it + outside kernels
//
// The profiler watches the tape (autograd/profile.h) and the kernels (kernel_meter.h): whatever happens
// between two events of the tape belongs to the op that has just finished, so the parts add up to the whole.
// A kernel's floor is the longer of its operations at the rate of a large product and its bytes at the rate
// of memory. Outside of kernels are the CPU's copies, allocation, shapes and the tape; on a GPU it is the
// time that it waits for the host.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "autograd/profile.h"
#include "ops/core/device_clock.h"
#include "train/bench/ceilings.h"
#include "train/bench/kernel_meter.h"

namespace eddy {

// What floors are made of.
struct ProfileRates {
  Ceilings ceilings;
  double half_product = 0;  // GFLOP/s of bf16 products; 0: those of the ceilings
};

// units: seconds, over all steps watched.
struct ProfileRow {
  std::string name;
  std::int64_t calls = 0;
  double forward = 0;
  double backward = 0;
  double flops = 0, bytes = 0;  // forward and backward, as kernel_costs.h counts them
  double floor = 0;
  double kernels = 0;  // the part of the time inside kernels
  double total() const { return forward + backward; }
  double above_floor() const { return kernels - floor; }
  double outside() const { return total() - kernels; }
};

class StepProfiler final : public TapeObserver, public KernelObserver {
 public:
  // Times are those of `device`: on a GPU its own clock's.
  StepProfiler(Device device, ProfileRates rates);
  ~StepProfiler() override;

  // Between start and finish lies a step; what comes behind its last op is named by `rest`.
  void start();
  void finish(const char* rest);
  void forward_done(const char* op, const Scope* scope) override;
  void backward_done(const Node& node) override;
  void kernel_begins() override;
  void kernel_done(const char* name, const KernelCost& cost) override;

  // The longest first.
  std::vector<ProfileRow> by_op() const;
  std::vector<ProfileRow> by_module() const;
  std::vector<ProfileRow> by_module_and_op() const;  // "layers.0.mlp linear"
  std::int64_t steps() const { return steps_; }      // finished

 private:
  enum class Kind : std::uint8_t { begin, kernel, forward, backward, rest };
  struct Event {
    Kind kind;
    std::int64_t stamp;
    const char* op = nullptr;
    const Scope* scope = nullptr;
    double flops = 0, bytes = 0, floor = 0;
  };
  using Key = std::pair<const char*, const Scope*>;
  struct KeyHash {
    std::size_t operator()(const Key& key) const {
      return std::hash<const void*>()(key.first) * 31 + std::hash<const void*>()(key.second);
    }
  };
  void mark(Kind kind, const char* op = nullptr, const Scope* scope = nullptr);
  std::vector<ProfileRow> named_rows(const std::function<std::string(const Key&)>& name) const;

  ProfileRates rates_;
  Device device_;
  std::unique_ptr<DeviceClock> clock_;
  std::int64_t begin_ = 0;
  std::vector<Event> events_;  // of the step in hand: read when the device has done it
  std::unordered_map<Key, ProfileRow, KeyHash> rows_;
  std::int64_t steps_ = 0;
};

// Rows of modules with their layers' numbers left out, "layers.*.mlp": what deep models are read by.
std::vector<ProfileRow> over_layers(const std::vector<ProfileRow>& rows);

// A table of milliseconds per step: forward, backward and share of the whole; work and floor; where the rest
// goes. Rows under a thousandth of the whole stand in one line; the last line is the sum.
std::string profile_table(const std::string& head, const std::vector<ProfileRow>& rows, std::int64_t steps);
nlohmann::json profile_json(const std::vector<ProfileRow>& rows, std::int64_t steps);

}  // namespace eddy
