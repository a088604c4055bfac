// OpenBLAS: its products, the memory that it takes, and the kernels that it chooses.
#pragma once

#include <cstdint>

#include "ops/product/gemm.h"

namespace eddy {

// Computes one matrix C [m, n] of a product on this thread, with its ReLU.
void multiply_by_openblas(const GemmArgs& g, std::int64_t m, std::int64_t n, const void* a, const void* b,
                          void* c);

// Allocates the memory that CPU products need on `threads` threads, besides their operands. A product does so
// itself if needed; a program that calls this at its start learns early if a memory limit is too low.
// errors: OutOfMemoryError, which names the limit and one that would do.
void reserve_product_memory(int threads);

// Makes OpenBLAS run each product on the thread that calls it, with the kernels that suit the level in use, now and
// whenever another is chosen.
void prepare_openblas();

}  // namespace eddy
