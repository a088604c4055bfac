// Batches from plain vectors, their parts, and carrying the state from one to the next.
#include "train/step/batch.h"

#include <algorithm>

#include "tensor/base/format.h"
#include "tensor/transfer.h"

namespace eddy::training {
namespace {

std::int64_t columns_of(const char* what, std::size_t ids, std::int64_t batch) {
  const auto count = static_cast<std::int64_t>(ids);
  if (batch < 1 || count % batch != 0)
    fail<ShapeError>("make_batch: {} {} in {} rows (as many in each, at least one row)", count, what, batch);
  return count / batch;
}

}  // namespace

Batch make_batch(std::int64_t batch, std::vector<std::int32_t> tokens, std::vector<std::int32_t> targets,
                 const std::vector<std::int64_t>& starts) {
  const std::int64_t time = columns_of("tokens", tokens.size(), batch);
  const std::int64_t rows = columns_of("targets", targets.size(), batch);
  if (!starts.empty() && std::ssize(starts) != batch)
    fail<ShapeError>("make_batch: {} start flags for {} rows (one for each, or none)", starts.size(), batch);
  Batch result;
  result.scored =
      std::count_if(targets.begin(), targets.end(), [](std::int32_t t) { return t != kNotScored; });
  if (const auto begin = batch - std::count(starts.begin(), starts.end(), 0); !starts.empty() && begin > 0) {
    result.start = Tensor::from(starts, {batch, 1});
    result.begin = begin == batch ? RowsBegin::all : RowsBegin::some;
  }
  result.tokens = Tensor::from(tokens, {batch, time});
  result.targets = Tensor::from(targets, {batch, rows});
  return result;
}

std::vector<std::int32_t> behind_unscored(const std::vector<std::int32_t>& targets, std::int64_t rows,
                                          std::int64_t time) {
  const std::int64_t tail = std::ssize(targets) / rows;
  std::vector<std::int32_t> all(static_cast<std::size_t>(rows * time), kNotScored);
  for (std::int64_t row = 0; row < rows; ++row)
    std::copy_n(targets.begin() + row * tail, tail, all.begin() + (row + 1) * time - tail);
  return all;
}

Batch part_of_batch(const Batch& batch, std::int64_t part, std::int64_t parts) {
  const std::int64_t all = batch.tokens.dim(0);
  if (parts < 1 || all % parts != 0)
    fail<ShapeError>("part_of_batch: {} rows in {} parts (as many rows in each)", all, parts);
  const std::int64_t rows = all / parts;
  const auto part_of = [&](const Tensor& x) {
    return x.defined() ? raw::narrow(x, 0, part * rows, rows) : Tensor();
  };
  Batch result = batch;
  result.tokens = part_of(batch.tokens);
  result.targets = part_of(batch.targets);
  result.start = part_of(batch.start);
  const std::vector<std::int32_t> targets = raw::contiguous(result.targets).to_vector<std::int32_t>();
  result.scored =
      std::count_if(targets.begin(), targets.end(), [](std::int32_t t) { return t != kNotScored; });
  return result;
}

std::vector<std::int64_t> scored_targets(const std::vector<Batch>& batches, std::int64_t micro_batches) {
  std::vector<std::int64_t> scored;
  for (const Batch& batch : batches)
    for (std::int64_t part = 0; part < micro_batches; ++part)
      scored.push_back(micro_batches == 1 ? batch.scored : part_of_batch(batch, part, micro_batches).scored);
  return scored;
}

State part_of_state(const State& state, const Model& model, std::int64_t part, std::int64_t parts) {
  State result;
  for (const auto& [name, tensor] : state) {
    const int axis = model.state_row_axis(name);
    if (axis >= tensor.rank() || tensor.dim(axis) % parts != 0)
      fail<ShapeError>("part_of_state: {} {} in {} parts along axis {} (as many rows in each)", name,
                       to_string(tensor.shape()), parts, axis);
    const std::int64_t rows = tensor.dim(axis) / parts;
    result.set(name, raw::contiguous(raw::narrow(tensor, axis, part * rows, rows)));
  }
  return result;
}

State merged_state(const std::vector<State>& parts, const Model& model) {
  State result;
  for (const auto& [name, tensor] : parts.front()) {
    std::vector<Tensor> tensors;
    for (const State& part : parts) {
      if (part.size() != parts.front().size())
        fail<ValueError>("merged_state: parts of {} and {} tensors (the same in all)", parts.front().size(),
                         part.size());
      tensors.push_back(part.get(name));
      const Shape shape = tensors.back().shape();
      if (shape != tensor.shape() || tensors.back().dtype() != tensor.dtype())
        fail<ValueError>("merged_state: {} is {} and {} (the same in all parts)", name,
                         to_string(tensor.shape()), to_string(shape));
    }
    result.set(name, raw::concat(tensors, model.state_row_axis(name)));
  }
  return result;
}

std::string batch_signature(const Batch& batch) {
  return fmt::format(" {} {} {} {}", batch.block, batch.tail, batch.scored > 0,
                     static_cast<int>(batch.begin));
}

ForwardInput forward_input(const Batch& batch, Device device) {
  ForwardInput input;
  input.tokens = raw::to_device(batch.tokens, device);
  input.block = batch.block;
  input.tail = batch.tail;
  return input;
}

State CarriedState::before(const Batch& batch) const {
  return rows != batch.tokens.dim(0) || batch.begin == RowsBegin::all ? State() : state;
}

ForwardInput CarriedState::input(const Batch& batch, Device device, const Model& model) const {
  ForwardInput input = forward_input(batch, device);
  input.state = before(batch);
  if (input.state.empty() || batch.begin != RowsBegin::some) return input;
  input.start = Tensor::zeros({rows, model.segments(batch.tokens.dim(1))}, Dtype::i64, batch.start.device());
  raw::copy_into(raw::narrow(input.start, 1, 0, 1), batch.start);
  return input;
}

void CarriedState::update(const State& after, const Batch& batch) {
  state = after.detach();
  rows = batch.tokens.dim(0);
}

}  // namespace eddy::training
