// The parts of the CPU backend, which ops/install.cpp installs.
#pragma once

#include "ops/cpu/isa.h"

namespace eddy {

// Fills the slots with the kernels of one instruction set; f64 kernels are those of the baseline.
void install_cpu_kernels(IsaLevel level);

// Fills the product slots with OpenBLAS and sets it to one thread: the project's own threads share out the
// work.
void install_cpu_products();

// Fills the slots of the search in a memory, and of writing into one.
void install_cpu_memory_search();
void install_cpu_memory_write();

}  // namespace eddy
