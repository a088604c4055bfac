// Products with GELU in their kernel (ops/product/gemm.h): the kernel, and what it takes. No CUDA header is
// needed to include this.
#pragma once

#include <cstdint>

#include "cuda/runtime/context.h"
#include "ops/product/gemm.h"

namespace eddy::cuda {

// The rows of a tile of results, and the columns of a narrow one.
inline constexpr std::int64_t kGeluTileRows = 128, kGeluTileColumns = 128;

// Enqueues one of the two products, by at most so many blocks, each of which takes a multiprocessor; the result does
// not depend on their number. Returns false, and enqueues nothing, for a product that the kernel does not take.
bool wgmma_gelu_product(const GeluProductArgs& args, bool backward, int most_blocks);

// Returns whether the kernel takes the product: bf16, columns, strides and addresses at multiples of 16 bytes.
bool takes_gelu_product(const GeluProductArgs& args);

}  // namespace eddy::cuda
