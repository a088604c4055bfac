// Where a program computes, and in what: the device and the precision that a user named, checked against each
// other before a GPU is opened.
#pragma once

#include <string>

#include "tensor/base/device.h"
#include "tensor/base/dtype.h"

namespace eddy {

struct Placement {
  Device device = kCpu;
  Dtype dtype = Dtype::f32;
};

// Who asks, and the names under which the user chose, for errors: {"eval", "--device", "--precision"}.
struct PlacementNames {
  const char* program;
  const char* device;
  const char* precision;
};

// The device "cpu" or "cuda" and the dtype of the precision "f32", "bf16", "tf32" or "f64". A GPU is opened,
// and its products are told whether they may round their inputs to TF32.
// errors: ConfigError for another name, and for a precision that the device does not have; DeviceError when
// there is no GPU to use, with what to do.
Placement choose_placement(const PlacementNames& names, const std::string& device,
                           const std::string& precision);

// What to tell of a run that was trained in one precision and is computed in another: ", trained in bf16";
// nothing when they are the same.
std::string trained_in(const std::string& trained, const std::string& chosen);

}  // namespace eddy
