// Wrappers around the kernels, one for each slot.
#include "train/bench/kernel_meter.h"

#include <type_traits>

#include "ops/op_list.h"

namespace eddy {
namespace {

thread_local KernelObserver* current_observer = nullptr;

// Reports one kernel to the observer, but no kernel inside it.
template <class Call, class Cost>
void observed(const char* name, Call&& call, Cost&& cost) {
  KernelObserver* const observer = current_observer;
  if (observer == nullptr) return call();
  struct Pause {
    KernelObserver* observer;
    explicit Pause(KernelObserver* paused) : observer(paused) { current_observer = nullptr; }
    ~Pause() { current_observer = observer; }
  };
  observer->kernel_begins();
  {
    const Pause pause(observer);
    call();
  }
  observer->kernel_done(name, cost());
}

template <class Args>
Args arguments_of(const Slot<Args>&);

// The wrapper of a slot, and the kernels that the slot held before.
template <auto& slot>
struct Metered {
  using Args = decltype(arguments_of(slot));
  using Function = typename Slot<Args>::Function;
  static inline Function kernel = nullptr, kernel_f64 = nullptr;

  static void run(const Args& args) {
    observed(
        slot.name, [&] { kernel(args); }, [&] { return cost_of(args); });
  }
  static void run_f64(const Args& args) {
    observed(
        slot.name, [&] { kernel_f64(args); }, [&] { return cost_of(args); });
  }

  static void install(DeviceType type) {
    Function& function = slot.function[static_cast<int>(type)];
    kernel = function;
    if (kernel != nullptr) function = run;
    kernel_f64 = type == DeviceType::cpu ? slot.cpu_f64 : nullptr;
    if (kernel_f64 != nullptr) slot.cpu_f64 = run_f64;
  }
  static void restore(DeviceType type) {
    if (kernel != nullptr) slot.function[static_cast<int>(type)] = kernel;
    if (kernel_f64 != nullptr) slot.cpu_f64 = kernel_f64;
  }
};

#define EDDY_MEASURED_KERNELS(ROW) \
  EDDY_ISA_KERNELS(ROW) EDDY_HOST_KERNELS(ROW) EDDY_GPU_KERNELS(ROW) EDDY_CPU_KERNELS(ROW)

void install_meters(DeviceType type) {
#define EDDY_METER(Args, name) Metered<name##_slot>::install(type);
  EDDY_MEASURED_KERNELS(EDDY_METER)
}

void remove_meters(DeviceType type) {
#define EDDY_REMOVE(Args, name) Metered<name##_slot>::restore(type);
  EDDY_MEASURED_KERNELS(EDDY_REMOVE)
}

// Reports the copies of a GPU like kernels.
class MeteredTransfer final : public Transfer {
 public:
  explicit MeteredTransfer(Transfer& original) : original_(original) {}
  Tensor to_device(const Tensor& x, Device device) override {
    Tensor result;
    observed(
        "to_device", [&] { result = original_.to_device(x, device); }, [&] { return KernelCost{}; });
    return result;
  }
  void copy_strided(const Tensor& to, const Tensor& from) override {
    observed(
        "copy", [&] { original_.copy_strided(to, from); }, [&] { return bytes(to.bytes() + from.bytes()); });
  }
  void copy_all(const std::vector<Tensor>& to, const std::vector<Tensor>& from) override {
    std::int64_t moved = 0;
    for (std::size_t i = 0; i < to.size(); ++i) moved += to[i].bytes() + from[i].bytes();
    observed(
        "copy", [&] { original_.copy_all(to, from); }, [&] { return bytes(moved); });
  }
  void add(const Tensor& to, const Tensor& a, const Tensor& b) override {
    observed(
        "add_into", [&] { original_.add(to, a, b); },
        [&] { return bytes(to.bytes() + a.bytes() + b.bytes()); });
  }
  void add_into(const Tensor& to, const Tensor& from) override {
    observed(
        "add_into", [&] { original_.add_into(to, from); },
        [&] { return bytes(2 * to.bytes() + from.bytes()); });
  }
  void fill(const Tensor& x, double value) override {
    observed(
        "fill", [&] { original_.fill(x, value); }, [&] { return bytes(x.bytes()); });
  }
  void cast(const Tensor& to, const Tensor& from) override {
    observed(
        "cast", [&] { original_.cast(to, from); }, [&] { return bytes(to.bytes() + from.bytes()); });
  }

 private:
  static KernelCost bytes(std::int64_t count) { return {0, static_cast<double>(count), false}; }
  Transfer& original_;
};

}  // namespace

ObserveKernels::ObserveKernels(KernelObserver& observer, Device device) : device_(device) {
  install_backends();
  install_meters(device.type);
  if (!(device == kCpu)) {
    original_transfer_ = &transfer(device);
    transfer_ = std::make_unique<MeteredTransfer>(*original_transfer_);
    set_transfer(device.type, transfer_.get());
  }
  current_observer = &observer;
}

ObserveKernels::~ObserveKernels() {
  current_observer = nullptr;
  remove_meters(device_.type);
  if (original_transfer_ != nullptr) set_transfer(device_.type, original_transfer_);
}

}  // namespace eddy
