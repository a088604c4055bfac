// Replaces cuda/core/bulk_copy.cuh: barriers of phases and copies of boxes are the emulation's (transactions.cpp).
#pragma once

#include "cuda/runtime/tensor_map.cuh"
#include "tests/emulation/include/cuda/core/warp_matrix.cuh"

namespace eddy::cuda {

using PhaseBarrier = std::uint64_t;

inline void init_barrier(PhaseBarrier* barrier, int arrivals) {
  emulation::init_phases(barrier, arrivals);
}
inline void publish_barriers() {
  emulation::publish_phases();
}
inline void arrive(PhaseBarrier* barrier) {
  emulation::arrive_at_phase(barrier, 0);
}
inline void arrive_expecting(PhaseBarrier* barrier, int bytes) {
  emulation::arrive_at_phase(barrier, bytes);
}
inline void wait_phase(PhaseBarrier* barrier, int parity) {
  emulation::wait_for_phase(barrier, parity);
}
inline void start_box_copy(void* to, const TensorMap* map, const int (&at)[kMapAxes], PhaseBarrier* barrier) {
  emulation::start_box_copy(to, shared_address(to), map, at, barrier);
}

}  // namespace eddy::cuda
