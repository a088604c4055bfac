// Accelerate, Apple's framework: what it is asked for beside its products, which are in cblas.cpp. This was compiled
// for macOS and never run.
#include <stdlib.h>

#include "ops/product/blas.h"

namespace eddy {

void detail::prepare_blas() {
  // Each product runs on the thread that calls it. Accelerate reads this at its first product. A user's value stays.
  ::setenv("VECLIB_MAXIMUM_THREADS", "1", 0);
}

void reserve_product_memory(int) {}

const char* blas_name() {
  return "Accelerate";
}

std::string blas_core() {
  return "";
}

std::string blas_build(const std::string&) {
  return "Accelerate";
}

}  // namespace eddy
