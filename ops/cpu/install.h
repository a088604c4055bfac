// The parts of the CPU backend, which ops/install.cpp installs.
#pragma once

#include "ops/cpu/isa.h"

namespace eddy {

// Fills the slots with the kernels of one instruction set; f64 kernels are always the baseline's.
void install_cpu_kernels(IsaLevel level);

// Fills the product slots with OpenBLAS and sets it to one thread: Eddy's own thread pool splits the work.
void install_cpu_products();

// Fill the slots of memory_search and of memory_write.
void install_cpu_memory_search();
void install_cpu_memory_write();

}  // namespace eddy
