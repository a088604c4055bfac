// A fault in the attention kernel of one choice, for tests of what tries kernels: EDDY_PLANTED=KERNEL:FAULT, where
// FAULT is wrong (scores are scaled by a little more), crash (the process aborts) or hang (the call does not return).
#pragma once

#include <unistd.h>

#include <cstdlib>
#include <string>

#include "cuda/attention/attention_tensor_core.h"
#include "ops/attention/attention.h"
#include "ops/backends.h"

namespace eddy::gpu_test {

struct PlantedFault {
  Slot<detail::AttentionArgs>::Function sound = nullptr;
  std::string kernel, fault;
};
inline PlantedFault& planted_fault() {
  static PlantedFault planted;
  return planted;
}

inline void faulty_attention(const detail::AttentionArgs& args) {
  const PlantedFault& planted = planted_fault();
  detail::AttentionArgs changed = args;
  if (detail::kernel_name(cuda::attention_kernel(args)) == planted.kernel) {
    if (planted.fault == "crash") std::abort();
    while (planted.fault == "hang") ::pause();
    changed.scale *= 1.1;
  }
  planted.sound(changed);
}

// Plants what EDDY_PLANTED says, if it is set.
inline void plant_fault() {
  const char* const text = std::getenv("EDDY_PLANTED");
  if (text == nullptr) return;
  install_backends();
  auto& slot = detail::attention_forward_slot.function[static_cast<int>(DeviceType::cuda)];
  const std::string words(text);
  planted_fault() = {slot, words.substr(0, words.find(':')), words.substr(words.find(':') + 1)};
  slot = faulty_attention;
}

}  // namespace eddy::gpu_test
