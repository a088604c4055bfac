// Processes, each with a GPU of its own, whose GPUs send bytes to each other without the host (NCCL,
// cuda/runtime/peers.cpp). The CPU has none.
//
//   the GPU's stream   ... backward ... | ... backward ... | ... backward          | optimizer
//   beside it                           +-- exchange, add, exchange, add, ... -----+
//                                       behind what was enqueued before it         finish()
#pragma once

#include <array>
#include <cstddef>
#include <functional>
#include <memory>
#include <string>

#include "tensor/tensor.h"

namespace eddy {

// What a process enqueues here runs in the order of the calls, behind what the GPU had to do at each call, and beside
// what the GPU gets to do later. Memory that it reads and writes must stay, and must not be used otherwise, until
// finish().
class Peers {
 public:
  Peers() = default;
  virtual ~Peers() = default;
  Peers(const Peers&) = delete;
  Peers& operator=(const Peers&) = delete;

  // Enqueues that row-major `out` goes to a peer and row-major `in` comes from it, both at once. Either may be
  // undefined. The peer enqueues the same in the same order. Where many exchanges are on their way, it waits for the
  // first of them.
  // errors: those of finish.
  virtual void exchange(int peer, const Tensor& out, const Tensor& in) = 0;
  // Enqueues the kernels that `work` launches. It must not allocate.
  virtual void beside(const std::function<void()>& work) = 0;
  // Waits until all of that is done.
  // errors: DeviceError when NCCL fails, when a peer is lost, and when an exchange that this GPU has begun is not
  // answered in time. Then abort() has been called.
  virtual void finish() = 0;
  // Ends the exchanges that are on their way, whose tensors then hold anything. From now on every call is an error.
  virtual void abort() noexcept = 0;
  // Sets how many seconds an exchange takes at most; 0: any time.
  virtual void set_timeout(double seconds) = 0;
};

// What processes need to find each other: one makes it and sends it to the others.
using PeersId = std::array<std::byte, 128>;

// Why this build has no peers, with what to install; empty if it has.
std::string why_no_peers();
// errors: DeviceError where this build has none, or NCCL fails.
PeersId make_peers_id();
// Returns the peers of process `rank` of `size`; waits until all have joined, at most `timeout` seconds (0: any time).
// `name` is how errors call a process.
// errors: as make_peers_id, where two processes of a host have the same GPU, and where one does not join in time.
std::unique_ptr<Peers> join_peers(const PeersId& id, int rank, int size, double timeout,
                                  std::function<std::string(int)> name);

}  // namespace eddy
