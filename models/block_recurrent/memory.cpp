// The external memory: search, attention to what was found, and the mix.
#include "models/block_recurrent/memory.h"

#include "autograd/named_values.h"
#include "autograd/scope.h"
#include "autograd/tape.h"
#include "ops/cast/upcast.h"
#include "ops/ops.h"

namespace eddy {
MemoryEntries empty_memory(std::int64_t batch, const block_recurrent::Config& config, Dtype dtype,
                           Device device) {
  const Shape shape{batch, config.memory_size, config.heads, config.head_dim};
  return {Tensor::zeros(shape, dtype, device), Tensor::zeros(shape, dtype, device),
          Tensor::zeros({batch}, Dtype::i64, device)};
}

ExternalMemory::ExternalMemory(const ParamScope& scope, const block_recurrent::Config& config)
    : topk_(config.memory_topk),
      search_(value_is(config.memory_search, MemorySearch::exact) ? MemorySearch::exact
                                                                  : MemorySearch::bucket),
      gate_bias_(scope.param("gate_bias", {config.heads}, Init::zeros())) {}

Tensor ExternalMemory::mix(const Tensor& local, const Tensor& q, const MemoryEntries& entries,
                           const Tensor& head_scale, bool literal) const {
  const ScopeGuard scope("memory");
  const std::int64_t tokens = q.dim(0) * q.dim(1), heads = q.dim(2), head_dim = q.dim(3);
  const MemoryMatches taken = memory_search(upcast(detach(q)), entries.keys, entries.values, topk_, search_,
                                            matmul_precision(gate_bias_));
  const Shape pairs{tokens, topk_, heads, head_dim};
  const auto found_rows = [&](const Tensor& rows) { return cast(raw::reshape(rows, pairs), q.dtype()); };
  const Tensor keys = found_rows(taken.keys), values = found_rows(taken.values);
  AttentionOptions options;
  options.scale = 1;
  options.precision = matmul_precision(gate_bias_);
  options.head_scale = head_scale;
  const Tensor queries = reshape(q, {tokens, 1, heads, head_dim});
  const Tensor found = reshape(literal ? detail::attention_bthd_composed(queries, keys, values, options)
                                       : attention_bthd(queries, keys, values, options),
                               local.shape());
  const Tensor gate = reshape(sigmoid(gate_bias_), {heads, 1});
  name_value("gate", gate);
  const Tensor own = upcast(local);
  return cast(own + (upcast(found) - own) * gate, local.dtype());
}

}  // namespace eddy
