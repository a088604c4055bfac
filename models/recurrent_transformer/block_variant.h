// Recurrent transformers over blocks (Kausik 2025). The embedded sequence is cut into blocks x_1 … x_n of w
// positions, the last one of r <= w, and T is one pre-norm causal transformer layer:
//
//   forget:      h_1 = T(x_1);             (y_{i-1}, h_i) = T(h_{i-1} || x_i)                    y_n = T(h_n)
//   accumulate:  h_1 = T(x_1), p_0 = x_1;  (y_{i-1}, h_i) = T(p/2 + h_{i-1} || p/2 + x_i)        y_n = T(h_n)
//                with p = p_{i-2}, and p_{i-1} = y_{i-1} ("output") or h_{i-1} ("hidden", the paper's text)
//
// per layer, layer after layer. The first half of a window cannot see the second. So rows of the second half
// are computed from the keys and values of the first alone, and in the forget variant y_i = T(h_i) for every
// i: outputs leave the loop, and those that nobody reads are not computed.
//
// Rows are kept block by block, [blocks, batch, w, dim], so that what a loop step reads is one run of memory
// and the batch folds into the rows of every product.
#pragma once

#include <optional>
#include <utility>
#include <vector>

#include "models/recurrent_transformer/recurrent_transformer.h"

namespace eddy {

// Rows of all blocks of a batch of sequences.
struct BlockRows {
  Tensor full;  // [blocks, batch, w, width]; undefined without a complete block
  Tensor rest;  // [batch, r, width] with r < w; undefined when w divides the sequence

  // Both parts put through f(part, 0 or 1).
  template <class F>
  BlockRows map(F&& f) const {
    return {full.defined() ? f(full, 0) : Tensor(), rest.defined() ? f(rest, 1) : Tensor()};
  }
  // One tensor [batch, w or r, width] for each block.
  std::vector<Tensor> blocks() const;
  // All rows in one run [rows, width], block after block.
  Tensor run() const;
};

// How a sequence falls into blocks, and which of its outputs are read.
struct BlockPlan {
  std::int64_t batch, time, block;
  std::int64_t first_read;  // outputs of the positions from here on are read

  std::int64_t count() const { return (time + block - 1) / block; }
  std::int64_t full() const { return time / block; }
  std::int64_t length(std::int64_t i) const { return i < full() ? block : time - full() * block; }
  // How many rows of block i are not read: 0 … length(i).
  std::int64_t skipped(std::int64_t i) const;
  bool is_read(std::int64_t i) const { return skipped(i) < length(i); }
};

// What the two variants share: the layout, the readout, and the limits of a stream.
class BlockRecurrence : public RecurrentTransformer {
 public:
  using RecurrentTransformer::RecurrentTransformer;
  // input.block positions per block, or config().block.
  // errors: as Model::forward; ValueError for a negative block.
  ForwardOutput forward(const ForwardInput& input) const override;
  double forward_macs_per_token(std::int64_t time) const override;
  // Without limit but for the position table.
  std::int64_t stream_room(const State& state) const override;
  Tensor stream(const Tensor& tokens, State& state) const override;

 protected:
  // The outputs of all blocks of a layer below the last one.
  virtual BlockRows run_layer(const WindowLayer& layer, const BlockRows& x, const BlockPlan& plan) const = 0;
  // The outputs [batch, positions read, dim] of the last layer.
  virtual Tensor run_last_layer(const WindowLayer& layer, const BlockRows& x,
                                const BlockPlan& plan) const = 0;
  // The equations word for word, over x [batch, time, dim].
  virtual Tensor run_literal(const TransformerLayer& layer, const Tensor& x, const DropoutSite& drop,
                             std::int64_t block) const = 0;
  // Multiply-adds of one layer over one sequence.
  virtual double layer_macs(const BlockPlan& plan) const = 0;

