// The device and the precision that a user chose, checked against each other before a GPU is opened.
#pragma once

#include <string>

#include "tensor/base/device.h"
#include "tensor/base/dtype.h"

namespace eddy {

struct DevicePrecision {
  Device device = kCpu;
  Dtype dtype = Dtype::f32;
};

// For error texts: the program, and the names of its two options: {"eval", "--device", "--precision"}.
struct DevicePrecisionNames {
  const char* program;
  const char* device;
  const char* precision;
};

// The device "cpu" or "cuda" and the dtype of the precision "f32", "bf16", "tf32" or "f64". For "cuda" the
// GPU is opened, and TF32 rounding of the inputs of matrix products is switched on or off.
// errors: ConfigError for another name, and for a precision that the device does not support; DeviceError
// when there is no usable GPU, with what to do.
DevicePrecision choose_device_precision(const DevicePrecisionNames& names, const std::string& device,
                                        const std::string& precision);

// A note on a run that computes in another precision than it was trained in: ", trained in bf16"; "" when
// they are the same.
std::string precision_note(const std::string& trained, const std::string& chosen);

}  // namespace eddy
