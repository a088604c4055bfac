// Matrix products on the GPU by cuBLASLt. No CUDA header is needed to include this.
#pragma once

#include <string>

#include "ops/product/gemm.h"

namespace eddy::cuda {

// Enqueues the product. beta accumulates into C, so gradients of bf16 products can accumulate in f32.
//
//   A, B     C           sums in
//   f32      f32         f32, from exact inputs, or at a coarser precision from inputs rounded to TF32
//   bf16     f32, bf16   f32
//
// errors: DtypeError for other types; DeviceError when cuBLASLt has no algorithm or fails.
void gemm(const detail::GemmArgs& args);

// Destroys all plans, the handle and the workspace; the next product creates them again.
void forget_product_plans();
// Returns the version of cuBLASLt, for example "13.0.2".
std::string product_library_version();

}  // namespace eddy::cuda
