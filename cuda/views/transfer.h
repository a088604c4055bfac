// Copies, sums, fills and casts of GPU tensors. No CUDA header is needed to include this.
#pragma once

#include "tensor/transfer.h"

namespace eddy::cuda {

// Returns the transfer for set_transfer. It touches no GPU before its first use.
Transfer& device_transfer();

}  // namespace eddy::cuda
