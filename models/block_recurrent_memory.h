// The external memory of the Memorizing Transformer baseline: a ring of a layer's past keys and values, from
// which every query of every head takes the best `topk` pairs and attends to them; a learned gate per head
// mixes the result with local attention.
// source: Y. Wu et al., "Memorizing Transformers", 2022; the search by buckets and the absence of an exact
// kNN are those of D. Hutchins et al.'s code: entry m is in bucket m mod topk, and of each bucket the best is
// taken with weights softmax(1e6 score), so that equal ones are averaged.
#pragma once

#include <cstdint>
#include <vector>

#include "models/block_recurrent_attention.h"
#include "models/params.h"

namespace eddy {

// One layer's memory. Empty entries are zeros; the next one goes to slot count mod size.
struct MemoryEntries {
  Tensor keys, values;              // [batch, size, heads, head_dim]
  std::vector<std::int64_t> count;  // of each sequence: entries written since its document began

  // Memories without entries.
  static MemoryEntries empty(std::int64_t batch, const ModelConfig& config, Dtype dtype, Device device);
  // The same with the flagged sequences emptied.
  MemoryEntries emptied(const std::vector<bool>& flagged) const;
  // The memory after `keys` and `values` [batch, rows, heads, head_dim], rows <= size; no gradient passes.
  MemoryEntries with(const Tensor& new_keys, const Tensor& new_values) const;
};

// y = (1 - g) y_local + g y_memory, g = sigmoid(gate_bias[head]).
class ExternalMemory {
 public:
  ExternalMemory(const ParamScope& scope, const ModelConfig& config);

  // Local attention mixed with what the memory gives to the same queries.
  // shapes: local and q [batch, time, heads, head_dim]; head_scale [heads]. errors: DeviceError when the
  // memory is not on the CPU. grad: for local, q, head_scale and the gate; the entries, and which are taken,
  // are constants.
  Tensor mix(const Tensor& local, const Tensor& q, const MemoryEntries& entries, const Tensor& head_scale,
             bool dense) const;

 private:
  // The pairs taken, [batch, time, topk, heads, head_dim] each; zeros where there are fewer entries.
  struct Taken {
    Tensor keys, values;
  };
  Taken search(const Tensor& q, const MemoryEntries& entries) const;

  std::int64_t topk_;
  bool exact_;
  Tensor gate_bias_;  // [heads]
};

}  // namespace eddy
