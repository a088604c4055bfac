// What the Block-Recurrent family carries between segments (struct Carry): conversion from and to a State,
// and its reset where documents begin.
#include "autograd/tape.h"
#include "models/block_recurrent/block_recurrent.h"
#include "models/row_cache.h"
#include "tensor/base/format.h"

namespace eddy {
namespace {

// A count that further writing cannot overflow.
constexpr std::int64_t kMostWritten = std::int64_t{1} << 62;

}  // namespace

StateLayout BlockRecurrent::rows_layout(std::int64_t batch, std::int64_t rows, StateTensor::Kind kind) const {
  const Shape heads{batch, rows, config().heads, config().head_dim};
  StateLayout layout;
  for (const BlockRecurrentLayer& layer : layers_) {
    const auto add = [&](const char* part, const Shape& shape,
                         StateTensor::Kind of = StateTensor::Kind::values) {
      layout.push_back({.name = layer.path + part, .shape = shape, .kind = of});
    };
    if (kind == StateTensor::Kind::rows || cached())
      for (const char* part : {".k", ".v"}) add(part, heads, kind);
    if (layer.cell) add(".state", {batch, config().states, config().dim});
    if (!layer.memory) continue;
    for (const char* part : {".mem_k", ".mem_v"}) add(part, heads.with(1, config().memory_size));
    add(".mem_count", {batch}, StateTensor::Kind::count);
  }
  return layout;
}

StateLayout BlockRecurrent::state_layout(std::int64_t batch) const {
  return rows_layout(batch, config().window, StateTensor::Kind::values);
}

StateLayout BlockRecurrent::stream_layout(std::int64_t batch) const {
  StateLayout layout = rows_layout(batch, 2 * config().window, StateTensor::Kind::rows);
  const auto heads = [&](std::int64_t rows) { return Shape{batch, rows, config().heads, config().head_dim}; };
  for (const BlockRecurrentLayer& layer : layers_) {
    if (layer.cell)
      for (const char* part : {".state_k", ".state_v"})
        layout.push_back({.name = layer.path + part, .shape = heads(config().states)});
    if (layer.memory)
      for (const char* part : {".segment_k", ".segment_v"})
        layout.push_back(
            {.name = layer.path + part, .shape = heads(config().segment), .kind = StateTensor::Kind::rows});
  }
  layout.push_back({.name = "position", .shape = {1}, .kind = StateTensor::Kind::count});
  return layout;
}

MemoryEntries BlockRecurrent::load_memory(const State& state, const std::string& name) const {
  const Tensor written = raw::cast(state.get(name + ".mem_count"), Dtype::i64);
  // Counts on a GPU are this model's own, or were moved there as they are; reading them would wait for it.
  const auto counts = raw::integers_at_hand(written);
  for (std::size_t i = 0; counts && i < counts->size(); ++i)
    if (const std::int64_t rows = (*counts)[i]; rows < 0 || rows > kMostWritten)
      fail<ValueError>("{}: the state's {}.mem_count holds {} (entries written, from 0 to {})",
                       config().model, name, rows, kMostWritten);
  return {raw::contiguous(detach(state.get(name + ".mem_k"))),
          raw::contiguous(detach(state.get(name + ".mem_v"))), raw::to_device(written, embed_.device())};
}

void BlockRecurrent::save_memory(State& state, const std::string& name, const MemoryEntries& entries) {
  state.set(name + ".mem_k", entries.keys);
  state.set(name + ".mem_v", entries.values);
  state.set(name + ".mem_count", entries.count);
}

std::vector<BlockRecurrent::Carry> BlockRecurrent::cold_carry(std::int64_t batch) const {
  std::vector<Carry> carry(layers_.size());
  const Dtype dtype = embed_.dtype();
  const Device device = embed_.device();
  const Shape rows{batch, config().window, config().heads, config().head_dim};
  for (std::size_t i = 0; i < carry.size(); ++i) {
    if (cached()) {
      carry[i].k = Tensor::zeros(rows, params().activations(), device);
      carry[i].v = Tensor::zeros(rows, params().activations(), device);
    }
    if (layers_[i].cell) carry[i].state = layers_[i].cell->initial(batch);
    if (layers_[i].memory) carry[i].memory = empty_memory(batch, config(), dtype, device);
  }
  return carry;
}

std::vector<BlockRecurrent::Carry> BlockRecurrent::load_carry(const State& state, std::int64_t batch) const {
  const bool streamed = state.find("position") != nullptr;
  check_state(state, streamed ? stream_layout(batch) : state_layout(batch));
  if (streamed) {
    const bool has_memory = !config().memory_layers.empty();
    const std::int64_t unit = has_memory ? config().segment : config().window,
                       position = state.count("position");
    if (position % unit != 0)
      fail<ValueError>(
          "{}: the state is that of a stream after {} tokens, inside a {} of {} (forward goes on from "
          "its end)",
          config().model, position, has_memory ? "segment" : "block", unit);
  }
  std::vector<Carry> carry(layers_.size());
  for (std::size_t i = 0; i < carry.size(); ++i) {
    const std::string& name = layers_[i].path;
    if (cached()) {
      // A stream's rows are the last block's, followed by room for the next one.
      const auto last_block = [&](const char* which) {
        return activation(RowCache(detach(state.get(name + which))).rows(0, config().window));
      };
      carry[i].k = last_block(".k");
      carry[i].v = last_block(".v");
    }
    if (layers_[i].cell) carry[i].state = detach(state.get(name + ".state"));
    if (layers_[i].memory) carry[i].memory = load_memory(state, name);
  }
  return carry;
}

State BlockRecurrent::save_carry(const std::vector<Carry>& carry) const {
  State state;
  for (std::size_t i = 0; i < carry.size(); ++i) {
    const std::string& name = layers_[i].path;
    if (carry[i].k.defined()) {
      state.set(name + ".k", carry[i].k);
      state.set(name + ".v", carry[i].v);
    }
    if (carry[i].state.defined()) state.set(name + ".state", carry[i].state);
    if (carry[i].memory) save_memory(state, name, *carry[i].memory);
  }
  return state;
}

void BlockRecurrent::begin_segment(std::vector<Carry>& carry, const Tensor& flags) const {
  for (std::size_t i = 0; i < carry.size(); ++i) {
    Carry& own = carry[i];
    if (own.state.defined() && (flags.defined() || config().clear_state)) {
      const std::int64_t batch = own.state.dim(0);
      const Tensor initial = layers_[i].cell->initial(batch);
      own.state = config().clear_state ? initial : restart_rows(own.state, initial, flags);
    }
    if (!flags.defined()) continue;
    if (own.k.defined()) {
      const Tensor zero = Tensor::zeros({1, 1, 1, 1}, own.k.dtype(), own.k.device());
      own.k = restart_rows(own.k, zero, flags);
      own.v = restart_rows(own.v, zero, flags);
    }
    if (own.memory) own.memory = memory_write(*own.memory, {}, {}, flags);
  }
}

}  // namespace eddy
