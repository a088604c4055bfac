// The packed product in use; packed_gemm.isa.cpp holds the kernels.
#include "ops/product/packed_gemm.h"

#include "ops/core/slot.h"

namespace eddy {
namespace {
constinit PackedGemmKernels in_use{};
}

const PackedGemmKernels& packed_gemm_kernels() {
  install_backends();
  return in_use;
}

void set_packed_gemm_kernels(const PackedGemmKernels& kernels) {
  in_use = kernels;
}

}  // namespace eddy
