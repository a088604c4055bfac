// Copies, sums, fills and casts of the GPU's tensors. No CUDA header is needed to include this.
#pragma once

#include "tensor/transfer.h"

namespace eddy::cuda {

// For set_transfer. Touches no GPU before its first use.
Transfer& device_transfer();

}  // namespace eddy::cuda
