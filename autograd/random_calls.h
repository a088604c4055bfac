// The numbers of random calls on a thread: of calls that draw random numbers and name no key of their own. Each gets
// the next number; what a checkpoint computes again gets the numbers that it had.
#pragma once

#include <cstdint>
#include <optional>

#include "tensor/random/philox.h"

namespace eddy::detail {

// What the keys of such calls are made of. `step_base` as in RandomKey.
struct RandomCalls {
  bool given = false;  // whether somebody set the rest
  bool draws = false;  // false: evaluation, where nothing is drawn
  std::uint64_t seed = 0, step = 0;
  const std::uint64_t* step_base = nullptr;
  std::uint64_t next = 0;  // number of the next call
};
inline constinit thread_local RandomCalls random_calls;

// Returns the key of a call of the dropout `op` that has none of its own, and counts the call; nothing in evaluation,
// or where nobody set the rest and nothing is recorded (NoGrad).
// errors: ValueError where nobody did and the graph is recorded: a loop that forgot it would train without dropout.
std::optional<RandomKey> next_call_key(const char* op);

}  // namespace eddy::detail
