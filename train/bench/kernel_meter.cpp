// Wrappers around the kernels, one for each slot.
#include "train/bench/kernel_meter.h"

#include <type_traits>

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

template <auto&... slots>
struct MeteredSlots {
  static void install(DeviceType type) { (Metered<slots>::install(type), ...); }
  static void restore(DeviceType type) { (Metered<slots>::restore(type), ...); }
};

// A kernel that is not among these counts as time outside kernels.
using AllSlots = MeteredSlots<
    gemm_slot, attention_forward_slot, attention_backward_slot, window_attention_forward_slot,
    window_attention_backward_slot, unit_recurrence_forward_slot, unit_recurrence_backward_slot,
    block_forget_forward_slot, block_forget_backward_slot, block_accumulate_forward_slot,
    block_accumulate_backward_slot, embedding_forward_slot, embedding_backward_slot, gather_forward_slot,
    gather_backward_slot, layer_norm_forward_slot, layer_norm_backward_slot, rms_norm_forward_slot,
    rms_norm_backward_slot, unit_norm_forward_slot, unit_norm_backward_slot, dropout_slot, tiled_dropout_slot,
    sum_slot, partial_sums_slot, max_forward_slot, max_backward_slot, cross_entropy_forward_slot,
    cross_entropy_mean_slot, cross_entropy_rows_slot, cross_entropy_backward_slot, lstm_cell_forward_slot,
    lstm_cell_backward_slot, rotary_slot, gate_forward_slot, gate_backward_slot, softmax_forward_slot,
    softmax_backward_slot, log_softmax_forward_slot, log_softmax_backward_slot, memory_mark_slot,
    memory_take_slot, memory_write_slot, adam_slot, l2_norm_slot, scale_slot, adafactor_slot,
    unary_forward_slot, unary_backward_slot, binary_slot, where_slot>;

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
  AllSlots::install(device.type);
  if (!(device == kCpu)) {
    original_transfer_ = &transfer(device);
    transfer_ = std::make_unique<MeteredTransfer>(*original_transfer_);
    set_transfer(device.type, transfer_.get());
  }
  current_observer = &observer;
}

ObserveKernels::~ObserveKernels() {
  current_observer = nullptr;
  AllSlots::restore(device_.type);
  if (original_transfer_ != nullptr) set_transfer(device_.type, original_transfer_);
}

}  // namespace eddy
