// The instructions of a warpgroup (4 warps that multiply together), one function each: wgmma and its ordering
// instructions. For sm_90a alone, GPUs of compute capability 9.0.
// source: PTX ISA 9.0, "Asynchronous Warpgroup Level Matrix Multiply-Accumulate Instructions".
//
// A warpgroup is 128 threads that start at a multiple of 128. All of them must call these functions together,
// with the same descriptors.
//
//   C [64 x N] += A [64 x 16] B [16 x N]
//
// Warp w has rows 16 w .. 16 w + 15 of A and C. Within them a thread holds what cuda/core/warp_matrix.cuh
// says of A and C; the columns of C continue in steps of 8.
//
// Products are asynchronous. Call in this order:
//
//   publish_shared      by each thread that wrote an operand into shared memory, by stores or by finished
//                       copies; then a barrier
//   order_registers     with the accumulators and left operands in registers, after the last accesses to them
//   multiply_warpgroup  any number of times; products with the same accumulators need nothing between them
//   commit_products     puts the products so far into a group
//   wait_products       waits for the group. Before it returns nothing may read the accumulators, write the
//                       left operands or overwrite the tiles; after it, and after a barrier, any thread may.
//   hold_registers      for left operands in registers that nothing else reads after the wait
#pragma once

#include "cuda/core/warp_matrix.cuh"

namespace eddy::cuda {

// Makes this thread's writes to shared memory visible to products that start after the next barrier.
__device__ inline void publish_shared() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

// Tells the compiler that accumulators or left operands are read and written here: it moves no access to them
// across.
template <int Tiles>
__device__ void hold_registers(float (&sums)[Tiles][4]) {
#pragma unroll
  for (int n = 0; n < Tiles; ++n)
    asm volatile("" : "+f"(sums[n][0]), "+f"(sums[n][1]), "+f"(sums[n][2]), "+f"(sums[n][3])::"memory");
}
template <int Parts>
__device__ void hold_registers(std::uint32_t (&left)[Parts][4]) {
#pragma unroll
  for (int k = 0; k < Parts; ++k)
    asm volatile("" : "+r"(left[k][0]), "+r"(left[k][1]), "+r"(left[k][2]), "+r"(left[k][3])::"memory");
}

// The fence itself names no registers, so the compiler could move writes of them behind it.
template <class... Registers>
__device__ void order_registers(Registers&... registers) {
  (hold_registers(registers), ...);
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}

__device__ inline void commit_products() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

// Waits until at most the last `Pending` groups are unfinished. Then `sums` may be read.
template <int Pending, int Tiles>
__device__ void wait_products(float (&sums)[Tiles][4]) {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(Pending) : "memory");
  hold_registers(sums);
}
// The same where products under way go on with the sums: tiles of those before them may be overwritten.
template <int Pending>
__device__ void wait_products() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(Pending) : "memory");
}

// Sets how many registers a thread of this warpgroup has from here on, a multiple of 8: fewer than before, or more, at
// most 256, which waits until other warps of the block have given them back. The kernel has __launch_bounds__.
template <int Registers>
__device__ void give_registers_back() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(Registers));
}
template <int Registers>
__device__ void take_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(Registers));
}

// Lists of registers for inline assembly, which a function cannot produce.
#define EDDY_SUMS_1(n) "+f"(sums[n][0]), "+f"(sums[n][1]), "+f"(sums[n][2]), "+f"(sums[n][3])
#define EDDY_SUMS_4(n) EDDY_SUMS_1(n), EDDY_SUMS_1(n + 1), EDDY_SUMS_1(n + 2), EDDY_SUMS_1(n + 3)
#define EDDY_SUMS_16_OF(n) EDDY_SUMS_4(n), EDDY_SUMS_4(n + 4), EDDY_SUMS_4(n + 8), EDDY_SUMS_4(n + 12)
#define EDDY_SUMS_16 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15"
#define EDDY_SUMS_32 \
  EDDY_SUMS_16       \
  ", %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define EDDY_SUMS_64                                                                   \
  EDDY_SUMS_32                                                                         \
  ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, " \
  "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define EDDY_SUMS_128                                                                          \
  EDDY_SUMS_64                                                                                 \
  ", %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, "         \
  "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, %96, %97, " \
  "%98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, %112, "   \
  "%113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127"
