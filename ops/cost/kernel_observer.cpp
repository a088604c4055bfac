// Wrappers around the kernels, one for each slot, and the kernels of the counting device, which report and do
// nothing.
#include "ops/cost/kernel_observer.h"

#include "autograd/scope.h"
#include "ops/core/cpu_path.h"
#include "ops/cost/counting.h"
#include "ops/cost/counting_allocator.h"
#include "ops/cost/kernel_costs.h"
#include "ops/cost/slot_wrapper.h"
#include "tensor/base/format.h"
#include "tensor/memory/allocator.h"

namespace eddy {

using namespace detail;

namespace {

thread_local KernelObserver* current_observer = nullptr;

// Reports one kernel to the observer, but no kernel inside it.
template <class Call, class Work>
void observed(const char* name, Call&& call, Work&& work) {
  KernelObserver* const observer = current_observer;
  if (observer == nullptr) return call();
  observer->kernel_begins();
  {
    const detail::Setting<KernelObserver*> paused(current_observer, nullptr);
    call();
  }
  observer->kernel_done(name, work());
}

// Reports a kernel that runs in a slot.
struct Metering {
  template <class Args>
  static void run(const char* name, const Args& args, void (*kernel)(const Args&)) {
    observed(
        name, [&] { kernel(args); }, [&] { return work::cost_of(args); });
  }
};

// The kernel of a slot on the counting device.
template <auto& slot>
void count_kernel(const decltype(arguments_of(slot))& args) {
  observed(
      slot.name, [] {}, [&] { return work::cost_of(args); });
}

#define EDDY_MEASURED_KERNELS(ROW) \
  EDDY_ISA_KERNELS(ROW) EDDY_HOST_KERNELS(ROW) EDDY_GPU_KERNELS(ROW) EDDY_CPU_KERNELS(ROW)

// Has the slots of a device report their kernels, and no longer.
void install_meters(DeviceType type) {
#define EDDY_METER(Args, name) WrappedSlot<name##_slot, Metering>::install(type);
  EDDY_MEASURED_KERNELS(EDDY_METER)
}
void remove_meters(DeviceType type) {
#define EDDY_REMOVE(Args, name) WrappedSlot<name##_slot, Metering>::restore(type);
  EDDY_MEASURED_KERNELS(EDDY_REMOVE)
}

// Fills the slots of the counting device. It answers no to the queries for a fused kernel: ops are composed.
void install_counters() {
  constexpr int kCounting = static_cast<int>(DeviceType::counting);
#define EDDY_COUNT(Args, name) name##_slot.function[kCounting] = count_kernel<name##_slot>;
  EDDY_MEASURED_KERNELS(EDDY_COUNT)
#define EDDY_ANSWER_NO(Args, name) name##_slot.function[kCounting] = [](const Args&) {};
  EDDY_GPU_QUERIES(EDDY_ANSWER_NO)
}

// Reports the copies of a device like kernels, and has another transfer do them; null: nothing does.
class MeteredTransfer final : public Transfer {
 public:
  explicit MeteredTransfer(Transfer* original) : original_(original) {}
  Tensor to_device(const Tensor& x, Device device) override {
    if (original_ == nullptr) return without_values(x, device);
    Tensor result;
    observed(
        "to_device", [&] { result = original_->to_device(x, device); }, [] { return Cost{}; });
    return result;
  }
  void copy_strided(const Tensor& to, const Tensor& from) override {
    report("copy", to.bytes() + from.bytes(), [&] { original_->copy_strided(to, from); });
  }
  void copy_all(const std::vector<Tensor>& to, const std::vector<Tensor>& from) override {
    std::int64_t moved = 0;
    for (std::size_t i = 0; i < to.size(); ++i) moved += to[i].bytes() + from[i].bytes();
    report("copy", moved, [&] { original_->copy_all(to, from); });
  }
  void add(const Tensor& to, const Tensor& a, const Tensor& b) override {
    report("add_into", to.bytes() + a.bytes() + b.bytes(), [&] { original_->add(to, a, b); });
  }
  void add_into(const Tensor& to, const Tensor& from) override {
    report("add_into", 2 * to.bytes() + from.bytes(), [&] { original_->add_into(to, from); });
  }
  void fill(const Tensor& x, double value) override {
    report("fill", x.bytes(), [&] { original_->fill(x, value); });
  }
  void cast(const Tensor& to, const Tensor& from) override {
    report("cast", to.bytes() + from.bytes(), [&] { original_->cast(to, from); });
  }
  std::unique_ptr<HostCopy> make_host_copy() override {
    return original_ != nullptr ? original_->make_host_copy() : nullptr;
  }

 private:
  template <class Call>
  void report(const char* name, std::int64_t bytes, Call&& call) {
    observed(
        name,
        [&] {
          if (original_ != nullptr) call();
        },
        [&] {
          return Cost{0, static_cast<double>(bytes)};
        });
  }
  static Tensor without_values(const Tensor& x, Device device) {
    if (device.type == DeviceType::counting) return Tensor::empty(x.shape(), x.dtype(), device);
    fail<DeviceError>(
        "counting: the values of {} of {} are read on the {} (a counting tensor has none: keep them on the "
        "device, or compute with a bound in place of them)",
        to_string(x.shape()), dtype_name(x.dtype()), to_string(device));
  }

  Transfer* original_;
};

}  // namespace

ObserveKernels::ObserveKernels(KernelObserver& observer, Device device) : device_(device) {
  install_backends();
  install_meters(device.type);
  if (device != kCpu) {
    original_transfer_ = &transfer(device);
    transfer_ = std::make_unique<MeteredTransfer>(original_transfer_);
    set_transfer(device.type, transfer_.get());
  }
  current_observer = &observer;
}

ObserveKernels::~ObserveKernels() {
  current_observer = nullptr;
  remove_meters(device_.type);
  if (original_transfer_ != nullptr) set_transfer(device_.type, original_transfer_);
}

Device counting_device(DeviceType counted_for) {
  static const bool installed = [] {
    install_backends();
    // They live to the end: tensors may be freed by static destructors.
    set_allocator(DeviceType::counting, new CountingAllocator);
    set_transfer(DeviceType::counting, new MeteredTransfer(nullptr));
    install_counters();
    return true;
  }();
  static_cast<void>(installed);
  return counted_for == DeviceType::cpu ? kCountingForCpu : Device{DeviceType::counting};
}

Cost counted(const std::function<void()>& run) {
  struct Sum final : KernelObserver {
    Cost cost;
    void kernel_begins() override {}
    void kernel_done(const char*, const Cost& more) override { cost += more; }
  } sum;
  const detail::Setting<KernelObserver*> observer(current_observer, &sum);
  run();
  return sum.cost;
}

}  // namespace eddy
