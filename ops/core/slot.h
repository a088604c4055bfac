// Dispatch: one slot per kernel, one function per device in it, filled by the backend's install function. A
// CPU build has empty CUDA entries: no stubs and no #ifdef. In a build with CUDA none is empty: what only the
// CPU needs a kernel for has a CpuSlot. Kernels take one trivially copyable argument struct whose tensors are
// raw pointers; they never allocate, check or throw.
#pragma once

#include <type_traits>

#include "tensor/base/device.h"
#include "tensor/base/dtype.h"
#include "tensor/base/host_device.h"

namespace eddy {

// Fills the slots of every backend in this build, once. Called by the first slot that is found empty.
void install_backends();

namespace detail {
[[noreturn]] void empty_slot(const char* kernel, Device device);
}

template <class Args>
struct Slot {
  static_assert(std::is_trivially_copyable_v<Args>);
  using Function = void (*)(const Args&);

  const char* name;
  Function function[kDeviceTypeCount] = {};
  // The CPU's kernel for f64 when it is apart from function[cpu], which then takes f32 alone; else null.
  Function cpu_f64 = nullptr;

  // Runs the kernel on a device. Kernels call other kernels this way too, so no copy of it may be left behind
  // by one instruction set.
  // errors: DeviceError when this build has none for it.
  EDDY_INLINE void operator()(Device device, const Args& args) const {
    const Function& found = function[static_cast<int>(device.type)];
    if (found == nullptr) {
      install_backends();
      if (found == nullptr) detail::empty_slot(name, device);
    }
    if constexpr (requires { args.dtype; })
      if (args.dtype == Dtype::f64 && device.type == DeviceType::cpu && cpu_f64 != nullptr)
        return cpu_f64(args);
    found(args);
  }
};

// The slot of a kernel that other devices need none of, because the op goes by other ops there: it is the
// CPU's by its type, and never asked for another.
template <class Args>
struct CpuSlot : Slot<Args> {
  EDDY_INLINE void operator()(const Args& args) const { Slot<Args>::operator()(kCpu, args); }
};

}  // namespace eddy
