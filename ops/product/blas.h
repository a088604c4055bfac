// The products that no kernel of Eddy's is chosen for: those of OpenBLAS or Accelerate by CBLAS (cblas.cpp; the memory
// and the kernels of OpenBLAS are in openblas.cpp), or in a build with -DEDDY_BLAS=none of packed_gemm.h (no_blas.cpp).
#pragma once

#include <cstdint>
#include <string>

#include "ops/product/gemm.h"

namespace eddy {

namespace detail {
// Computes one matrix C [m, n] of a product on this thread, with its ReLU.
void multiply_by_blas(const GemmArgs& g, std::int64_t m, std::int64_t n, const void* a, const void* b,
                      void* c);

// Makes the BLAS run each product on the thread that calls it, with the kernels that suit the level in use, now and
// whenever another is chosen.
void prepare_blas();
}  // namespace detail

// Allocates the memory that CPU products need on `threads` threads, besides their operands. A product does so
// itself if needed; a program that calls this at its start learns early if a memory limit is too low.
// errors: OutOfMemoryError, which names the limit and one that would do.
void reserve_product_memory(int threads);

// "OpenBLAS", "Accelerate" or "own kernels".
const char* blas_name();
// The kernels that OpenBLAS has chosen; "" of other products.
std::string blas_core();
// `kernels` is what to say of the chosen ones. The library with its version, these kernels, and how it runs threads.
std::string blas_build(const std::string& kernels);

}  // namespace eddy
