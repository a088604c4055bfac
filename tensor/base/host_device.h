// Function qualifiers and targets: EDDY_HOST_DEVICE for code that runs on the CPU and inside CUDA kernels, EDDY_INLINE
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

// Functions between EDDY_TARGET_BEGIN("avx512bf16") and EDDY_TARGET_END may use these instructions: g++'s pragma
// and clang's.
#define EDDY_PRAGMA(...) _Pragma(#__VA_ARGS__)
#if defined(__clang__)
#define EDDY_TARGET_BEGIN(features) \
  EDDY_PRAGMA(clang attribute push(__attribute__((target(features))), apply_to = function))
#define EDDY_TARGET_END EDDY_PRAGMA(clang attribute pop)
#else
#define EDDY_TARGET_BEGIN(features) EDDY_PRAGMA(GCC push_options) EDDY_PRAGMA(GCC target(features))
#define EDDY_TARGET_END EDDY_PRAGMA(GCC pop_options)
#endif
