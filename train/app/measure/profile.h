// Where the time of a step goes, by op and by module, beside the least time it could take.
//
//   time of an op = floor + kernels above the floor + outside kernels
//
// The profiler observes the tape (autograd/profile.h) and the kernels (ops/cost/kernel_observer.h). Whatever happens
// between two events of the tape belongs to the op that has just finished, so the parts add up to the whole.
// The floor of a kernel is the longer of its operations at the rate of a large product and its bytes at the
// bandwidth of memory. Time outside kernels is copies, allocation, shapes and the tape on the CPU; on a GPU
// it is the time that the GPU waits for the host.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "autograd/profile.h"
#include "ops/core/device_clock.h"
#include "ops/cost/kernel_observer.h"
#include "train/app/measure/ceilings.h"
#include "train/app/measure/measurement.h"

namespace eddy::app {

// The rates that floors are computed with.
struct ProfileRates {
  Ceilings ceilings;
  double half_product = 0;  // GFLOP/s of bf16 products; 0: that of the ceilings
};

// The time and work of one op or module.
// units: seconds, over all profiled steps.
struct ProfileRow {
  std::string name;
  std::int64_t calls = 0;
  double forward = 0;
  double backward = 0;
  double flops = 0, bytes = 0;  // forward and backward, as ops/cost/kernel_costs.h counts them
  double floor = 0;
  double kernels = 0;  // the part of the total time inside kernels
  double total() const { return forward + backward; }
  double above_floor() const { return kernels - floor; }
  double outside() const { return total() - kernels; }
};

class StepProfiler final : public TapeObserver, public KernelObserver {
 public:
  // Measures times on `device`, with its own clock on a GPU.
  StepProfiler(Device device, ProfileRates rates);
  ~StepProfiler() override;

  // A step lies between start and finish. What follows its last op is named by `rest`.
  void start();
  void finish(const char* rest);
  void forward_done(const char* op, const Scope* scope) override { mark(Kind::forward, op, scope); }
  void backward_done(const Node& node) override;
  void kernel_begins() override { mark(Kind::begin); }
  void kernel_done(const char* name, const Cost& cost) override;

  // Each returns its rows, longest first.
  std::vector<ProfileRow> by_op() const;
  std::vector<ProfileRow> by_module() const;
  std::int64_t steps() const { return steps_; }  // finished

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
  std::vector<Event> events_;  // of the current step; read when the device has finished it
  std::unordered_map<Key, ProfileRow, KeyHash> rows_;
  std::int64_t steps_ = 0;
};

// Returns the rows of modules summed over layers, with their numbers replaced: "layers.*.mlp".
std::vector<ProfileRow> over_layers(const std::vector<ProfileRow>& rows);

// Returns a table in milliseconds per step: forward, backward, share of the whole, work, floor, and where the
// rest goes. Rows under a thousandth of the whole share one line; the last line is the sum.
MeasuredTable profile_table(const std::string& head, const std::vector<ProfileRow>& rows, std::int64_t steps);
nlohmann::json profile_json(const std::vector<ProfileRow>& rows, std::int64_t steps);

}  // namespace eddy::app
