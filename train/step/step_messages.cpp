// What stands in a message about a step or an evaluation.
#include "train/step/step_messages.h"

#include <optional>
#include <string>

#include "ops/backends.h"
#include "ops/core/product_algorithms.h"
#include "tensor/base/format.h"
#include "train/words/program_name.h"

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

namespace {

std::string kernels_here() {
  const std::optional<GpuKernels> kernels = gpu_kernels();
  return kernels ? describe(*kernels) : "";
}

}  // namespace

void put_gpu(Message& message) {
  message.put(gpu_kind());
  message.put(kernels_here());
  message.put(product_algorithms());
}

namespace {

// Runs rank 0's kernels, or fails.
void take_kernels(const std::string& kernels, const Ranks& ranks) {
  if (kernels == kernels_here()) return;
  std::string why;
  try {
    set_automatic_kernels(kernels);
  } catch (const DeviceError& error) {
    why = fmt::format("; {}", error.what());
  }
  if (const std::string now = kernels_here(); now != kernels)
    fail<ConfigError>(
        "ranks: {} runs the kernels {} and {} runs {}, which differ in their bits{} (the same EDDY_KERNELS on all hosts; "
        "{} check --device cuda says which kernels are refused on a GPU)",
        ranks.name(ranks.rank()), now, ranks.name(0), kernels, why, program_name());
}

}  // namespace

void take_gpu(Message& message, const Ranks& ranks) {
  const std::string kind = message.get_text(), kernels = message.get_text(), own = gpu_kind();
  const ProductAlgorithms algorithms = message.get_texts();
  if (own != kind)
    fail<ConfigError>(
        "ranks: {} has the GPU {} and {} has {}, which may differ in their bits (GPUs of one kind, and one cuBLASLt, on "
        "all hosts)",
        ranks.name(ranks.rank()), own, ranks.name(0), kind);
  take_kernels(kernels, ranks);
  try {
    set_product_algorithms(algorithms);
  } catch (const DeviceError& error) {
    fail<ConfigError>(
        "ranks: {} cannot multiply as {} does: {} (EDDY_KERNELS=algorithms=plain on all hosts takes what cuBLASLt "
        "proposes first)",
        ranks.name(ranks.rank()), ranks.name(0), error.what());
  }
}

}  // namespace eddy::training
