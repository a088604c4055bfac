// Recording a step's calls, and timing them.
#include "train/app/measure/alone.h"

#include <functional>
#include <memory>
#include <utility>

#include "ops/backends.h"
#include "ops/core/capture.h"
#include "ops/cost/kernel_observer.h"
#include "tensor/base/error.h"

namespace eddy::app {
namespace {

struct FlopsOfKernels final : KernelObserver {
  double flops = 0;
  void kernel_begins() override {}
  void kernel_done(const char*, const Cost& cost) override { flops += cost.flops; }
};

double flops_of(const std::vector<RecordedCall>& calls) {
  double flops = 0;
  for (const RecordedCall& call : calls) flops += cost_of(call).flops;
  return flops;
}

Timing time_of(std::vector<RecordedCall> calls, Device device, double seconds) {
  if (calls.empty()) return {};
  const RepeatedCalls repeated(std::move(calls), device);
  if (!can_capture(device))
    return measure_on(
        device, [&] { repeated.run(); }, seconds);
  // What a call sets up, it sets up before a capture.
  repeated.run();
  repeated.run();
  synchronize(device);
  const std::unique_ptr<CapturedWork> work = capture(device, [&] { repeated.run(); });
  return measure_on(
      device, [&] { work->replay(); }, seconds);
}

}  // namespace

StepCalls record_calls(StepTrial& trial, Device device) {
  StepCalls calls;
  FlopsOfKernels all;
  RecordCalls record(device);
  {
    const ObserveKernels watch(all, device);
    static_cast<void>(trial.step_uncaptured());
  }
  synchronize(device);
  calls.flops = all.flops;
  for (RecordedCall& call : record.take())
    (is_product(call) ? calls.products : calls.attention).push_back(call);
  return calls;
}

StepAlone time_alone(StepCalls calls, Device device, double seconds) {
  StepAlone alone;
  alone.products = {std::ssize(calls.products), flops_of(calls.products), {}};
  alone.attention = {std::ssize(calls.attention), flops_of(calls.attention), {}};
  const double others = calls.flops - alone.products.flops - alone.attention.flops;
  // Sums in another order differ in their last bits.
  alone.other_flops = others > 1e-9 * calls.flops ? others : 0;
  try {
    alone.products.time = time_of(std::move(calls.products), device, seconds);
    alone.attention.time = time_of(std::move(calls.attention), device, seconds);
  } catch (const Error& error) {
    alone.problem = error.what();
  }
  return alone;
}

}  // namespace eddy::app
