// Block recurrence with forget in its fast form. Per layer:
//
//   before the loop   queries, keys and values of x, or block by block in the loop
//   in the loop       h_i from q, k, v of x_i and k, v of h_{i-1}; then k, v of h_i
//   after the loop    y_i = T(h_i) of the blocks that are read, as one batch of windows
//
// A GPU can run the loop as one kernel (ops/recurrence/block_recurrence.h). The literal form is in literal.cpp,
// streaming in stream.cpp.
#include <tuple>
#include <utility>

#include "autograd/named_values.h"
#include "autograd/scope.h"
#include "models/recurrent_transformer/block_recurrence.h"
#include "ops/core/cpu_path.h"
#include "ops/views/views.h"

namespace eddy {
namespace {

// Whether queries, keys and values of x are computed block by block, beside what reads them, instead of all at once: on
// a CPU where those of all blocks leave the second-level cache in between and each block is enough for a product: a
// step of cifar_block with 32 sequences takes 45.5 ms so, and 49.1 at once (docs/choices.md).
bool reads_by_block(const Tensor& x) {
  constexpr std::int64_t kCacheBytes = 1 << 21, kLeastRows = 512;
  return x.defined() && uses_cpu_path(x.device()) && x.bytes() > kCacheBytes &&
         x.dim(1) * x.dim(2) >= kLeastRows;
}

}  // namespace

BlockForget::Chain BlockForget::run_chain(const WindowLayer& layer, const BlockRows& x, const BlockPlan& plan,
                                          CarriedRows& carried) {
  Chain chain;
  std::vector<std::uint64_t> calls;
  for (std::int64_t i = 0; i < plan.count(); ++i) calls.push_back(static_cast<std::uint64_t>(i));
  chain.states = as_one(block_forget, layer, x, plan, carried, calls);
  if (chain.states) return chain;
  const Tensor before = carried.past(layer, (x.full.defined() ? x.full : x.rest).dtype());
  const bool by_block = reads_by_block(x.full);
  BlockRows query, key_value;
  if (!by_block) {
    if (x.full.defined()) std::tie(query.full, key_value.full) = layer.query_key_value(x.full);
    if (x.rest.defined()) std::tie(query.rest, key_value.rest) = layer.query_key_value(x.rest);
  }
  const std::vector<Tensor> rows = x.blocks(), queries = query.blocks(), own = key_value.blocks();
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const Tensor past = i == 0 ? before : chain.key_value[i - 1];
    const bool enters = i == 0 && before.defined();
    const auto [q, kv] = by_block ? layer.query_key_value(rows[i]) : std::pair(queries[i], own[i]);
    const std::vector<Tensor> done = recomputed(
        plan.recomputes,
        [layer, i, carried = enters ? carried : CarriedRows()](const std::vector<Tensor>& in) {
          // The last block needs keys and values too: its output is always read.
          if (!carried.begin.defined()) {
            const auto [h, next] = layer.finish_and_key_value(in[0], in[1], in[3], in[2], i);
            return std::vector<Tensor>{h, next};
          }
          const Tensor h = carried.chosen(layer.finish(in[0], in[1], in[3], in[2], i),
                                          [&] { return layer.finish(in[0], in[1], {}, in[2], 0); });
          return std::vector<Tensor>{h, layer.key_value(h)};
        },
        {rows[i], q, kv, past});
    name_value("state", done[0]);
    chain.h.push_back(done[0]);
    chain.key_value.push_back(done[1]);
  }
  carried.keep(layer.layer.path + ".state", chain.h.back());
  return chain;
}

namespace {

// The blocks [begin, end) of one length as one batch of windows.
Tensor stacked(const std::vector<Tensor>& blocks, std::int64_t begin, std::int64_t end) {
  if (end - begin == 1) return blocks[static_cast<std::size_t>(begin)];
  return concat({blocks.begin() + begin, blocks.begin() + end}, 0);
}

}  // namespace

std::pair<Tensor, Tensor> BlockForget::Chain::windows(const WindowLayer& layer, std::int64_t begin,
                                                      std::int64_t end) const {
  if (!states) return {stacked(h, begin, end), stacked(key_value, begin, end)};
  const bool whole = states->full.defined() && end <= states->full.dim(0);
  const Tensor rows = whole ? narrow(states->full, 0, begin, end - begin) : states->rest;
  const Tensor of_blocks =
      whole ? reshape(rows, {(end - begin) * rows.dim(1), rows.dim(2), rows.dim(3)}) : rows;
  return {of_blocks, layer.key_value(of_blocks)};
}

BlockRows BlockForget::run_layer(const WindowLayer& layer, const BlockRows& x, const BlockPlan& plan,
                                 CarriedRows& carried) const {
  const Chain chain = run_chain(layer, x, plan, carried);
  const auto call = static_cast<std::uint64_t>(plan.count());
  BlockRows y;
  if (x.full.defined()) {
    const auto [h, key_value] = chain.windows(layer, 0, plan.full());
    y.full = reshape(layer.output(h, key_value, 0, call), x.full.shape());
  }
  if (x.rest.defined()) {
    const auto [h, key_value] = chain.windows(layer, plan.full(), plan.count());
    y.rest = layer.output(h, key_value, 0, call + 1);
  }
  return y;
}

Tensor BlockForget::run_last_layer(const WindowLayer& layer, const BlockRows& x, const BlockPlan& plan,
                                   CarriedRows& carried) const {
  const Chain chain = run_chain(layer, x, plan, carried);
  std::vector<Tensor> outputs;
  auto call = static_cast<std::uint64_t>(plan.count());
  const auto read = [&](std::int64_t begin, std::int64_t end) {
    const auto [h, key_value] = chain.windows(layer, begin, end);
    return layer.output(h, key_value, plan.skipped(begin), call++);
  };
  std::int64_t i = plan.first_read / plan.block;
  if (plan.skipped(i) > 0) {
    outputs.push_back(read(i, i + 1));
    ++i;
  }
  if (i < plan.full()) {  // [blocks, batch, w, dim], and back into the order of positions
    const std::int64_t blocks = plan.full() - i, dim = config().dim;
    const Tensor y = reshape(read(i, plan.full()), {blocks, plan.batch, plan.block, dim});
    outputs.push_back(reshape(transpose(y, 0, 1), {plan.batch, blocks * plan.block, dim}));
    i = plan.full();
  }
  if (i < plan.count()) outputs.push_back(read(i, i + 1));
  return outputs.size() == 1 ? outputs[0] : concat(outputs, 1);
}

}  // namespace eddy
