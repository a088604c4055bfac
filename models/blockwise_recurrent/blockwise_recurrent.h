// The block-wise recurrent transformer (Liang): memory attention, and the Llama that it is compared with.
//
//   llama          causal attention over the whole call
//   llama_window   the same weights; a token sees `window` keys, its own among them
//   memory_llama   tokens come in chunks X of C; every layer has a memory M of C rows:
//                    E      = evolve(M)                              layer.h
//                    K, V   = [Wkm E; Wk X], [Wvm E; Wv X]           keys rotated at positions 0 .. 2C-1
//                    O      = softmax(Q K^T / sqrt(head_dim)) V      all of the memory, causal in the chunk
//                    next M = O                                      taken before Wo
//                    the layer continues with Wo O
//
// Chunk t of layer l needs (l-1, t) and (l, t-1). The fast form goes layer by layer: it computes what does
// not depend on the memory for all chunks at once. The literal form goes chunk by chunk, as streaming does;
// with dropout it draws other masks. Going along anti-diagonals would run products of different weights side
// by side, but not merge them into larger ones: on two threads that gains nothing (docs/choices.md).
#pragma once

#include <string>
#include <vector>

#include "models/blockwise_recurrent/layer.h"

namespace eddy {

// What the three models share: embedding, layers, head.
class LlamaModel : public FamilyModel<blockwise_recurrent::Keys> {
 public:
  LlamaModel(const blockwise_recurrent::Config& config, const ParamScope& scope);

 protected:
  // `keys` and `values` of a stream, with room for `rows` tokens.
  StateLayout cache_layout(std::int64_t batch, std::int64_t rows) const;
  // A counter of the state.
  // errors: ValueError unless it is from 0 to `most`.
  std::int64_t state_count(const State& state, const char* name, std::int64_t most) const;

  Tensor embed(const Tensor& tokens) const;
  Classifier head(const Tensor& y) const;

  std::vector<LlamaLayer> layers_;

 private:
  Embedding embed_;
  RmsNorm final_norm_;
  Tensor head_weight_;  // the token table when tied
};

// llama and llama_window.
class CausalLlama final : public LlamaModel {
 public:
  using LlamaModel::LlamaModel;

  // The logits of whole sequences of any length; positions count from the first token of the call. These
  // models have only this form: input.literal changes nothing.
  // errors: as Model::forward; ValueError for a state, because these models carry none from call to call.
  ForwardOutput forward(const ForwardInput& input) const override;
  // State:
  //   position       [1]                                               tokens so far
  //   filled         [1]                                               rows in use
  //   keys, values   [layers, batch, rows, kv_heads, head_dim]         keys are rotated
  // llama has `context` rows at first, and twice as many whenever they are full: keys are rotated, and no table bounds
  // the positions. llama_window has twice the window: if the rows are full, the visible ones move to the front.
  // aliasing: written in place if no other handle shares the bytes, so copies of a state continue
  // independently.
  Tensor stream(const Tensor& tokens, State& state) const override;
  std::optional<State> stream_after(const State& state, std::int64_t length) const override;
  std::optional<std::vector<std::int64_t>> stream_signature(const State&) const override {
    return std::nullopt;
  }
  std::int64_t stream_period() const override { return 1; }

 private:
  bool windowed() const { return config().model == "llama_window"; }
  Tensor run_layer(const LlamaLayer& layer, const Tensor& x, const DropoutSite& drop) const;
};

// State of `forward`: memory [layers, batch, chunk, dim], before its evolution. It is O of the last complete
// chunk, or the memory at the beginning of the call if the call has no complete chunk.
class MemoryLlama final : public LlamaModel {
 public:
  using LlamaModel::LlamaModel;

  // The logits of one segment. Chunks count from its first token. The last one may be shorter; then it does
  // not change the state. A memory from the state has no gradient. Rows flagged in `start` use the initial
  // memory, and so do all rows without a state or with a state of another batch size.
  // errors: as Model::forward; ShapeError, DtypeError for a state or a start that does not fit; ValueError
  // for a stream's state inside a chunk.
  ForwardOutput forward(const ForwardInput& input) const override;
  // errors: ValueError if training carries a memory over segments that are not whole chunks, because the
  // tokens of the last chunk would be lost.
  void check_length(std::int64_t time, bool carried) const override;
  bool is_recurrent() const override { return true; }
  bool has_blocks() const override { return true; }
  int state_row_axis(const std::string& name) const override;
  // State:
  //   filled         [1]                                            n, the tokens of the unfinished chunk
  //   keys, values   [layers, batch, 2 chunk, kv_heads, head_dim]   | memory | n of the chunk |, rotated keys
  //   memory         [layers, batch, chunk, dim]                    O of the chunk in the first n rows
  // With n = 0, `memory` is the memory itself and `forward` accepts the state. `stream` accepts a state of
  // `forward`.
  // aliasing: written in place if no other handle shares the bytes, so copies of a state continue
  // independently.
  Tensor stream(const Tensor& tokens, State& state) const override;
  std::int64_t remaining_context(const State&) const override { return -1; }
  std::optional<std::vector<std::int64_t>> stream_signature(const State& state) const override {
    return counts_of(state);
  }
  std::int64_t stream_period() const override { return config().chunk; }

 private:
  StateLayout state_layout(std::int64_t batch) const;
  StateLayout stream_layout(std::int64_t batch) const;
  // The memories at the beginning of a call, one per layer: [batch, chunk, dim], or [1, chunk, dim] if all
  // rows share one.
  std::vector<Tensor> first_memories(const ForwardInput& input) const;
  Tensor initial_memory(const LlamaLayer& layer) const;  // [1, chunk, dim]
  // Rotated keys and the values of an evolved memory.
  KeyValue memory_rows(const LlamaLayer& layer, const Tensor& memory, const DropoutSite& drop,
                       std::uint64_t call) const;
  // x [batch, time, heads, head_dim] rotated by positions chunk .. 2 chunk - 1, the same in every chunk.
  Tensor rotate_chunks(const Tensor& x) const;

  // A layer over all chunks of a segment (run_fast, the fast form), or over one chunk (run_literal,
  // literal.cpp). `memory` becomes that of the last complete chunk.
  Tensor run_fast(const LlamaLayer& layer, const Tensor& x, const DropoutSite& drop, Recompute recompute,
                  Tensor& memory) const;
  Tensor run_literal(const LlamaLayer& layer, const Tensor& x, const DropoutSite& drop, std::uint64_t chunk,
                     Tensor& memory) const;

  void open_stream(State& state, std::int64_t batch) const;
  Tensor stream_piece(const Tensor& x, State& state, std::int64_t filled) const;
  void refresh_memory(State& state) const;
};

}  // namespace eddy
