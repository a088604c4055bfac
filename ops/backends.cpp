// The one place that knows whether CUDA was built in.
#include "ops/backends.h"

#include "ops/slot.h"
#include "tensor/format.h"

#if defined(EDDY_HAS_CUDA)
#include "cuda/context.h"
#include "cuda/device.h"
#include "cuda/gemm.h"
#include "cuda/install.h"
#include "cuda/measure.h"
#endif

namespace eddy {

#if defined(EDDY_HAS_CUDA)

std::string cuda_status() {
  return cuda::status() + "; cuBLASLt " + cuda::product_library_version();
}

Device cuda_device(int index) {
  install_backends();
  cuda::use_device(index);
  cuda::open();
  return {DeviceType::cuda, index};
}

std::vector<std::string> measure_gpu() {
  install_backends();
  try {
    return cuda::measure();
  } catch (const DeviceError& error) {
    return {error.what()};
  }
}

void synchronize(Device device) {
  if (device.type == DeviceType::cuda) cuda::synchronize();
}

void set_tf32(bool on) {
  cuda::set_tf32(on);
}

void install_cuda_backend() {
  cuda::install();
}

const char* backend_names() {
  return "cpu, cuda";
}

#else

std::string cuda_status() {
  return "not in this build";
}

Device cuda_device(int index) {
  fail<DeviceError>(
      "cuda: GPU {} asked for and this build has no CUDA (configure with -DEDDY_CUDA=ON, or compute on "
      "the cpu)",
      index);
}

std::vector<std::string> measure_gpu() {
  return {};
}

void synchronize(Device) {}

void set_tf32(bool) {}

void install_cuda_backend() {}

const char* backend_names() {
  return "cpu";
}

#endif

}  // namespace eddy
