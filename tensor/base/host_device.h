// Marks for code that runs on the CPU and inside CUDA kernels, and for code that must leave no out-of-line
// copy: kernel sources are compiled once per instruction set, and a shared inline function emitted from the
// AVX-512 copy would be picked by the linker for every processor.
#pragma once

#if defined(__CUDACC__)
#define EDDY_HOST_DEVICE __host__ __device__
#else
#define EDDY_HOST_DEVICE
#endif

#define EDDY_INLINE inline __attribute__((always_inline))
#define EDDY_HD_INLINE EDDY_HOST_DEVICE EDDY_INLINE
