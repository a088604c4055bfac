// Copies of boxes of a tensor into shared memory by one thread (TMA), and the barriers that count arrivals and bytes.
// For GPUs of compute capability 9.0. tests/emulation/ replaces this file.
// source: PTX ISA 9.0, "cp.async.bulk.tensor", "mbarrier", "Async proxy", "Tensors".
//
// A barrier counts phases. A phase ends when as many threads have arrived as init_barrier says and all bytes have come
// that arrivals of this phase announced; then the next one begins. Phase number p has the parity p % 2. A thread that
// waits must be at most one phase behind: waiting for the parity of the phase before the first returns at once.
//
// What a thread did before it arrived is seen by those that waited for that phase. What other lanes of its warp did is
// too, if a __syncwarp stands between. What was stored into shared memory by instructions needs publish_shared
// (cuda/core/warpgroup_matrix.cuh) before products of a warpgroup read it; what a copy wrote does not.
#pragma once

#include "cuda/core/warp_matrix.cuh"
#include "cuda/runtime/tensor_map.cuh"

namespace eddy::cuda {

using PhaseBarrier = std::uint64_t;  // in shared memory

// One thread prepares a barrier for `arrivals` to a phase; after publish_barriers by that thread and a barrier of the
// block all may use it.
__device__ inline void init_barrier(PhaseBarrier* barrier, int arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(barrier)), "r"(arrivals)
               : "memory");
}
__device__ inline void publish_barriers() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

__device__ inline void arrive(PhaseBarrier* barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(barrier)) : "memory");
}
// Arrives, and announces bytes of copies to this barrier.
__device__ inline void arrive_expecting(PhaseBarrier* barrier, int bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(barrier)),
               "r"(bytes)
               : "memory");
}

// Waits for the end of the phase with this parity. All lanes of a warp call it.
__device__ inline void wait_phase(PhaseBarrier* barrier, int parity) {
  std::uint32_t over;
  do {
    asm volatile(
        "{ .reg .pred over; mbarrier.try_wait.parity.shared::cta.b64 over, [%1], %2; selp.u32 %0, 1, 0, over; }"
        : "=r"(over)
        : "r"(shared_address(barrier)), "r"(parity)
        : "memory");
  } while (over == 0);
}

// Starts the copy of the box of a map that begins at these coordinates (cuda/runtime/tensor_map.cuh). It arrives at
// `to`, aligned to 1,024 bytes, with the swizzle of the map, and counts its bytes, those outside of the tensor too, at
// the barrier. `map` is in the arguments of the kernel (__grid_constant__).
__device__ inline void start_box_copy(void* to, const TensorMap* map, const int (&at)[kMapAxes],
                                      PhaseBarrier* barrier) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes "
      "[%0], [%1, {%2, %3, %4, %5}], [%6];" ::"r"(shared_address(to)),
      "l"(map), "r"(at[0]), "r"(at[1]), "r"(at[2]), "r"(at[3]), "r"(shared_address(barrier))
      : "memory");
}

}  // namespace eddy::cuda
