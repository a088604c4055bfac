// Dispatch: one slot per kernel, one function per device in it, filled by the backend's install function. A
// CPU build has empty CUDA entries: no stubs and no #ifdef. Kernels take one trivially copyable argument
// struct whose tensors are raw pointers; they never allocate, check or throw.
#pragma once

#include <type_traits>

#include "tensor/device.h"

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

  // Runs the kernel on a device. errors: DeviceError when this build has none for it.
  void operator()(Device device, const Args& args) const {
    const Function& found = function[static_cast<int>(device.type)];
    if (found == nullptr) {
      install_backends();
      if (found == nullptr) detail::empty_slot(name, device);
    }
    found(args);
  }
};

}  // namespace eddy
