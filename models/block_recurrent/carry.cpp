// What the Block-Recurrent family carries between segments (struct Carry): conversion from and to a State,
// and its reset where documents begin.
#include <fmt/ranges.h>

#include <algorithm>

#include "autograd/tape.h"
#include "models/block_recurrent/block_recurrent.h"
#include "ops/pointwise/where.h"
#include "tensor/base/format.h"

namespace eddy {
namespace {

// A count that further writing cannot overflow.
constexpr std::int64_t kMostWritten = std::int64_t{1} << 62;

std::string layer_name(std::size_t layer) {
  return "layers." + std::to_string(layer);
}

}  // namespace

const Tensor& BlockRecurrent::load(const State& state, const std::string& name, const Shape& shape) const {
  const Tensor& found = state.get(name);
  if (found.shape() != shape)
    fail<ShapeError>("{}: the state's {} has shape {} ({} for this model and batch)", config().model, name,
                     to_string(found.shape()), to_string(shape));
  // Keys and values are kept as the layers read them.
  if (found.dtype() != embed_.dtype() && found.dtype() != Dtype::bf16)
    fail<DtypeError>("{}: the state's {} is {} and the model {} (cast the state first)", config().model, name,
                     dtype_name(found.dtype()), dtype_name(embed_.dtype()));
  return found;
}

void BlockRecurrent::check_names(const State& state) const {
  std::vector<std::string> known;
  for (const BlockRecurrentLayer& layer : layers_) {
    std::vector<const char*> parts;
    if (cached()) parts.insert(parts.end(), {".k", ".v"});
    if (layer.cell) parts.push_back(".state");
    if (layer.memory) parts.insert(parts.end(), {".mem_k", ".mem_v", ".mem_count"});
    for (const char* part : parts) known.push_back(layer.path + part);
  }
  if (known.empty())
    fail<ValueError>("{}: a state for a model that carries none from call to call (leave it empty)",
                     config().model);
  for (const auto& [name, tensor] : state)
    if (std::find(known.begin(), known.end(), name) == known.end())
      fail<ValueError>("{}: the state holds {}, which this model does not carry (it carries {})",
                       config().model, name, fmt::join(known, ", "));
}

MemoryEntries BlockRecurrent::load_memory(const State& state, const std::string& name,
                                          std::int64_t batch) const {
  const Shape shape{batch, config().memory_size, config().heads, config().head_dim};
  const Tensor& count = state.get(name + ".mem_count");
  if (count.shape() != Shape{batch} || (count.dtype() != Dtype::i64 && count.dtype() != Dtype::i32))
    fail<ShapeError>("{}: the state's {}.mem_count is {} {} ([batch] = [{}], i64 or i32)", config().model,
                     name, dtype_name(count.dtype()), to_string(count.shape()), batch);
  const Tensor written = raw::cast(count, Dtype::i64);
  // Counts on a GPU are this model's own, or were moved there as they are; reading them would wait for it.
  if (count.device() == kCpu)
    for (const std::int64_t rows : written.to_vector<std::int64_t>())
      if (rows < 0 || rows > kMostWritten)
        fail<ValueError>("{}: the state's {}.mem_count holds {} (entries written, from 0 to {})",
                         config().model, name, rows, kMostWritten);
  return {raw::contiguous(detach(load(state, name + ".mem_k", shape))),
          raw::contiguous(detach(load(state, name + ".mem_v", shape))),
          raw::to_device(written, embed_.device())};
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
  const std::int64_t window = config().window;
  const Tensor* position = state.find("position");
  if (position == nullptr) check_names(state);
  if (position != nullptr) {
    const bool has_memory = !config().memory_layers.empty();
    const std::int64_t unit = has_memory ? config().segment : window;
    if (position->item_int() % unit != 0)
      fail<ValueError>(
          "{}: the state is that of a stream after {} tokens, inside a {} of {} (forward goes on from "
          "its end)",
          config().model, position->item_int(), has_memory ? "segment" : "block", unit);
  }
  // A stream's rows are the last block's, followed by room for the next one.
  const Shape rows{batch, position != nullptr ? 2 * window : window, config().heads, config().head_dim};
  std::vector<Carry> carry(layers_.size());
  for (std::size_t i = 0; i < carry.size(); ++i) {
    const std::string name = layer_name(i);
    if (cached()) {
      const auto last_block = [&](const char* which) {
        return activation(raw::narrow(detach(load(state, name + which, rows)), 1, 0, window));
      };
      carry[i].k = last_block(".k");
      carry[i].v = last_block(".v");
    }
    if (layers_[i].cell)
      carry[i].state = detach(load(state, name + ".state", {batch, config().states, config().dim}));
    if (layers_[i].memory) carry[i].memory = load_memory(state, name, batch);
  }
  return carry;
}

State BlockRecurrent::save_carry(const std::vector<Carry>& carry) const {
  State state;
  for (std::size_t i = 0; i < carry.size(); ++i) {
    const std::string name = layer_name(i);
    if (carry[i].k.defined()) {
      state.set(name + ".k", carry[i].k);
      state.set(name + ".v", carry[i].v);
    }
    if (carry[i].state.defined()) state.set(name + ".state", carry[i].state);
    if (carry[i].memory) save_memory(state, name, *carry[i].memory);
  }
  return state;
}

Tensor BlockRecurrent::flags_of(const Tensor& start, std::int64_t segment) const {
  if (!start.defined()) return {};
  const Tensor column = raw::contiguous(raw::select(start, 1, segment));
  if (!(column.device() == kCpu)) return raw::cast(column, Dtype::u8);
  std::vector<std::uint8_t> flags;
  for (const std::int64_t flag : raw::cast(column, Dtype::i64).to_vector<std::int64_t>())
    flags.push_back(flag != 0 ? 1 : 0);
  if (std::find(flags.begin(), flags.end(), 1) == flags.end()) return {};
  return raw::to_device(Tensor::from(flags, column.shape()), embed_.device());
}

void BlockRecurrent::begin_segment(std::vector<Carry>& carry, const Tensor& flags) const {
  for (std::size_t i = 0; i < carry.size(); ++i) {
    Carry& own = carry[i];
    if (own.state.defined() && (flags.defined() || config().clear_state)) {
      const std::int64_t batch = own.state.dim(0);
      const Tensor initial = layers_[i].cell->initial(batch);
      own.state =
          config().clear_state ? initial : where(raw::reshape(flags, {batch, 1, 1}), initial, own.state);
    }
    if (!flags.defined()) continue;
    if (own.k.defined()) {
      const Tensor mask = raw::reshape(flags, {own.k.dim(0), 1, 1, 1});
      const Tensor zero = Tensor::zeros({1, 1, 1, 1}, own.k.dtype(), own.k.device());
      own.k = where(mask, zero, own.k);
      own.v = where(mask, zero, own.v);
    }
    if (own.memory) own.memory = memory_write(*own.memory, {}, {}, flags);
  }
}

}  // namespace eddy
