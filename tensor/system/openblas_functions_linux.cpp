// Weak symbols, which the linker finds in shared and static libraries.
#include "tensor/system/openblas_functions.h"

extern "C" {
void* blas_memory_alloc(int position) __attribute__((weak));
void blas_memory_free(void* buffer) __attribute__((weak));
void gotoblas_dynamic_init(void) __attribute__((weak));
void gotoblas_dynamic_quit(void) __attribute__((weak));
}

namespace eddy {

OpenBlasFunctions openblas_functions() {
  return {blas_memory_alloc, blas_memory_free, gotoblas_dynamic_init, gotoblas_dynamic_quit};
}

}  // namespace eddy
