// The layer of the Llama models and of memory attention: RMS norms, rotary positions, grouped heads, a gated
// MLP, and the evolution of a memory between two chunks.
//
//   layer    h      = x + Wo A(Norm(x))
//            y      = h + MLP(Norm(h))
//            MLP(z) = Wdown (silu(Wgate z) * (Wup z))
//
//   memory   M'     = M, or Wm M with memory_proj
//            U      = M' + MLP_m(Norm_a(M'))
//            E      = Norm_b(U)
//
// Source: Touvron et al., "LLaMA" (2023) for the trunk; Liang, "Block-wise Recurrent Transformer", equation
// 2, and its published code for the inner norm.
#pragma once

#include <optional>
#include <string>

#include "models/blockwise_recurrent/config.h"
#include "models/dropout_site.h"
#include "models/layers.h"
#include "models/model.h"
#include "ops/attention/attention.h"

namespace eddy {

// The gated MLP. As in the published code, `up` starts with the smaller deviation of projections into the
// residual stream, and `down` with the usual one.
class LlamaMlp {
 public:
  LlamaMlp(const ParamScope& scope, const blockwise_recurrent::Config& config);
  Tensor operator()(const Tensor& x) const;

  Linear gate, up, down;
};

// A layer's memory: its initial value, its evolution, and its projections.
class LlamaMemory {
 public:
  LlamaMemory(const ParamScope& scope, std::string path, const blockwise_recurrent::Config& config);

  // E for memories [batch, chunk, dim]; dropout masks are those of call `call`.
  Tensor evolve(const Tensor& memory, const DropoutSite& drop, std::uint64_t call) const;

  const std::string path;
  Tensor init;  // [chunk, dim]; undefined if the initial memory is zero
  std::optional<Linear> proj;
  std::optional<RmsNorm> mlp_norm;
  std::optional<LlamaMlp> mlp;
  std::optional<RmsNorm> norm;
  std::optional<Linear> wk, wv;  // absent if the memory uses those of the layer
  // The memory's query, for checkpoints that have one. It is never used, because nothing would read the
  // attention of memory rows.
  Tensor dead_query;
};

// Keys and values of rows, [batch, time, kv_heads, head_dim] each.
struct KeyValue {
  Tensor key, value;
};

class LlamaLayer {
 public:
  // With a memory if the model has one.
  LlamaLayer(const ParamScope& scope, std::string path, const blockwise_recurrent::Config& config);

  // Projections of normed rows [batch, time, dim], split into heads: [batch, time, heads, head_dim], keys and
  // values with kv_heads heads. Not rotated.
  Tensor query(const Tensor& rows) const;
  Tensor key(const Tensor& rows) const;
  Tensor value(const Tensor& rows) const;
  // The causal attention of a chunk.
  AttentionOptions chunk_attention(const DropoutSite& drop, std::uint64_t chunk) const;
  // Key and value of an evolved memory.
  KeyValue memory_rows(const Tensor& evolved) const;

  // The attention of the layer's queries, as `attention_bthd`.
  Tensor attend(const Tensor& query, const Tensor& key, const Tensor& value,
                const AttentionOptions& options) const;
  // The layer's output for the residual stream x [batch, time, dim] and the attention output [batch, time,
  // heads, head_dim].
  Tensor finish(const Tensor& x, const Tensor& attended, const DropoutSite& drop, std::uint64_t call) const;

  const std::string path;
  std::int64_t heads, kv_heads, head_dim;
  RmsNorm attn_norm;
  Linear wq, wk, wv, wo;
  std::optional<LlamaMemory> memory;
  RmsNorm mlp_norm;
  LlamaMlp mlp;
};

}  // namespace eddy
