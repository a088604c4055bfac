// Example 6: less memory for more time. The tape keeps every intermediate result of the forward pass for the
// backward pass. `checkpoint` keeps only a block's input, and the backward pass computes the block again:
//
//   plain           x  [u a]  x  [u a]  x  [u a]  loss     kept: everything
//   checkpointed    x    -    x    -    x    -    loss     kept: the x; u and a exist for one block at a time
//
// The gradients are the same to the bit, since the recomputed block runs the same operations in the same
// order.
//
// Read beside it: autograd/checkpoint.h.
#include <chrono>
#include <cstdio>
#include <exception>
#include <string>
#include <utility>
#include <vector>

#include "autograd/checkpoint.h"
#include "autograd/tape.h"
#include "ops/core/op_spec.h"
#include "ops/pointwise/pointwise.h"
#include "ops/product/linear.h"
#include "ops/reduce/reduce.h"

using eddy::Tensor;

namespace {

constexpr std::int64_t kRows = 256, kWidth = 64, kInner = 4 * kWidth;
constexpr int kBlocks = 12;

// A residual block: x + gelu(x U^T) D^T.
struct Block {
  Tensor up, down;
  Tensor operator()(const Tensor& x) const { return x + eddy::linear(eddy::gelu(eddy::linear(x, up)), down); }
};

struct Pass {
  std::vector<double> gradient;  // of the first block's weight
  std::int64_t saved_bytes = 0;  // kept by the tape when the backward pass begins
  double ms = 0;
};

Pass run(const std::vector<Block>& blocks, const Tensor& x, bool checkpointed) {
  const auto start = std::chrono::steady_clock::now();
  Tensor h = x;
  for (const Block& block : blocks)
    // The function may capture parameters: they get their gradients as usual. What it computes from tensors of
    // the tape must come in as inputs.
    h = checkpointed ? eddy::checkpoint([block](const std::vector<Tensor>& in) { return block(in[0]); }, {h})
                     : block(h);
  Pass pass;
  const Tensor loss = eddy::mean(h * h);
  pass.saved_bytes = eddy::graph_stats().saved_bytes;
  eddy::backward(loss);
  pass.ms = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
  pass.gradient = eddy::grad(blocks[0].up).to_vector<double>();
  for (const Block& block : blocks)
    for (const Tensor& weight : {block.up, block.down}) eddy::zero_grad(weight);
  return pass;
}

}  // namespace

int main() try {
  std::vector<Block> blocks;
  for (int i = 0; i < kBlocks; ++i) {
    const std::string name = std::to_string(i);
    blocks.push_back({eddy::sample_normal({kInner, kWidth}, ("up" + name).c_str(), 0.1),
                      eddy::sample_normal({kWidth, kInner}, ("down" + name).c_str(), 0.1)});
    for (const Tensor& weight : {blocks.back().up, blocks.back().down}) eddy::require_grad(weight);
  }
  const Tensor x = eddy::sample_normal({kRows, kWidth}, "x");

  static_cast<void>(run(blocks, x, false));  // the first pass also fills the allocator's cache
  const Pass plain = run(blocks, x, false), checkpointed = run(blocks, x, true);
  for (const auto& [name, pass] : {std::pair("plain", &plain), std::pair("checkpointed", &checkpointed)})
    std::printf("%-13s keeps %5.2f MiB for the backward pass, %6.2f ms\n", name,
                static_cast<double>(pass->saved_bytes) / (1 << 20), pass->ms);
  const bool same = plain.gradient == checkpointed.gradient;
  std::printf("%s\n", same ? "ok: the gradients have the same bits" : "WRONG: the gradients differ");
  return same && checkpointed.saved_bytes < plain.saved_bytes / 3 ? 0 : 1;
} catch (const std::exception& error) {
  std::fprintf(stderr, "error: %s\n", error.what());
  return 1;
}
