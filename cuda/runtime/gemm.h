// Matrix products on the GPU by cuBLASLt. No CUDA header is needed to include this.
#pragma once

#include <string>

#include "ops/product/gemm.h"

namespace eddy::cuda {

// A product as the gemm slot takes it, with the types apart: C may be wider than A and B.
//   A, B     C           sums in
//   f32      f32         f32, exactly (or from inputs rounded to TF32, where that was asked for)
//   bf16     f32, bf16   f32
// `args.dtype` is the type of A and B. beta adds into C, so gradients of bf16 products gather in f32.
struct Product {
  GemmArgs args;
  Dtype c_dtype;
};

// Runs it.
// errors: DtypeError for other types; DeviceError when cuBLASLt has no algorithm or fails.
void multiply(const Product& product);

// Whether f32 products may round their inputs to TF32 (10 bits of mantissa): several times the speed on
// tensor cores for errors of up to 1e-3. Off at the start: what is called f32 is f32.
void set_tf32(bool on);
bool tf32();

// Whether products may do more than multiply where cuBLASLt has an algorithm for it (GemmArgs::sums and
// mask). Off at the start.
void set_fused_products(bool on);
bool fused_products();

// Destroys all plans, the handle and the workspace; the next product makes them again.
void forget_product_plans();
// "13.0.2".
std::string product_library_version();

// Fills the gemm slot and that of the question about it.
void install_gemm();

}  // namespace eddy::cuda
