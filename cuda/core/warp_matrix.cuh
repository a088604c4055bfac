// The instructions of tensor-core kernels, one function each: matrix products by a warp, loading their
// operands from shared memory, and asynchronous copies into shared memory. For GPUs from 8.0 on.
// source: PTX ISA, "Warp-level matrix instructions" (mma.m16n8k16, mma.m16n8k8, ldmatrix) and "cp.async".
//
// All 32 threads of a warp must call the functions for products and for loading matrices together. With g = lane / 4
// and t = lane % 4 a thread holds, of products of bf16 (a register has two neighbours, the first in the lower half):
//
//   A [16 x 16]  registers 0 .. 3   rows g, g + 8, g, g + 8             columns 2 t, 2 t + 1; + 8 in 2 and 3
//   B [16 x 8]   registers 0, 1     rows 2 t, 2 t + 1; + 8 in 1         column g
//   C [16 x 8]   numbers 0 .. 3     rows g, g, g + 8, g + 8             columns 2 t, 2 t + 1, 2 t, 2 t + 1
//
// and of products of TF32 (f32 with 10 bits of mantissa), whose C is the same:
//
//   A [16 x 8]   registers 0 .. 3   rows g, g + 8, g, g + 8             column t; + 4 in 2 and 3
//   B [8 x 8]    registers 0, 1     row t; + 4 in 1                     column g
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <cstring>

#include "tensor/base/dtype.h"

namespace eddy::cuda {

// sums += a b.
__device__ inline void multiply_matrices(float (&sums)[4], const std::uint32_t (&a)[4], std::uint32_t b0,
                                         std::uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// The same for TF32; all of a and b must come from round_tf32.
__device__ inline void multiply_tf32(float (&sums)[4], const std::uint32_t (&a)[4], std::uint32_t b0,
                                     std::uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// x rounded to the nearest number of TF32, ties away from zero. nvcc makes several instructions of it.
__device__ inline std::uint32_t round_tf32(float x) {
  std::uint32_t rounded;
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(rounded) : "f"(x));
  return rounded;
}

__device__ inline unsigned shared_address(const void* pointer) {
  return static_cast<unsigned>(__cvta_generic_to_shared(pointer));
}

// Loads four 8 x 8 matrices of bf16 from shared memory, one into each register. Lane l passes the address of
// row l % 8 of matrix l / 8: 16 bytes, aligned to 16. A thread gets row g, columns 2 t and 2 t + 1, of each; of 8 x 4
// numbers of 4 bytes row g, column t.
__device__ inline void load_matrices(std::uint32_t (&to)[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(shared_address(row))
               : "memory");
}
// The same, transposed: rows 2 t and 2 t + 1, column g of each.
__device__ inline void load_matrices_transposed(std::uint32_t (&to)[4], const bf16* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(shared_address(row))
               : "memory");
}

// Starts an asynchronous copy of 16 bytes from global to shared memory, both aligned to 16 bytes. If not
// `there`, it writes zeros and does not read `from`.
__device__ inline void start_copy(void* to, const void* from, bool there) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(to)), "l"(from),
               "r"(there ? 16 : 0)
               : "memory");
}
// Waits for this thread's copies. Other threads may read the data after a barrier.
__device__ inline void finish_copies() {
  asm volatile("cp.async.wait_all;" ::: "memory");
}

// Two numbers rounded to bf16, `low` in the lower half.
__device__ inline std::uint32_t pack(float low, float high) {
  std::uint32_t both;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
  return both;
}

// 2^x within two units of the last place; 0 for -infinity, and for results below 2^-126.
__device__ inline float fast_exp2(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// Stores 16 bytes at an aligned address by one instruction, where the compiler would store their parts. Loads may be
// moved across it: nothing may read them back in the same kernel.
template <class T>
__device__ void store_whole(void* to, const T& value) {
  static_assert(sizeof(T) == 16);
  std::uint32_t part[4];
  std::memcpy(part, &value, sizeof part);
  asm volatile("st.v4.b32 [%0], {%1, %2, %3, %4};"
               :
               : "l"(to), "r"(part[0]), "r"(part[1]), "r"(part[2]), "r"(part[3]));
}

}  // namespace eddy::cuda
