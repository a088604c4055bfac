// A wrapper in a slot (ops/core/slot.h), which hands the kernel's name and arguments to an observer before it runs.
#pragma once

#include "ops/core/slot.h"

namespace eddy::detail {

template <class Args>
Args arguments_of(const Slot<Args>&);

// The wrappers of a slot, and the kernels that the slot held before. They call Observer::run(name, args, kernel), which
// runs the kernel.
template <auto& slot, class Observer>
struct WrappedSlot {
  using Args = decltype(arguments_of(slot));
  using Function = typename Slot<Args>::Function;
  static inline Function kernel = nullptr, kernel_f64 = nullptr;

  static void run(const Args& args) { Observer::run(slot.name, args, kernel); }
  static void run_f64(const Args& args) { Observer::run(slot.name, args, kernel_f64); }

  // Wraps the kernels of a type of device; a slot without one stays empty.
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

}  // namespace eddy::detail
