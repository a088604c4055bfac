// Which precisions each device supports.
#include "train/config/run_config.h"

#include <functional>
#include <utility>

#include "ops/backends.h"
#include "tensor/base/format.h"

namespace eddy::training {
namespace {

std::function<void()>& first_gpu_use() {
  static std::function<void()> run;
  return run;
}

}  // namespace

void on_first_gpu_use(std::function<void()> run) {
  first_gpu_use() = std::move(run);
}

DevicePrecision choose_device_precision(const DevicePrecisionNames& names, const std::string& device,
                                        const std::string& precision) {
  DevicePrecision chosen;
  chosen.dtype = precision_dtype(precision);
  const auto choice = value_named<DeviceChoice>(device);
  if (!choice)
    fail<ConfigError>("{}: {} is {:?} ({})", names.program, names.device, device,
                      value_choice<DeviceChoice>());
  const bool on_gpu = choice == DeviceChoice::cuda;
  const Precision wanted = value_named<Precision>(precision).value();  // precision_dtype refuses others
  if (on_gpu && chosen.dtype == Dtype::f64)
    fail<ConfigError>("{}: {} is f64 and {} cuda (f64 is for the CPU; choose f32, tf32 or bf16)",
                      names.program, names.precision, names.device);
  if (!on_gpu && wanted == Precision::tf32)
    fail<ConfigError>("{}: {} is tf32 and {} cpu (tf32 is for a GPU; choose f32, bf16 or f64)", names.program,
                      names.precision, names.device);
  if (on_gpu) {
    if (const auto run = std::exchange(first_gpu_use(), nullptr)) run();
    chosen.device = cuda_device();
  }
  // With bf16 only the products of recurrences remain in f32, and TF32 is still more precise than bf16.
  if (on_gpu && (wanted == Precision::tf32 || chosen.dtype == Dtype::bf16))
    chosen.matmul = MatmulPrecision::tf32;
  // On the CPU bf16 is f32 whose products round their factors, where the processor has such products.
  if (!on_gpu && wanted == Precision::bf16 && rounds_to_bf16(MatmulPrecision::bf16))
    chosen = {kCpu, Dtype::f32, MatmulPrecision::bf16};
  return chosen;
}

std::string precision_note(const std::string& trained, const std::string& chosen) {
  return trained == chosen ? "" : ", trained in " + trained;
}

}  // namespace eddy::training
