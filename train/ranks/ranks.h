// The processes that share one training run: each is a rank, from 0 to size - 1. They only move bytes between each
// other; what is added, and in which order, is decided here.
//
// The sum of all ranks is that of a binary tree: ranks 2i and 2i + 1 first, then pairs of pairs. It does not depend on
// which rank computes which part of it, so each computes the same share:
//
//   level 0   rank 0 <-> 1, 2 <-> 3     each sends one half of its numbers and adds the other half
//   level 1   rank 0 <-> 2, 1 <-> 3     each sends half of what it added, and adds the other half
//   back      the same pairs in reverse send each other the finished parts
//
//   units: bytes that a rank sends for n bytes and K ranks: 2 n (K - 1) / K, the least possible
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "tensor/tensor.h"

namespace eddy {

// Whether a wait ends with an error after the group's time limit.
enum class Patience : std::uint8_t { limited, endless };

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

  // Sends bytes to a rank and receives as many as fit `in` from it, both at once. One of the two may be empty.
  // errors: IoError when the other rank does not answer in time, or sends another number of bytes.
  virtual void exchange(int other, std::span<const std::byte> out, std::span<std::byte> in,
                        Patience patience = Patience::limited) = 0;

  // Whether rank 0 is in the middle of an exchange with the others, a step or a question: they wait for the rest of it and
  // read no other message, so an error must end them.
  bool in_exchange = false;

  void send(int to, std::span<const std::byte> bytes) { exchange(to, bytes, {}); }
  void receive(int from, std::span<std::byte> bytes, Patience patience = Patience::limited) {
    exchange(from, {}, bytes, patience);
  }
};

// The bytes of all ranks in order, as many from each.
// errors: those of Ranks::exchange.
std::vector<std::byte> gather_all(Ranks& ranks, std::span<const std::byte> own);

// Overwrites the bytes with those of rank 0.
// errors: those of Ranks::exchange.
void broadcast(Ranks& ranks, std::span<std::byte> bytes);

// Turns row-major x on the CPU, of f32 or f64, into the sum of the tensors of all ranks. `present` says which ranks
// have one; the others' bytes are not read and count as nothing. Every rank gets the same bits. If none is present,
// nothing happens.
// errors: those of Ranks::exchange; ValueError for `present` of another size.
void add_all(Ranks& ranks, const Tensor& x, const std::vector<bool>& present);

}  // namespace eddy
