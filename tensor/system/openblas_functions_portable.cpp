// Looked up by their names, among the symbols of shared libraries.
#include <dlfcn.h>

#include "tensor/system/openblas_functions.h"

namespace eddy {
namespace {

template <class Function>
void look_up(const char* name, Function*& function) {
  function = reinterpret_cast<Function*>(dlsym(RTLD_DEFAULT, name));
}

}  // namespace

OpenBlasFunctions openblas_functions() {
  OpenBlasFunctions found{};
  look_up("blas_memory_alloc", found.memory_alloc);
  look_up("blas_memory_free", found.memory_free);
  look_up("gotoblas_dynamic_init", found.dynamic_init);
  look_up("gotoblas_dynamic_quit", found.dynamic_quit);
  return found;
}

}  // namespace eddy
