// Maps of tensors for copies of boxes by the GPU's own unit (TMA; cuda/core/bulk_copy.cuh). Host code: g++ reads it
// too.
// source: CUDA driver API, "Tensor Map Object Management", cuTensorMapEncodeTiled.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <optional>

namespace eddy::cuda {

using TensorMap = CUtensorMap;
inline constexpr int kMapAxes = 4;

// A tensor of bf16. The numbers of axis 0 are neighbours; strides[i] are numbers between neighbours along axis i + 1.
struct MappedTensor {
  const void* start;
  std::int64_t sizes[kMapAxes], strides[kMapAxes - 1];
  int box[kMapAxes];  // what a copy takes of each axis; box[0] is 64, the 128 bytes of the swizzle
};

// Returns the map with a swizzle of 128 bytes: piece c of 16 bytes of row r of a box goes to place c XOR r % 8. What
// lies outside of the tensor arrives as zeros. Returns nothing if the driver has no such map: for a start or strides
// that are not multiples of 16 bytes, an axis without numbers, or strides that are not above 0.
// errors: DeviceError if the driver lacks the function.
std::optional<TensorMap> map_of(const MappedTensor& tensor);

}  // namespace eddy::cuda
