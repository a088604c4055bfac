// The Block-Recurrent Transformer and its baselines: slide, xl, vanilla, block_recurrent, memorizing.
//
//   x = E[tokens];  every layer of block_recurrent/layer.h;  logits = RMSNorm(x) E^T / sqrt(dim)
//
// Config keys of other families have no meaning here; initial values are the paper's and not init_std.
// source: D. Hutchins, I. Schlag, Y. Wu, E. Dyer, B. Neyshabur, "Block-Recurrent Transformers", 2022.
#pragma once

#include <vector>

#include "models/block_recurrent/layer.h"
#include "models/model.h"

namespace eddy {

// Tokens come in segments of `segment` tokens, segments in blocks of `window`. Keys and values of the last
// block, the states and the memory go from segment to segment as constants. In a segment the states of a
// recurrent layer are a chain of one cell per block, and block t reads the states from before it:
//
//     c_0 --cell--> c_1 --cell--> c_2 -->          a loop: cell t needs c_t and the keys of blocks t-1 and t
//      |             |             |
//   block 0       block 1       block 2            parallel over the segment: all the rest
//
// So projections, token attention (one band over cached and new keys), the reading of all states and the MLP
// run once per segment. With feedback every layer reads the state, and the whole stack runs block by block.
class BlockRecurrent final : public Model {
 public:
  BlockRecurrent(const ModelConfig& config, const ParamScope& scope);

  // Time must be a multiple of config().window; the last segment may be shorter than the others. No gradient
  // crosses from segment to segment. input.start flags rows whose document begins with a segment: zero keys
  // and values, which are not masked, the learned initial state and an empty memory. An empty state flags all
  // rows of the first segment. input.literal: every block through the whole stack, attention from products
  // and softmaxes.
  //
  // State: layers.i.k, layers.i.v [batch, window, heads, head_dim], unit keys and values of the last tokens;
  // layers.i.state [batch, states, dim]; layers.i.mem_k, layers.i.mem_v [batch, memory_size, heads, head_dim]
  // and layers.i.mem_count [batch] i64. vanilla has none. It carries no graph. Given a stream's state, the
  // stream must stand between two blocks, with a memory between two segments.
  // errors: ShapeError for tokens, flags or states of other sizes; DtypeError; ValueError.
  ForwardOutput forward(const ForwardInput& input) const override;
  void check_length(std::int64_t time, bool carried) const override;

  // The same numbers token by token, in any portions, beginning with an empty state or with one of forward.
  // Memory does not grow. State: that of forward, where layers.i.k and layers.i.v have room for 2 window rows
  // and are written in place (to go on twice from one state, copy its tensors first), and what the block in
  // hand needs: position, layers.i.state_k, layers.i.state_v, and layers.i.segment_k, layers.i.segment_v of a
  // memory.
  Tensor stream(const Tensor& tokens, State& state) const override;
  std::int64_t stream_room(const State&) const override { return -1; }

  // The states begin anew and the memory is empty; keys and values of the last tokens stay.
  State without_recurrence(const State& state) const override;
  // "state_gate", the mean part of a state that a gate keeps when nothing speaks for or against: sigmoid(bg),
  // in lstm gates sigmoid(bf + 1); and "state_spread", the standard deviation between a sequence's state
  // vectors, mean over sequences and channels: 0 when they have become one. With several recurrent layers the
  // names end in "_i".
  // source: appendix B of the paper names what may go wrong.
  std::vector<std::pair<std::string, double>> diagnostics(const State& state) const override;

  // Counts the pairs that attention may see, the products of cells over their blocks, and a search through
  // the whole memory.
  double forward_macs_per_token(std::int64_t time) const override;

 private:
  // What one layer carries over.
  struct Carry {
    Tensor k, v;   // [batch, window, heads, head_dim]; undefined without cache
    Tensor state;  // [batch, states, dim]; undefined without cell
    std::optional<MemoryEntries> memory;
  };
  struct Stream;  // the working form of a stream's state

  bool cached() const { return config().cache && config().model != "vanilla"; }
  BlockCall call_of(const ForwardInput& input) const;
  Classifier head(const Tensor& y) const;
  void check_tokens(const Tensor& tokens) const;

  // At the beginning of a document in every row: nothing is left to begin_segment.
  std::vector<Carry> cold_carry(std::int64_t batch) const;
  std::vector<Carry> load_carry(const State& state, std::int64_t batch) const;
  const Tensor& load(const State& state, const std::string& name, const Shape& shape) const;
  // errors: ValueError for a name that no layer carries.
  void check_names(const State& state) const;
  MemoryEntries load_memory(const State& state, const std::string& name, std::int64_t batch) const;
  State save_carry(const std::vector<Carry>& carry) const;
  static void save_memory(State& state, const std::string& name, const MemoryEntries& entries);
  // Clears what a document's first segment must not see. flags: u8 [batch], not 0 where one begins, on the
  // model's device; undefined where none does. Nothing waits for them.
  void begin_segment(std::vector<Carry>& carry, const Tensor& flags) const;
  // The flags of a segment in that form. Flags on a GPU are not read: there some rows may begin.
  Tensor flags_of(const Tensor& start, std::int64_t segment) const;

  // One segment through all layers, layer by layer or block by block; moves `carry` past it.
  Tensor run_layers(const Tensor& x, std::vector<Carry>& carry, const BlockCall& call) const;
  Tensor run_blocks(const Tensor& x, std::vector<Carry>& carry, BlockCall call) const;
  // All states that a segment's blocks read; moves c past the segment.
  StateRead run_chain(const RecurrentCell& cell, Tensor& c, const KeysValues& tokens, std::int64_t time,
                      bool dense) const;
  // Which layer's state layer i reads; -1 for none.
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
  std::int64_t highest_ = -1;  // the recurrent layer whose state feedback hands to all
};

}  // namespace eddy