// wgmma accumulates into the sums if the operand `add` is not 0, else it overwrites them.
#define EDDY_MULTIPLY(n, sums, operands, add) \
  "{ .reg .pred add; setp.ne.b32 add, " add   \
  ", 0; wgmma.mma_async.sync.aligned"         \
  ".m64n" n "k16.f32.bf16.bf16 {" sums "}, " operands "; }"

// sums = A B, or sums += A B with `add`. Both operands are in shared memory: rows of A are rows of its tile, and
// columns of B are rows of its tile; or, with Across, columns of A and rows of B are.
template <int N, bool AcrossLeft = false, bool AcrossRight = AcrossLeft>
__device__ void multiply_warpgroup(float (&sums)[N / 8][4], std::uint64_t left, std::uint64_t right,
                                   bool add) {
  static_assert(N == 32 || N == 64 || N == 128 || N == 256);
  constexpr int kLeft = AcrossLeft ? 1 : 0, kRight = AcrossRight ? 1 : 0;
  if constexpr (N == 32)
    asm volatile(EDDY_MULTIPLY("32", EDDY_SUMS_16, "%16, %17, add, 1, 1, %19, %20", "%18")
                 : EDDY_SUMS_4(0)
                 : "l"(left), "l"(right), "r"(static_cast<int>(add)), "n"(kLeft), "n"(kRight));
  else if constexpr (N == 64)
    asm volatile(EDDY_MULTIPLY("64", EDDY_SUMS_32, "%32, %33, add, 1, 1, %35, %36", "%34")
                 : EDDY_SUMS_4(0), EDDY_SUMS_4(4)
                 : "l"(left), "l"(right), "r"(static_cast<int>(add)), "n"(kLeft), "n"(kRight));
  else if constexpr (N == 128)
    asm volatile(EDDY_MULTIPLY("128", EDDY_SUMS_64, "%64, %65, add, 1, 1, %67, %68", "%66")
                 : EDDY_SUMS_16_OF(0)
                 : "l"(left), "l"(right), "r"(static_cast<int>(add)), "n"(kLeft), "n"(kRight));
  else
    asm volatile(EDDY_MULTIPLY("256", EDDY_SUMS_128, "%128, %129, add, 1, 1, %131, %132", "%130")
                 : EDDY_SUMS_16_OF(0), EDDY_SUMS_16_OF(16)
                 : "l"(left), "l"(right), "r"(static_cast<int>(add)), "n"(kLeft), "n"(kRight));
}

// The same with A in registers. The columns of B are rows of its tile, or, with Across, the rows of B are.
template <int N, bool Across>
__device__ void multiply_warpgroup(float (&sums)[N / 8][4], const std::uint32_t (&left)[4],
                                   std::uint64_t right, bool add) {
  static_assert(N == 32 || N == 64 || N == 128);
  constexpr int kAcross = Across ? 1 : 0;
  if constexpr (N == 32)
    asm volatile(EDDY_MULTIPLY("32", EDDY_SUMS_16, "{%16, %17, %18, %19}, %20, add, 1, 1, %22", "%21")
                 : EDDY_SUMS_4(0)
                 : "r"(left[0]), "r"(left[1]), "r"(left[2]), "r"(left[3]), "l"(right),
                   "r"(static_cast<int>(add)), "n"(kAcross));
  else if constexpr (N == 64)
    asm volatile(EDDY_MULTIPLY("64", EDDY_SUMS_32, "{%32, %33, %34, %35}, %36, add, 1, 1, %38", "%37")
                 : EDDY_SUMS_4(0), EDDY_SUMS_4(4)
                 : "r"(left[0]), "r"(left[1]), "r"(left[2]), "r"(left[3]), "l"(right),
                   "r"(static_cast<int>(add)), "n"(kAcross));
  else
    asm volatile(EDDY_MULTIPLY("128", EDDY_SUMS_64, "{%64, %65, %66, %67}, %68, add, 1, 1, %70", "%69")
                 : EDDY_SUMS_16_OF(0)
                 : "r"(left[0]), "r"(left[1]), "r"(left[2]), "r"(left[3]), "l"(right),
                   "r"(static_cast<int>(add)), "n"(kAcross));
}

#undef EDDY_MULTIPLY
#undef EDDY_SUMS_128
#undef EDDY_SUMS_64
#undef EDDY_SUMS_32
#undef EDDY_SUMS_16
#undef EDDY_SUMS_16_OF
#undef EDDY_SUMS_4
#undef EDDY_SUMS_1

}  // namespace eddy::cuda
