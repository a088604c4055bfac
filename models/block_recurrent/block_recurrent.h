// The Block-Recurrent Transformer and its baselines: slide, xl, vanilla, block_recurrent, memorizing.
//
//   x      = E[tokens]
//   x      = layer_L(.. layer_1(x))               block_recurrent/layer.h
//   logits = RMSNorm(x) E^T / sqrt(dim)
//
// The keys of other families have no effect here. Parameters are initialised as in the paper, not with
// init_std.
// Source: D. Hutchins, I. Schlag, Y. Wu, E. Dyer, B. Neyshabur, "Block-Recurrent Transformers", 2022.
#pragma once

#include <vector>

#include "models/block_recurrent/layer.h"
#include "models/model.h"

namespace eddy {

// A sequence is cut into segments of `segment` tokens, a segment into blocks of `window`. Keys and values of
// the last block, the states and the memory are passed to the next segment, detached. In a segment the states
// of a recurrent layer form a chain with one cell per block, and block t reads the state before it:
//
//     c_0 --cell--> c_1 --cell--> c_2 -->          a loop: cell t needs c_t and the keys of blocks t-1 and t
//      |             |             |
//   block 0       block 1       block 2            parallel over the segment: all the rest
//
// So projections, token attention (one band over cached and new keys), attention to all states and the MLP
// run once per segment. With feedback every layer reads a state, and the whole stack runs block by block.
class BlockRecurrent final : public FamilyModel<block_recurrent::Keys> {
 public:
  BlockRecurrent(const block_recurrent::Config& config, const ParamScope& scope);

  // The logits of whole segments. Time must be a multiple of config().window; the last segment may be shorter
  // than the others. No gradient passes from segment to segment. input.start flags rows in which a document
  // begins with a segment. They get zero keys and values (which are not masked), the learned initial state
  // and an empty memory. An empty state flags all rows of the first segment. input.literal: literal.cpp.
  //
  // State (detached); vanilla has none:
  //   layers.i.k, layers.i.v           [batch, window, heads, head_dim]        of the last tokens, unit keys
  //   layers.i.state                   [batch, states, dim]
  //   layers.i.mem_k, layers.i.mem_v   [batch, memory_size, heads, head_dim]
  //   layers.i.mem_count               [batch] i64
  // The state of a stream is accepted between two blocks; with a memory, only between two segments.
  // errors: ShapeError for tokens, flags or states of other sizes; DtypeError; ValueError.
  ForwardOutput forward(const ForwardInput& input) const override;
  void check_length(std::int64_t time, bool carried) const override;
  std::int64_t segments(std::int64_t time) const override;
  bool has_blocks() const override { return !config().recurrent_layers.empty(); }
  // recurrent_layers: the last layer; memory_layers likewise, with twice a segment in the memory; and one window
  // per segment in xl and vanilla.
  static void fit_to_sizes(block_recurrent::Config& config);

  // The same logits token by token, in calls of any length, from an empty state or one of forward. The state
  // does not grow. It is that of forward, with 2 window rows in layers.i.k and layers.i.v, and with what the
  // current block needs: position, layers.i.state_k, layers.i.state_v, and with a memory layers.i.segment_k,
  // layers.i.segment_v.
  // aliasing: rows are written in place. To continue twice from one state, copy its tensors first.
  Tensor stream(const Tensor& tokens, State& state) const override;
  std::int64_t remaining_context(const State&) const override { return -1; }
  std::optional<std::vector<std::int64_t>> stream_signature(const State& state) const override;
  std::int64_t stream_period() const override;

  // A state with initial states and an empty memory; keys and values of the last tokens stay.
  State without_recurrence(const State& state) const override;
  // Two numbers for each recurrent layer i. If there are several such layers, the names end in "_i".
  //   "state_gate"     the mean share of a state that a gate keeps at input 0:
  //                    sigmoid(bg), in lstm gates sigmoid(bf + 1)
  //   "state_spread"   the standard deviation between the state vectors of a sequence, mean over sequences
  //                    and channels; 0 when all vectors are equal
  // source: appendix B of the paper, which describes how training may fail.
  bool is_recurrent() const override {
    return config().model == "block_recurrent" || config().model == "memorizing";
  }
  std::vector<std::pair<std::string, double>> diagnostics(const State& state) const override;

 private:
  // What a layer carries from segment to segment.
  struct Carry {
    Tensor k, v;   // [batch, window, heads, head_dim]; undefined without cache
    Tensor state;  // [batch, states, dim]; undefined without cell
    std::optional<MemoryEntries> memory;
  };
  struct Stream;  // a stream's state, unpacked (stream.cpp)

  bool cached() const { return config().cache && config().model != "vanilla"; }
  BlockCall call_of(const ForwardInput& input) const;
  // What the product with the embeddings is multiplied by for the logits.
  double logit_factor() const;

  // The tensors of a state of forward and of stream, and what both have, with `rows` rows of keys and values.
  StateLayout state_layout(std::int64_t batch) const;
  StateLayout stream_layout(std::int64_t batch) const;
  StateLayout rows_layout(std::int64_t batch, std::int64_t rows, StateTensor::Kind kind) const;
  // The carry if a document begins in every row; begin_segment need not be called.
  std::vector<Carry> cold_carry(std::int64_t batch) const;
  std::vector<Carry> load_carry(const State& state, std::int64_t batch) const;
  MemoryEntries load_memory(const State& state, const std::string& name) const;
  State save_carry(const std::vector<Carry>& carry) const;
  static void save_memory(State& state, const std::string& name, const MemoryEntries& entries);
  // Resets the carry of rows in which a document begins (start_flags).
  void begin_segment(std::vector<Carry>& carry, const Tensor& flags) const;

  // One segment through all layers, layer by layer (the fast form) or block by block (literal.cpp). Both move
  // `carry` past it.
  Tensor run_layers(const Tensor& x, std::vector<Carry>& carry, const BlockCall& call) const;
  Tensor run_layer(const BlockRecurrentLayer& layer, const Tensor& x, Carry& own,
                   const BlockCall& call) const;
  Tensor run_blocks(const Tensor& x, std::vector<Carry>& carry, BlockCall call) const;
  // One block through all layers; moves `carry` past it, where k and v become those of the block. `last` of its
  // segment.
  Tensor run_block(const Tensor& x, std::vector<Carry>& carry, const std::vector<CellScales>& scales,
                   const BlockCall& call, bool last) const;
  // Keys and values of the states that the segment's blocks read; updates c to the end of the segment.
  StateRead run_chain(const RecurrentCell& cell, Tensor& c, const KeysValues& tokens, std::int64_t time,
                      const BlockCall& call) const;
  // The layer whose state layer i reads; -1 for none.
  std::int64_t source_of(std::int64_t layer) const;

  // errors: ShapeError, DtypeError, ValueError before anything is written.
  Stream open_stream(const State& state, std::int64_t batch) const;
  void read_states(Stream& stream) const;
  Tensor run_piece(Stream& stream, const Tensor& x, const BlockCall& call) const;
  void end_block(Stream& stream) const;
  void close_stream(const Stream& stream, State& state) const;

  Tensor embed_;
  std::vector<BlockRecurrentLayer> layers_;
  Tensor final_norm_;
  std::int64_t highest_ = -1;  // with feedback: the recurrent layer whose state all other layers read
};

}  // namespace eddy
