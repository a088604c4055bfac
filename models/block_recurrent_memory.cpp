// The ring of entries, and the mix.
#include "models/block_recurrent_memory.h"

#include <algorithm>

#include "autograd/scope.h"
#include "autograd/tape.h"
#include "ops/pointwise.h"
#include "ops/views.h"
#include "ops/widen.h"

namespace eddy {
MemoryEntries MemoryEntries::empty(std::int64_t batch, const ModelConfig& config, Dtype dtype,
                                   Device device) {
  const Shape shape{batch, config.memory_size, config.heads, config.head_dim};
  return {Tensor::zeros(shape, dtype, device), Tensor::zeros(shape, dtype, device),
          std::vector<std::int64_t>(static_cast<std::size_t>(batch), 0)};
}

MemoryEntries MemoryEntries::emptied(const std::vector<bool>& flagged) const {
  MemoryEntries result{raw::copy(keys), raw::copy(values), count};
  for (std::size_t b = 0; b < count.size(); ++b) {
    if (!flagged[b]) continue;
    for (const Tensor& part : {result.keys, result.values})
      raw::fill(raw::select(part, 0, static_cast<std::int64_t>(b)), 0);
    result.count[b] = 0;
  }
  return result;
}

MemoryEntries MemoryEntries::with(const Tensor& new_keys, const Tensor& new_values) const {
  const std::int64_t size = keys.dim(1), rows = new_keys.dim(1);
  MemoryEntries result{raw::copy(keys), raw::copy(values), count};
  for (std::size_t b = 0; b < count.size(); ++b) {
    const auto sequence = static_cast<std::int64_t>(b);
    const std::int64_t slot = count[b] % size, before_end = std::min(rows, size - slot);
    const auto write = [&](const Tensor& to, const Tensor& from) {
      const Tensor ring = raw::select(to, 0, sequence), fresh = raw::select(from, 0, sequence);
      raw::cast_into(raw::narrow(ring, 0, slot, before_end), raw::narrow(fresh, 0, 0, before_end));
      raw::cast_into(raw::narrow(ring, 0, 0, rows - before_end),
                     raw::narrow(fresh, 0, before_end, rows - before_end));
    };
    write(result.keys, new_keys);
    write(result.values, new_values);
    result.count[b] += rows;
  }
  return result;
}

ExternalMemory::ExternalMemory(const ParamScope& scope, const ModelConfig& config)
    : topk_(config.memory_topk),
      search_(config.memory_search == "exact" ? MemorySearch::exact : MemorySearch::bucket),
      gate_bias_(scope.param("gate_bias", {config.heads}, Init::zeros())) {}

Tensor ExternalMemory::mix(const Tensor& local, const Tensor& q, const MemoryEntries& entries,
                           const Tensor& head_scale, bool dense) const {
  const ScopeGuard scope("memory");
  const std::int64_t tokens = q.dim(0) * q.dim(1), heads = q.dim(2), head_dim = q.dim(3);
  const TakenPairs taken = memory_search(wide(detach(q)), entries.keys, entries.values, topk_, search_);
  const Shape pairs{tokens, topk_, heads, head_dim};
  const auto found_rows = [&](const Tensor& rows) { return cast(raw::reshape(rows, pairs), q.dtype()); };
  const Tensor keys = found_rows(taken.keys), values = found_rows(taken.values);
  AttentionOptions options;
  options.scale = 1;
  options.head_scale = head_scale;
  const Tensor queries = reshape(q, {tokens, 1, heads, head_dim});
  const Tensor found = reshape(
      dense ? attention_composed(queries, keys, values, options) : attention(queries, keys, values, options),
      local.shape());
  const Tensor gate = reshape(sigmoid(gate_bias_), {heads, 1});
  const Tensor own = wide(local);
  return cast(own + (wide(found) - own) * gate, local.dtype());
}

}  // namespace eddy
