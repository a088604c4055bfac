// Marks in the stream, made of CUDA events.
#include "cuda/runtime/event_clock.h"

#include <vector>

#include "cuda/runtime/stream.cuh"

namespace eddy::cuda {
namespace {

class EventClock final : public DeviceClock {
 public:
  EventClock() { stream(); }
  ~EventClock() override {
    for (const cudaEvent_t event : events_) cudaEventDestroy(event);
  }

  std::int64_t stamp() override {
    if (used_ == events_.size()) {
      cudaEvent_t event = nullptr;
      check(cudaEventCreate(&event), "cudaEventCreate");
      events_.push_back(event);
    }
    check(cudaEventRecord(events_[used_], stream()), "cudaEventRecord");
    return static_cast<std::int64_t>(used_++);
  }

  double seconds(std::int64_t from, std::int64_t to) override {
    float ms = 0;
    const cudaEvent_t last = events_.at(static_cast<std::size_t>(to));
    check(cudaEventSynchronize(last), "cudaEventSynchronize");
    check(cudaEventElapsedTime(&ms, events_.at(static_cast<std::size_t>(from)), last),
          "cudaEventElapsedTime");
    return static_cast<double>(ms) * 1e-3;
  }

  void clear() override { used_ = 0; }

 private:
  std::vector<cudaEvent_t> events_;
  std::size_t used_ = 0;
};

}  // namespace

std::unique_ptr<DeviceClock> make_event_clock() {
  return std::make_unique<EventClock>();
}

}  // namespace eddy::cuda
