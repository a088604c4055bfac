// Block recurrence with forget. Per layer:
//   before the loop   queries, keys and values of x, one product (on the CPU in the loop too: a block's rows
//                     are in the cache then)
//   in the loop       h_i from q, k, v of x_i and k, v of h_{i-1}; then k, v of h_i
//   after the loop    y_i = T(h_i) of the blocks that are read, as one batch of windows
#include <algorithm>
#include <tuple>

#include "autograd/scope.h"
#include "models/block_recurrence.h"
#include "ops/views.h"

namespace eddy {

BlockForget::Chain BlockForget::run_chain(const WindowLayer& layer, const BlockRows& x) {
  const std::vector<Tensor> rows = x.blocks();
  std::vector<Tensor> queries, own;
  if (rows[0].device() != kCpu) {
    BlockRows query, key_value;
    static_cast<void>(x.map([&](const Tensor& part, int which) {
      std::tie(which == 0 ? query.full : query.rest, which == 0 ? key_value.full : key_value.rest) =
          layer.query_key_value(part);
      return part;
    }));
    queries = query.blocks();
    own = key_value.blocks();
  }
  Chain chain;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const auto [query, key_value] =
        queries.empty() ? layer.query_key_value(rows[i]) : std::pair(queries[i], own[i]);
    const Tensor past = i == 0 ? Tensor() : chain.key_value[i - 1];
    chain.h.push_back(layer.finish(rows[i], query, past, key_value, i));
    // Of the last block too: its output is always read.
    chain.key_value.push_back(layer.key_value(chain.h[i]));
  }
  return chain;
}

namespace {

// The blocks [begin, end) of one length as one batch of windows.
Tensor stacked(const std::vector<Tensor>& blocks, std::int64_t begin, std::int64_t end) {
  if (end - begin == 1) return blocks[static_cast<std::size_t>(begin)];
  return concat({blocks.begin() + begin, blocks.begin() + end}, 0);
}

}  // namespace

BlockRows BlockForget::run_layer(const WindowLayer& layer, const BlockRows& x, const BlockPlan& plan) const {
  const Chain chain = run_chain(layer, x);
  const auto call = static_cast<std::uint64_t>(plan.count());
  BlockRows y;
  if (x.full.defined())
    y.full = reshape(
        layer.output(stacked(chain.h, 0, plan.full()), stacked(chain.key_value, 0, plan.full()), 0, call),
        x.full.shape());
  if (x.rest.defined()) y.rest = layer.output(chain.h.back(), chain.key_value.back(), 0, call + 1);
  return y;
}

Tensor BlockForget::run_last_layer(const WindowLayer& layer, const BlockRows& x,
                                   const BlockPlan& plan) const {
  const Chain chain = run_chain(layer, x);
  std::vector<Tensor> outputs;
  auto call = static_cast<std::uint64_t>(plan.count());
  const auto read = [&](std::int64_t begin, std::int64_t end) {
    return layer.output(stacked(chain.h, begin, end), stacked(chain.key_value, begin, end),
                        plan.skipped(begin), call++);
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

Tensor BlockForget::run_literal(const TransformerLayer& layer, const Tensor& x, const DropoutSite& drop,
                                std::int64_t block) const {
  const std::int64_t time = x.dim(1);
  Tensor h = layer(narrow(x, 1, 0, std::min(block, time)), drop, 0);
  std::vector<Tensor> outputs;
  std::uint64_t call = 1;
  for (std::int64_t at = block; at < time; at += block) {
    const std::int64_t length = std::min(block, time - at);
    const Tensor window = layer(concat({h, narrow(x, 1, at, length)}, 1), drop, call++);
    outputs.push_back(narrow(window, 1, 0, block));
    h = narrow(window, 1, block, length);
  }
  outputs.push_back(layer(h, drop, call));
  return concat(outputs, 1);
}

Tensor BlockForget::end_block(const WindowLayer&, const std::string& name, const Tensor&,
                              State& state) const {
  state.set(name + ".past", state.get(name + ".h"));
  state.erase(name + ".x");
  state.erase(name + ".h");
  return {};
}

double BlockForget::layer_macs(const BlockPlan& plan) const {
  const auto dim = static_cast<double>(config().dim), mlp = static_cast<double>(config().mlp_dim);
  const double finish = dim * dim + 2 * dim * mlp;
  double macs = 0;
  for (std::int64_t i = 0; i < plan.count(); ++i) {
    const auto rows = static_cast<double>(plan.length(i)), skipped = static_cast<double>(plan.skipped(i)),
               past = i == 0 ? 0 : static_cast<double>(plan.block);
    macs += rows * (3 * dim * dim + finish + 2 * dim * dim) + 2 * dim * rows * (past + (rows + 1) / 2);
    // Row j of an output sees j + 1 keys.
    macs += (rows - skipped) * (dim * dim + finish) + dim * (rows * (rows + 1) - skipped * (skipped + 1));
  }
  return macs;
}

}  // namespace eddy
