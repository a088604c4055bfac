// Batches, options, states and GPUs in the messages of rank 0 to the others.
// Both sides read and write in the same order.
#pragma once

#include <cstdint>

#include "autograd/state.h"
#include "train/ranks/message.h"
#include "train/step/batch.h"
#include "train/step/train_step.h"

namespace eddy::training {

// What rank 0 asks the others for: the first number of each message.
enum class RankCommand : std::uint8_t {
  begin,
  step,
  send_state,
  send_optimizer,
  evaluate,
  send_evaluated,
  end
};

void put_batch(Message& message, const Batch& batch);
Batch get_batch(Message& message);
// All but the ranks and their buckets.
void put_options(Message& message, const StepOptions& options);
StepOptions get_options(Message& message);
// A state with the order of its entries.
void put_state(Message& message, const State& state);
State get_state(Message& message);
// The GPU that is open, its kernels and its algorithms of products; nothing on the CPU.
// The other rank runs the same from then on.
// errors: ConfigError when its GPU is of another kind, multiplies by another library, or must not or cannot run one of
// these: its bits would differ.
void put_gpu(Message& message);
void take_gpu(Message& message, const Ranks& ranks);

}  // namespace eddy::training
