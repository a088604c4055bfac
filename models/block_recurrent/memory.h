// The external memory of the Memorizing Transformer baseline: a ring buffer of a layer's past keys and
// values. Each query of each head attends to the `topk` best pairs. A learned gate per head mixes the result
// with local attention:
//
//   y = (1 - g) y_local + g y_memory,   g = sigmoid(gate_bias[head])
//
// The search is ops/memory/memory_search.h, writing is ops/memory/memory_write.h.
// Source: Y. Wu et al., "Memorizing Transformers", 2022.
#pragma once

#include <cstdint>

#include "models/block_recurrent/config.h"
#include "models/params.h"
#include "ops/memory/memory_search.h"
#include "ops/memory/memory_write.h"

namespace eddy {

// An empty memory of one layer, as at the beginning of a document.
MemoryEntries empty_memory(std::int64_t batch, const block_recurrent::Config& config, Dtype dtype,
                           Device device);

// The search and the mix of one layer.
class ExternalMemory {
 public:
  ExternalMemory(const ParamScope& scope, const block_recurrent::Config& config);

  // Local attention mixed with attention of the same queries to the memory.
  // shapes: local and q [batch, time, heads, head_dim]; head_scale [heads].
  // grad: for local, q, head_scale and the gate; the entries and their choice are constants.
  Tensor mix(const Tensor& local, const Tensor& q, const MemoryEntries& entries, const Tensor& head_scale,
             bool literal) const;

 private:
  std::int64_t topk_;
  MemorySearch search_;
  Tensor gate_bias_;  // [heads]
};

}  // namespace eddy
