// The block-wise recurrent transformer (Liang): memory attention, and the Llama it is compared with.
//
//   llama         causal attention over the whole call
//   llama_window  the same weights; a token sees `window` keys, its own among them
//   memory_llama  tokens come in chunks of C. In every layer, with that layer's memory M of C rows:
//                   E = evolve(M);  K = [Wkm E; Wk X], V = [Wvm E; Wv X], rotated at 0 .. 2C-1
//                   O = softmax(Q K^T / sqrt(head_dim)) V, causal behind the memory
//                   next M = O, taken before Wo;  the layer goes on with Wo O
//
// Chunk t of layer l needs (l-1, t) and (l, t-1). `forward` goes layer by layer: all that does not depend on
// the memory is done for all chunks at once. `ForwardInput::literal` goes chunk by chunk, as streaming does;
// with dropout it draws other masks. Going along anti-diagonals would put products of different weights side
// by side, not make larger ones of them: on two threads a step has nothing in it (docs/performance.md).
#pragma once

#include <string>
#include <vector>

#include "models/blockwise_recurrent/layer.h"

namespace eddy {

// What the three models share: embeddings, layers, head.
class LlamaModel : public Model {
 public:
  LlamaModel(const ModelConfig& config, const ParamScope& scope);

 protected:
  // errors: ShapeError unless tokens are [batch, time] and there is at least one.
  void check_tokens(const Tensor& tokens) const;
  // The tensor of that name, seen to have this dtype and shape: [layers, batch, ...].
  // errors: ShapeError when the batch is another than that of the tokens, or the rest does not fit;
  // DtypeError; ValueError when the state has no such tensor.
  const Tensor& state_part(const State& state, const char* name, const Shape& shape, Dtype dtype) const;
  // A counter of the state, from 0 to `most`.
  // errors: ValueError.
  std::int64_t state_count(const State& state, const char* name, std::int64_t most) const;

  Tensor embed(const Tensor& tokens) const;
  Classifier head(const Tensor& y) const;
  // Multiply-adds per token of all that has no counterpart in the memory, attention left out.
  double trunk_macs() const;

  std::vector<LlamaLayer> layers_;

 private:
  Embedding embed_;
  LlamaNorm final_norm_;
  Tensor head_weight_;  // the token table when tied
};

// llama and llama_window.
class CausalLlama final : public LlamaModel {
 public:
  using LlamaModel::LlamaModel;

  // Positions count from the first token of the call; there is no longest sequence.
  // errors: as Model::forward; ValueError for a state: these models carry none from call to call.
  ForwardOutput forward(const ForwardInput& input) const override;
  // State: position [1], the tokens so far; filled [1], the rows in use of keys and values [layers, batch,
  // rows, kv_heads, head_dim], rotated. llama has `context` rows and fills them. llama_window has twice the
  // window: when they are full, those in sight move to the front. Written in place where no
  // other handle sees the bytes: copies of a state go on independently.
  Tensor stream(const Tensor& tokens, State& state) const override;
  std::int64_t stream_room(const State& state) const override;
  double forward_macs_per_token(std::int64_t time) const override;

 private:
  bool windowed() const { return config().model == "llama_window"; }
};

// State of `forward`: memory [layers, batch, chunk, dim], raw: the last complete chunk's O, or, when the call
// has no complete chunk, the memory it began with.
class MemoryLlama final : public LlamaModel {
 public:
  using LlamaModel::LlamaModel;

  // Chunks are counted from the first token of the call; the last may be shorter, and leaves no trace in the
  // state. A carried memory is a constant. Rows flagged in `start`, all rows without a state, and all rows
  // when the state is of another batch size, begin with the initial memory.
  // errors: as Model::forward; ShapeError, DtypeError for a state or a start that does not fit; ValueError
  // for a state that stands inside a chunk, and for training that carries a memory over segments that are not
  // whole chunks: tokens of the last would be lost.
  ForwardOutput forward(const ForwardInput& input) const override;
  void check_length(std::int64_t time, bool carried) const override;
  std::string unused_by(std::int64_t time, bool carried) const override;
  // State: filled [1], the tokens n of the unfinished chunk; keys, values [layers, batch, 2 chunk, kv_heads,
  // head_dim]: rotated ones of the memory in the first rows, of the unfinished chunk in n more; memory
  // [layers, batch, chunk, dim]: the outputs of the unfinished chunk in the first n rows. With n = 0 `memory`
  // is the raw memory, and the state is one for `forward` too; the other way round, `stream` takes a state of
  // `forward`. Written in place where no other handle sees the bytes: copies of a state go on independently.
  Tensor stream(const Tensor& tokens, State& state) const override;
  std::int64_t stream_room(const State&) const override { return -1; }
  double forward_macs_per_token(std::int64_t time) const override;

 private:
  // The memories that a call begins with, one per layer: [batch, chunk, dim], or [1, chunk, dim] for one that
  // all rows share.
  std::vector<Tensor> first_memories(const ForwardInput& input) const;
  Tensor initial_memory(const LlamaLayer& layer) const;  // [1, chunk, dim]
  // What a chunk reads of a memory, the key rotated.
  KeyValue memory_rows(const LlamaLayer& layer, const Tensor& memory, const DropoutSite& drop,
                       std::uint64_t call) const;
  // x [batch, time, heads, head_dim] with positions chunk, chunk + 1, ... beginning anew in every chunk.
  Tensor rotate_chunks(const Tensor& x) const;

  // A layer over all chunks of a segment, or over one; `memory` moves on to the last complete chunk's.
  Tensor run_hoisted(const LlamaLayer& layer, const Tensor& x, const DropoutSite& drop, Tensor& memory) const;
  Tensor run_literal(const LlamaLayer& layer, const Tensor& x, const DropoutSite& drop, std::uint64_t chunk,
                     Tensor& memory) const;

  void open_stream(State& state, std::int64_t batch) const;
  Tensor stream_piece(const Tensor& x, const State& state, std::int64_t filled) const;
  void refresh_memory(const State& state) const;
};

}  // namespace eddy
