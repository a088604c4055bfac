// The parts of the CPU backend that dispatch.cpp installs besides the kernels of the instruction sets.
#pragma once

namespace eddy {

// Fills the product slots with OpenBLAS and sets it to one thread: the project's own threads share out the
// work.
void install_cpu_products();

// Fills the slots of the search in a memory, and of writing into one.
void install_cpu_memory_search();
void install_cpu_memory_write();

}  // namespace eddy
