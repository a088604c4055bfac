// Functions that builds of OpenBLAS export beside CBLAS, and other builds do not.
#pragma once

namespace eddy {

struct OpenBlasFunctions {
  // Take and return one of the buffers that operands are packed into.
  void* (*memory_alloc)(int position);
  void (*memory_free)(void* buffer);
  // Choose kernels for the processor, and leave them; in builds for several processors.
  void (*dynamic_init)();
  void (*dynamic_quit)();
};

// Returns them; null where the program is linked with a BLAS that has none.
OpenBlasFunctions openblas_functions();

}  // namespace eddy
