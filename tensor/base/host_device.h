// Function qualifiers: EDDY_HOST_DEVICE for code that runs on the CPU and inside CUDA kernels, EDDY_INLINE
// for code that must be inlined everywhere. Kernel sources are compiled once per instruction set; if the
// AVX-512 copy emitted a shared inline function, the linker could pick that function for every processor.
#pragma once

#if defined(__CUDACC__)
#define EDDY_HOST_DEVICE __host__ __device__
#else
#define EDDY_HOST_DEVICE
#endif

#define EDDY_INLINE inline __attribute__((always_inline))
#define EDDY_HD_INLINE EDDY_HOST_DEVICE EDDY_INLINE
