// What stands in a message about a step or an evaluation.
#include "train/step/step_messages.h"

namespace eddy::training {

void put_batch(Message& message, const Batch& batch) {
  message.put(batch.tokens);
  message.put(batch.targets);
  message.put(batch.start);
  message.put(batch.begin);
  message.put(batch.block);
  message.put(batch.tail);
  message.put(batch.scored);
}

Batch get_batch(Message& message) {
  Batch batch;
  batch.tokens = message.get_tensor();
  batch.targets = message.get_tensor();
  batch.start = message.get_tensor();
  batch.begin = message.get<RowsBegin>();
  batch.block = message.get<std::int64_t>();
  batch.tail = message.get<std::int64_t>();
  batch.scored = message.get<std::int64_t>();
  return batch;
}

void put_options(Message& message, const StepOptions& options) {
  message.put(options.learning_rate);
  message.put(options.seed);
  message.put(options.step);
  message.put(options.carry_state);
  message.put(options.micro_batches);
  message.put(options.recompute);
  message.put(options.scored);
}

StepOptions get_options(Message& message) {
  StepOptions options;
  options.learning_rate = message.get<double>();
  options.seed = message.get<std::uint64_t>();
  options.step = message.get<std::int64_t>();
  options.carry_state = message.get<bool>();
  options.micro_batches = message.get<std::int64_t>();
  options.recompute = message.get<Recompute>();
  options.scored = message.get_numbers();
  return options;
}

void put_state(Message& message, const State& state) {
  message.put(static_cast<std::uint64_t>(state.size()));
  for (const auto& [name, tensor] : state) {
    message.put(name);
    message.put(tensor);
  }
}

State get_state(Message& message) {
  State state;
  for (auto left = message.get<std::uint64_t>(); left > 0; --left) {
    const std::string name = message.get_text();
    state.set(name, message.get_tensor());
  }
  return state;
}

}  // namespace eddy::training
