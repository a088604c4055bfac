// The external memory of the Memorizing Transformer baseline: a ring of a layer's past keys and values, from
// which every query of every head takes the best `topk` pairs and attends to them; a learned gate per head
// mixes the result with local attention.
// source: Y. Wu et al., "Memorizing Transformers", 2022; how entries are taken stands in
// ops/memory/memory_search.h, how they are written in ops/memory/memory_write.h.
#pragma once

#include <cstdint>

#include "models/block_recurrent/attention.h"
#include "models/params.h"
#include "ops/memory/memory_search.h"
#include "ops/memory/memory_write.h"

namespace eddy {

// One layer's memory before anything was written to it, and at the beginning of a document.
MemoryEntries empty_memory(std::int64_t batch, const ModelConfig& config, Dtype dtype, Device device);

// y = (1 - g) y_local + g y_memory, g = sigmoid(gate_bias[head]).
class ExternalMemory {
 public:
  ExternalMemory(const ParamScope& scope, const ModelConfig& config);

  // Local attention mixed with what the memory gives to the same queries.
  // shapes: local and q [batch, time, heads, head_dim]; head_scale [heads].
  // grad: for local, q, head_scale and the gate; the entries, and which are taken, are constants.
  Tensor mix(const Tensor& local, const Tensor& q, const MemoryEntries& entries, const Tensor& head_scale,
             bool dense) const;

 private:
  std::int64_t topk_;
  MemorySearch search_;
  Tensor gate_bias_;  // [heads]
};

}  // namespace eddy