  // Streaming, one layer: the rows that follow inside a block, [batch, rows, dim]. State of the layer `name`:
  //   past        keys and values that stand before the block: what the block before left behind
  //   half        added to the block's rows (accumulate)
  //   x, h        keys and values of the block's own rows so far, as second half of a window and as state
  //   rows_x, rows_h  where keeps_rows() says so: those rows themselves, rows_x in the first block only
  //   spread      what the block after this one adds half of (accumulate)
  Tensor stream_rows(const WindowLayer& layer, const std::string& name, const Tensor& x, State& state) const;
  // Called when the block is complete: puts what the next one needs under `past` (and `half`) and drops the
  // rest. `x`: the block's rows as the layer below gives them once another block follows. Returns the same of
  // this layer.
  virtual Tensor end_block(const WindowLayer& layer, const std::string& name, const Tensor& x,
                           State& state) const = 0;
  // Whether end_block reads the block's rows x (in the first block) and h: kept as `rows_x` and `rows_h`.
  virtual bool keeps_rows() const = 0;

 private:
  BlockRows embed_blocks(const Tensor& tokens, const BlockPlan& plan, const DropoutSite& drop) const;
  std::int64_t block_of(const ForwardInput& input) const;
  Tensor run_layers(const Tensor& x, std::int64_t rows, const DropoutSite& drop,
                    const ForwardInput& input) const final;
  bool time_major(bool) const final { return false; }
  NamedShapes stream_shapes(std::int64_t batch, std::int64_t position) const final;
};

class BlockForget final : public BlockRecurrence {
 public:
  using BlockRecurrence::BlockRecurrence;

 private:
  // State and keys and values of all blocks; masks of calls 0 … n-1.
  struct Chain {
    std::vector<Tensor> h, key_value;  // of every block, or
    Tensor all_h, all_key_value;       // in one run, block after block

    // Both of the blocks [begin, end), which have `length` positions each, as one batch of windows.
    std::pair<Tensor, Tensor> windows(const BlockPlan& plan, std::int64_t begin, std::int64_t end) const;
  };
  static Chain run_chain(const WindowLayer& layer, const BlockRows& x);
  // The same by one kernel, where the device has it and it takes these sizes; else nothing.
  static std::optional<Chain> run_fused(const WindowLayer& layer, const BlockRows& x);
  BlockRows run_layer(const WindowLayer& layer, const BlockRows& x, const BlockPlan& plan) const override;
  Tensor run_last_layer(const WindowLayer& layer, const BlockRows& x, const BlockPlan& plan) const override;
  Tensor run_literal(const TransformerLayer& layer, const Tensor& x, const DropoutSite& drop,
                     std::int64_t block) const override;
  double layer_macs(const BlockPlan& plan) const override;
  Tensor end_block(const WindowLayer& layer, const std::string& name, const Tensor& x,
                   State& state) const override;
  bool keeps_rows() const override { return false; }
};

// What a block gives depends on whether it is the last one. A stream answers each position as if the sequence
// ended with its block: the closing step is taken on the side, and the state goes on without it.
class BlockAccumulate final : public BlockRecurrence {
 public:
  using BlockRecurrence::BlockRecurrence;

 private:
  // The outputs of all blocks by one kernel, where the device has it and it takes these sizes; else nothing.
  std::optional<BlockRows> run_fused(const WindowLayer& layer, const BlockRows& x,
                                     const BlockPlan& plan) const;
  // The outputs of every block that `plan` reads, from its first row read on; the others are undefined.
  std::vector<Tensor> run_chain(const WindowLayer& layer, const BlockRows& x, const BlockPlan& plan) const;
  BlockRows run_layer(const WindowLayer& layer, const BlockRows& x, const BlockPlan& plan) const override;
  Tensor run_last_layer(const WindowLayer& layer, const BlockRows& x, const BlockPlan& plan) const override;
  Tensor run_literal(const TransformerLayer& layer, const Tensor& x, const DropoutSite& drop,
                     std::int64_t block) const override;
  double layer_macs(const BlockPlan& plan) const override;
  Tensor end_block(const WindowLayer& layer, const std::string& name, const Tensor& x,
                   State& state) const override;
  bool keeps_rows() const override { return true; }
  bool spreads_output() const { return config().accumulate == "output"; }
};

}  // namespace eddy
