// Recurrent transformers over blocks (Kausik 2025). The embedded sequence is cut into blocks x_1 .. x_n of w
// positions, the last one of r <= w, and T is one pre-norm causal transformer layer:
//
//   forget:      h_1            = T(x_1)
//                (y_{i-1}, h_i) = T(h_{i-1} || x_i)                   i = 2 .. n, one layer after the other
//                y_n            = T(h_n)
//
//   accumulate:  h_1            = T(x_1),  p_0 = x_1
//                (y_{i-1}, h_i) = T(p/2 + h_{i-1} || p/2 + x_i)       p = p_{i-2}
//                p_{i-1}        = y_{i-1}                             accumulate = "output"
//                               = h_{i-1}                             accumulate = "hidden", the paper's text
//                y_n            = T(h_n)
//
// The factor 1/2 is the key accumulate_factor.
//
// The first half of a window cannot see the second. So the second half needs only keys and values of the
// first, and in the forget variant y_i = T(h_i) for every i. The outputs that are read are computed after
// the loop.
//
// Rows are stored block by block, [blocks, batch, w, dim]. So what a step of the loop reads is contiguous,
// and the rows of each product are those of the whole batch.
#pragma once

#include <optional>
#include <utility>
#include <vector>

#include "models/recurrent_transformer/recurrent_transformer.h"
#include "ops/recurrence/block_recurrence.h"

namespace eddy {

// The rows of all blocks of a batch of sequences.
struct BlockRows {
  Tensor full;  // [blocks, batch, w, width]; undefined without a complete block
  Tensor rest;  // [batch, r, width] with r < w; undefined if w divides the sequence

  // Applies f(part, 0 or 1) to both parts.
  template <class F>
  BlockRows map(F&& f) const {
    return {full.defined() ? f(full, 0) : Tensor(), rest.defined() ? f(rest, 1) : Tensor()};
  }
  // One tensor per block, [batch, w or r, width].
  std::vector<Tensor> blocks() const;
  // The parts that there are, and the rows of such parts.
  std::vector<Tensor> parts() const;
  static BlockRows of_parts(const std::vector<Tensor>& parts, bool has_full);
};

// The blocks of a sequence, and which of its outputs are read.
struct BlockPlan {
  std::int64_t batch, time, block;
  std::int64_t first_read;  // outputs are read from this position on
  bool recomputes = false;  // whether a block's activations are computed again

  std::int64_t count() const { return (time + block - 1) / block; }
  std::int64_t full() const { return time / block; }
  std::int64_t length(std::int64_t i) const { return i < full() ? block : time - full() * block; }
  // The number of rows of block i that are not read, 0 .. length(i).
  std::int64_t skipped(std::int64_t i) const;
  bool is_read(std::int64_t i) const { return skipped(i) < length(i); }
};

// What the two variants share: the layout, the readout, and the limits of a stream.
class BlockRecurrence : public RecurrentTransformer {
 public:
  using RecurrentTransformer::RecurrentTransformer;
  // The outputs in blocks of input.block positions, or of config().block if that is 0.
  // errors: as Model::forward; ValueError for a negative block.
  ForwardOutput forward(const ForwardInput& input) const override;
  bool has_blocks() const final { return true; }
  std::optional<std::vector<std::int64_t>> stream_signature(const State& state) const override;
  Tensor stream(const Tensor& tokens, State& state) const override;

 protected:
  // The outputs of all blocks of a layer below the last one.
  virtual BlockRows run_layer(const WindowLayer& layer, const BlockRows& x, const BlockPlan& plan,
                              CarriedRows& carried) const = 0;
  // The outputs [batch, positions read, dim] of the last layer.
  virtual Tensor run_last_layer(const WindowLayer& layer, const BlockRows& x, const BlockPlan& plan,
                                CarriedRows& carried) const = 0;
  // The literal form of one layer, over x [batch, time, dim] (literal.cpp).
  virtual Tensor run_literal(const TransformerLayer& layer, const Tensor& x, const DropoutSite& drop,
                             std::int64_t block, CarriedRows& carried) const = 0;

  // What one of the ops of ops/recurrence/block_recurrence.h gives for all blocks of a layer by one kernel; nothing
  // where it does not take the device or the sizes, the call keeps a state, or values inside are captured. `calls`:
  // those whose dropout masks the halves have, in the order of the op's keys.
  static std::optional<BlockRows> as_one(decltype(block_accumulate)& recurrence, const WindowLayer& layer,
                                         const BlockRows& x, const BlockPlan& plan,
                                         const CarriedRows& carried, const std::vector<std::uint64_t>& calls,
                                         bool spreads_output = true);

  // Streaming in one layer: the outputs of the next rows x [batch, rows, dim], which are in one block. State
  // of the layer `name`:
  //   past            keys and values of the window's first half, from the previous block
  //   half            p/2, added to the block's rows                                           (accumulate)
  //   spread          the next p, half of which is added to the next block's rows              (accumulate)
  //   x, h            keys and values of the block's rows so far, as x_i and as h_i
  //   rows_x, rows_h  these rows themselves if keeps_rows(); rows_x only in the first block    (accumulate)
  Tensor stream_rows(const WindowLayer& layer, const std::string& name, const Tensor& x, State& state) const;
  // Ends a complete block: stores what the next one needs as `past` (and `half`) and drops the rest. `x`: the
  // block's outputs of the layer below, given that another block follows; undefined if that changes nothing.
  // Returns these outputs of this layer.
  virtual Tensor end_block(const WindowLayer& layer, const std::string& name, const Tensor& x,
                           State& state) const = 0;
  // Whether end_block reads the rows x (of the first block) and h; then they are kept as `rows_x` and
  // `rows_h`.
  virtual bool keeps_rows() const = 0;

