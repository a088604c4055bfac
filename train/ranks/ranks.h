// The processes that share one training run: each is a rank, from 0 to size - 1. They only move bytes between each
// other. What is added, and in which order, is decided in tree_collective.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "ops/core/peers.h"

namespace eddy::training {

// Whether a wait ends with an error after the group's time limit.
enum class Patience : std::uint8_t { limited, endless };

// Bytes on their way, both those sent and those received. Their memory must stay until the exchange is done, or taken
// back.
class Exchange {
 public:
  Exchange() = default;
  virtual ~Exchange() = default;
  Exchange(const Exchange&) = delete;
  Exchange& operator=(const Exchange&) = delete;
  // Whether all bytes have arrived and left. Once it said so, it is not asked again.
  // errors: IoError when the other rank sent another number of bytes.
  virtual bool done() = 0;
  // Returns when all have.
  // errors: as done; IoError when the other rank does not answer in time.
  virtual void wait(Patience patience) = 0;
  // Gives up what has not arrived and left. Returns whether the memory is free now; else the bytes are being moved, and
  // it must stay for good.
  virtual bool take_back() = 0;
};

class Ranks {
 public:
  Ranks() = default;
  virtual ~Ranks() = default;
  Ranks(const Ranks&) = delete;
  Ranks& operator=(const Ranks&) = delete;

  virtual int rank() const = 0;
  virtual int size() const = 0;  // a power of two
  // How messages name a rank: "rank 3 on host b".
  virtual std::string name(int rank) const = 0;
  // Sets how many seconds a limited wait takes at most; 0: any time.
  virtual void set_timeout(double seconds) = 0;

  // Begins to send bytes to a rank and to receive as many as fit `in` from it, both at once. Either or both may
  // be empty. Exchanges of the same two ranks and the same tag meet in the order in which they begin.
  // errors: IoError.
  virtual std::unique_ptr<Exchange> begin(int other, std::span<const std::byte> out, std::span<std::byte> in,
                                          int tag) = 0;
  // The GPUs of all ranks, which exchange tensors in their memory. All ranks ask for them first at the same point.
  // errors: DeviceError where this build moves no bytes between GPUs, and those of join_peers.
  virtual Peers& peers();

  void exchange(int other, std::span<const std::byte> out, std::span<std::byte> in,
                Patience patience = Patience::limited) {
    begin(other, out, in, 0)->wait(patience);
  }

  // Whether rank 0 is in the middle of an exchange with the others, a step or a question: they wait for the rest of it
  // and read no other message, so an error must end them. It stays until the results are read,
  // from a GPU too: what fails there shows then.
  bool in_exchange = false;

  void send(int to, std::span<const std::byte> bytes) { exchange(to, bytes, {}); }
  void receive(int from, std::span<std::byte> bytes, Patience patience = Patience::limited) {
    exchange(from, {}, bytes, patience);
  }
};

// The bytes of all ranks in order, as many from each.
// errors: those of Ranks::exchange.
std::vector<std::byte> all_gather(Ranks& ranks, std::span<const std::byte> local);

// Overwrites the bytes with those of rank 0.
// errors: those of Ranks::exchange.
void broadcast(Ranks& ranks, std::span<std::byte> bytes);

}  // namespace eddy::training
