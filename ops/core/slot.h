// Dispatch: each kernel has a slot with one function per device, which the backend's install function fills.
// A CPU build leaves the CUDA entries empty: it needs no stubs and no #ifdef. A build with CUDA fills them
// all; a kernel only for the CPU has a CpuSlot. Kernels take one trivially copyable argument struct whose
// tensors are raw pointers; they never allocate, check or throw.
#pragma once

#include <type_traits>

#include "tensor/base/device.h"
#include "tensor/base/dtype.h"
#include "tensor/base/host_device.h"

namespace eddy {

// Fills the slots of every backend in this build, once. The first call through an empty slot calls it.
void install_backends();

namespace detail {
[[noreturn]] void empty_slot(const char* kernel, Device device);
}

// The slot of a kernel with these arguments.
template <class Args>
struct Slot {
  static_assert(std::is_trivially_copyable_v<Args>);
  // A kernel.
  using Function = void (*)(const Args&);

  // The kernel's name for error texts, and its function on each type of device; null where there is none.
  const char* name;
  Function function[kDeviceTypeCount] = {};
  // The CPU's f64 kernel; function[cpu] then takes only f32. Null if function[cpu] takes both.
  Function cpu_f64 = nullptr;

  // Runs the kernel on a device. Always inlined, because kernels call other kernels this way and no
  // instruction set may emit a shared copy (tensor/base/host_device.h).
  // errors: DeviceError when this build has no kernel for the device.
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

// The slot of a kernel that only the CPU has. On other devices the op is composed of other ops.
template <class Args>
struct CpuSlot : Slot<Args> {
  // Runs the kernel.
  EDDY_INLINE void operator()(const Args& args) const { Slot<Args>::operator()(kCpu, args); }
};

}  // namespace eddy
