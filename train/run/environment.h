// What the program runs on: itself, the compiler, the processor, the libraries. Kept with every run, since
// numbers without it cannot be compared.
#pragma once

#include <string>
#include <vector>

namespace eddy {

// "name: value" lines: version, compiler, build, processor, kernels, threads, BLAS, CUDA, memory, once a GPU
// is open which kernels are chosen there, and what the allocators hold. Installs the backends.
std::vector<std::string> environment_lines();

// The last of them, of the GPU's allocator as it is now; "" where no GPU can be used.
std::string gpu_allocator_line();

// Why products on the CPU are slower than this processor allows, and what to do about it, in words; "" where
// nothing is known against them. Installs the backends.
std::string slow_products();

// GFLOP/s of a square f32 product of `size` rows with all threads: the best of some runs in about half a
// second.
// errors: ValueError when size is not positive; OutOfMemoryError.
double measure_product_gflops(int size = 1024);

}  // namespace eddy
