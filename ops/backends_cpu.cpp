// What ops/backends.h and ops/core/capture.h, device_clock.h, peers.h and product_algorithms.h promise, in a build
// without CUDA. In a build with CUDA cuda/backends.cpp and cuda/runtime/product_algorithms.cpp stand in its place.
#include "ops/backends.h"
#include "ops/core/capture.h"
#include "ops/core/device_clock.h"
#include "ops/core/peers.h"
#include "ops/core/product_algorithms.h"
#include "tensor/base/format.h"

namespace eddy {

std::string cuda_status() {
  return "not in this build";
}

Device cuda_device(int index) {
  fail<DeviceError>(
      "cuda: GPU {} asked for and this build has no CUDA (build Eddy from its source, configured with "
      "-DEDDY_CUDA=ON, or compute on the cpu)",
      index);
}

std::string gpu_kind() {
  return "";
}

std::vector<std::string> measure_gpu() {
  return {};
}

std::optional<GpuMemory> gpu_memory() {
  return std::nullopt;
}

void synchronize(Device) {}

std::unique_ptr<DeviceClock> device_clock(Device) {
  return nullptr;
}

std::optional<GpuKernels> gpu_kernels() {
  return {};
}

std::string gpu_identity() {
  return "";
}

ProductAlgorithms product_algorithms() {
  return {};
}

void set_product_algorithms(const ProductAlgorithms& algorithms) {
  if (!algorithms.empty())
    fail<DeviceError>("product algorithms: they are of {}, and this build has no CUDA", algorithms.front());
}

ProductTiming::ProductTiming(const ProductAlgorithms&) {}

ProductTiming::~ProductTiming() = default;

ProductAlgorithms ProductTiming::known() const {
  return {};
}

std::string ProductTiming::summary() const {
  return "";
}

void install_cuda_backend() {}

const char* backend_names() {
  return "cpu";
}

bool can_capture(Device) {
  return false;
}

std::unique_ptr<CapturedWork> capture(Device device, const std::function<void()>&) {
  fail<DeviceError>("capture: the {} records no work", to_string(device));
}

bool capturing() {
  return false;
}

void keep_for_capture(const Tensor&) {}

std::string why_no_peers() {
  return "this build has no CUDA";
}

PeersId make_peers_id() {
  fail<DeviceError>("peers: {}", why_no_peers());
}

std::unique_ptr<Peers> join_peers(const PeersId&, int, int, double, std::function<std::string(int)>) {
  fail<DeviceError>("peers: {}", why_no_peers());
}

}  // namespace eddy
