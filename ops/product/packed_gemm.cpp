// The packed products in use; packed_gemm.isa.cpp and bf16_gemm.isa.cpp hold the kernels.
#include "ops/product/packed_gemm.h"

#include "ops/core/slot.h"
#include "ops/cpu/isa.h"

namespace eddy {
namespace {

constinit PackedGemmKernels full{}, dot{}, amx{};  // the last two round f32 factors
constinit Bf16GemmKernels rounding_kernels{};

}  // namespace

const PackedGemmKernels& packed_gemm_kernels() {
  install_backends();
  if (!rounds_products()) return full;
  return isa_level() == IsaLevel::amx ? amx : dot;
}

const Bf16GemmKernels& bf16_gemm_kernels() {
  install_backends();
  return rounding_kernels;
}

void set_packed_gemm_kernels(const PackedGemmKernels& kernels, const Bf16GemmKernels& rounding) {
  full = kernels;
  rounding_kernels = rounding;
  dot = {rounding.dot, kernels.f64};
  amx = {rounding.amx, kernels.f64};
}

}  // namespace eddy
