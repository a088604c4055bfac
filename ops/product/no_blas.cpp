// A build without OpenBLAS: products that pack both factors, by the kernels of packed_gemm.h.
#include "ops/product/blas.h"
#include "ops/product/packed_gemm.h"

namespace eddy {

using namespace detail;

void detail::multiply_by_blas(const GemmArgs& g, std::int64_t m, std::int64_t n, const void* a, const void* b,
                              void* c) {
  GemmArgs one = g;
  one.m = m;
  one.n = n;
  one.a = a;
  one.b = b;
  one.c = c;
  one.batch = one.outer = 1;
  multiply_packing(one);
}

void reserve_product_memory(int) {}  // what is packed is allocated as tensors are

void detail::prepare_blas() {}

const char* blas_name() {
  return "own kernels";
}

std::string blas_core() {
  return "";
}

std::string blas_build(const std::string&) {
  return "none: Eddy's own kernels";
}

}  // namespace eddy
