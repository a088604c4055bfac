// Processes, each with a GPU of its own, whose GPUs send bytes to each other without the host (NCCL,
// cuda/runtime/peers.cpp). The CPU has none.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <string>

#include "tensor/tensor.h"

namespace eddy {

class Peers {
 public:
  Peers() = default;
  virtual ~Peers() = default;
  Peers(const Peers&) = delete;
  Peers& operator=(const Peers&) = delete;
  // Enqueues, behind the work of the GPU, that row-major `out` goes to a peer and row-major `in` comes from it, both at
  // once. Either may be undefined. The peer enqueues the same in the same order. Nothing waits.
  // errors: DeviceError.
  virtual void exchange(int peer, const Tensor& out, const Tensor& in) = 0;
};

// What processes need to find each other: one makes it and sends it to the others.
using PeersId = std::array<std::byte, 128>;

// Why this build has no peers, with what to install; empty if it has.
std::string why_no_peers();
// errors: DeviceError where this build has none, or NCCL fails.
PeersId make_peers_id();
// Returns the peers of process `rank` of `size`; waits until all have joined.
// errors: as make_peers_id, and where two processes of a host have the same GPU.
std::unique_ptr<Peers> join_peers(const PeersId& id, int rank, int size);

}  // namespace eddy