 private:
  BlockRows embed_blocks(const Tensor& tokens, const BlockPlan& plan, const DropoutSite& drop) const;
  std::int64_t block_of(const ForwardInput& input) const;
  Tensor run_layers(const Tensor& x, std::int64_t rows, const DropoutSite& drop, const ForwardInput& input,
                    CarriedRows& carried) const final;
  bool time_major(bool) const final { return false; }
  StateLayout stream_layout(std::int64_t batch, std::int64_t position) const final;
};

// A call is cut into blocks from its first token. With keep_state the rows of its last block, also of a short one, are
// the first half of the next call's first window; calls of whole blocks equal one call, and a stream.
class BlockForget final : public BlockRecurrence {
 public:
  using BlockRecurrence::BlockRecurrence;

 private:
  // The states h of all blocks with their keys and values, a tensor each; or the states alone, where one kernel made
  // them. Dropout masks are those of calls 0 .. n-1.
  struct Chain {
    std::vector<Tensor> h, key_value;
    std::optional<BlockRows> states;

    // h, and keys and values, of the blocks [begin, end), which have equal lengths, as one batch of windows.
    std::pair<Tensor, Tensor> windows(const WindowLayer& layer, std::int64_t begin, std::int64_t end) const;
  };
  static Chain run_chain(const WindowLayer& layer, const BlockRows& x, const BlockPlan& plan,
                         CarriedRows& carried);
  BlockRows run_layer(const WindowLayer& layer, const BlockRows& x, const BlockPlan& plan,
                      CarriedRows& carried) const override;
  Tensor run_last_layer(const WindowLayer& layer, const BlockRows& x, const BlockPlan& plan,
                        CarriedRows& carried) const override;
  Tensor run_literal(const TransformerLayer& layer, const Tensor& x, const DropoutSite& drop,
                     std::int64_t block, CarriedRows& carried) const override;
  Tensor end_block(const WindowLayer& layer, const std::string& name, const Tensor& x,
                   State& state) const override;
  bool keeps_rows() const override { return false; }
  StateLayout carried_layout(std::int64_t batch) const override { return hidden_layout(batch, 1, 1); }
  StateLayout whole_layout(std::int64_t batch) const override {
    return hidden_layout(batch, config().block, -1);
  }
  void open_layer(State& stream, const WindowLayer& layer, const CarriedRows& carried) const override;
};

// The outputs of a block depend on whether it is the last one (y_n = T(h_n) without p). A stream answers each
// position as if the sequence ended there: it computes the closing step for the answer only, and the state
// continues without it.
//
// So with keep_state a call's state is (p, h) of its last block given that another follows: layers above the first run
// that block again. A call that ends inside a block leaves none.
class BlockAccumulate final : public BlockRecurrence {
 public:
  using BlockRecurrence::BlockRecurrence;
  // errors: ValueError if training carries a state over calls that are not whole blocks.
  void check_length(std::int64_t time, bool carried) const override;

 private:
  // The outputs of all blocks by one kernel, where as_one has it.
  std::optional<BlockRows> run_fused(const WindowLayer& layer, const BlockRows& x, const BlockPlan& plan,
                                     const CarriedRows& carried) const;
  // The outputs of each block, from the first row that is read; undefined for blocks that are not read.
  std::vector<Tensor> run_chain(const WindowLayer& layer, const BlockRows& x, const BlockPlan& plan,
                                CarriedRows& carried) const;
  // The first window of a call that goes on: p/2, keys and values of p/2 + h, and what becomes the next p. All
  // undefined without a state.
  struct Window {
    Tensor half, past, spread;
  };
  Window carried_window(const WindowLayer& layer, const CarriedRows& carried, Dtype dtype) const;
  // Whether a call leaves a state: it ends with a whole block of model.block rows.
  bool leaves_state(const CarriedRows& carried, std::int64_t time, std::int64_t block) const {
    return carried.keeps && block == config().block && time % block == 0;
  }
  BlockRows run_layer(const WindowLayer& layer, const BlockRows& x, const BlockPlan& plan,
                      CarriedRows& carried) const override;
  Tensor run_last_layer(const WindowLayer& layer, const BlockRows& x, const BlockPlan& plan,
                        CarriedRows& carried) const override;
  Tensor run_literal(const TransformerLayer& layer, const Tensor& x, const DropoutSite& drop,
                     std::int64_t block, CarriedRows& carried) const override;
  Tensor end_block(const WindowLayer& layer, const std::string& name, const Tensor& x,
                   State& state) const override;
  bool keeps_rows() const override { return true; }
  StateLayout carried_layout(std::int64_t batch) const override;
  void open_layer(State& stream, const WindowLayer& layer, const CarriedRows& carried) const override;
  bool spreads_output() const {
    return value_is(config().accumulate, recurrent_transformer::Accumulate::output);
  }
};

}  // namespace eddy
