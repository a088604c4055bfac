// The environment of a run: program, compiler, processor, libraries. Every run keeps it, since measurements
// cannot be compared without it.
#pragma once

#include <string>
#include <vector>

namespace eddy::training {

// "name: value" lines: version, compiler, build, processor, kernels, threads, BLAS, CUDA, memory, the kernels
// chosen for an open GPU, and what the allocators hold. Installs the backends.
std::vector<std::string> environment_lines();

// OpenBLAS: its version, the kernels that it uses, how it runs threads; or that there is none. Bits depend on them.
std::string blas_in_use();

// The shared libraries of this process, those that it links before those that they link, each by the name of its file:
// "libfmt.so.9.1.0". None where the system does not tell.
std::vector<std::string> shared_libraries();

// The line on the GPU's allocator as it is now; "" without a usable GPU.
std::string gpu_allocator_line();

// Why matrix products on the CPU are slower than this processor allows, and what to do about it; "" when no
// reason is known. Installs the backends.
std::string slow_matmul_reason();

}  // namespace eddy::training
