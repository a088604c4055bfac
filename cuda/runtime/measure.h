// Speeds of the GPU for `eddy info --measure`. No CUDA header is needed to include this.
#pragma once

#include <string>
#include <vector>

namespace eddy::cuda {

// Returns "name: value" lines: the rates of products in each precision and of a copy, and how many clusters of blocks
// fit. Takes some tenths of a
// second and half a gigabyte.
// errors: DeviceError, OutOfMemoryError.
std::vector<std::string> measure();

}  // namespace eddy::cuda
