// Block recurrence with accumulate in its fast form. A window (p/2 + h_{i-1} || p/2 + x_i) is computed as its
// two halves. Both halves share the keys and values of the older one. The rest of the older half is computed
// only where its output is read or becomes the next p. A GPU can run all windows as one kernel
// (ops/recurrence/block_recurrence.h). The literal form is in literal.cpp, streaming in stream.cpp.
#include <optional>
#include <tuple>

#include "autograd/named_values.h"
#include "autograd/scope.h"
#include "autograd/tape.h"
#include "models/named_place.h"
#include "models/recurrent_transformer/block_recurrence.h"
#include "ops/ops.h"
#include "tensor/base/format.h"

namespace eddy {
namespace {

// Names the place of the attention of rows from token `first` on, whose keys begin `earlier` tokens before.
void name_place_of(std::int64_t first, std::int64_t earlier) {
  const ScopeGuard scope("attn");
  name_place(first, first - earlier);
}

}  // namespace

std::optional<BlockRows> BlockAccumulate::run_fused(const WindowLayer& layer, const BlockRows& x,
                                                    const BlockPlan& plan, const CarriedRows& carried) const {
  if (config().accumulate_factor != 0.5) return {};  // the kernels' own
  std::vector<std::uint64_t> calls;  // of run_chain: those of even number give h, the others y
  for (std::int64_t older = 0; older < 2; ++older)
    for (std::int64_t i = 0; i < plan.count(); ++i)
      calls.push_back(static_cast<std::uint64_t>(2 * i + older));
  return as_one(block_accumulate, layer, x, plan, carried, calls, spreads_output());
}

void BlockAccumulate::check_length(std::int64_t time, bool carried) const {
  BlockRecurrence::check_length(time, carried);
  if (carried && config().keep_state && time % config().block != 0)
    fail<ValueError>(
        "{}: a segment of {} tokens is not a whole number of blocks of {}, and a state goes on from whole ones (change "
        "--train.sequence or --model.block)",
        config().model, time, config().block);
}

StateLayout BlockAccumulate::carried_layout(std::int64_t batch) const {
  StateLayout layout = hidden_layout(batch, config().block, -1);
  for (StateTensor spread : hidden_layout(batch, config().block, -1)) {
    spread.name.replace(spread.name.rfind('.'), std::string::npos, ".spread");
    layout.push_back(std::move(spread));
  }
  return layout;
}

BlockAccumulate::Window BlockAccumulate::carried_window(const WindowLayer& layer, const CarriedRows& carried,
                                                        Dtype dtype) const {
  const std::string& path = layer.layer.path;
  if (carried.before.empty()) return {};
  const Tensor p = carried.rows(path + ".spread", dtype);
  if (carried.before.find(path + ".past") != nullptr)
    return {carried.rows(path + ".half", dtype), carried.rows(path + ".past", dtype), p};
  const Tensor half = p * config().accumulate_factor, h = carried.rows(path + ".state", dtype),
               older = half + h, past = layer.key_value(older);
  if (spreads_output()) name_place_of(-config().block, 0);
  return {half, past, spreads_output() ? layer.output(older, past, 0, 0) : h};
}

std::vector<Tensor> BlockAccumulate::run_chain(const WindowLayer& layer, const BlockRows& rows,
                                               const BlockPlan& plan, CarriedRows& carried) const {
  const std::vector<Tensor> x = rows.blocks();
  const std::size_t count = x.size();
  std::vector<Tensor> outputs(count);
  std::uint64_t call = 0;
  const auto added = [block = plan.block](const Tensor& half, const Tensor& to) {
    return (to.dim(1) == block ? half : narrow(half, 1, 0, to.dim(1))) + to;
  };
  // Rows that stand at block `to`.
  const auto state_of = [layer, block = plan.block](const Tensor& newer, const Tensor& past, std::uint64_t at,
                                                    std::int64_t to) {
    const auto [query, own] = layer.query_key_value(newer);
    name_place_of(to * block, past.defined() ? block : 0);
    return layer.finish(newer, query, past, own, at);
  };
  const Window before_all = carried_window(layer, carried, x[0].dtype());
  // p and h after the first block.
  const auto begin = [&](const Tensor& first, std::uint64_t at,
                         std::int64_t to) -> std::pair<Tensor, Tensor> {
    const auto anew = [&] { return state_of(first, {}, at, to); };
    if (!before_all.past.defined()) return {first, anew()};
    const Tensor h = state_of(added(before_all.half, first), before_all.past, at, to);
    if (first.dim(1) != plan.block) return {Tensor(), carried.chosen(h, anew)};  // nothing follows
    return {carried.chosen(before_all.spread, [&] { return first; }), carried.chosen(h, anew)};
  };
  const bool leaves = leaves_state(carried, plan.time, plan.block);
  auto [p, h] = begin(x[0], call++, 0);
  name_value("state", h);
  Tensor half, past;  // of the last window
  for (std::size_t i = 1; i < count; ++i) {
    const auto before = static_cast<std::int64_t>(i) - 1;
    const bool spread = spreads_output() && (i + 1 < count || leaves), reads = spread || plan.is_read(before);
    const std::int64_t skipped = spread ? 0 : plan.skipped(before);
    // Half of p, keys and values of the older half, h, and y of the block before if something reads it.
    const std::vector<Tensor> done = recomputed(
        plan.recomputes,
        [factor = config().accumulate_factor, layer, added, state_of, reads, skipped, call, before,
         block = plan.block](const std::vector<Tensor>& in) {
          const Tensor half_p = in[0] * factor, older = half_p + in[1], newer = added(half_p, in[2]);
          std::vector<Tensor> results{half_p, layer.key_value(older)};
          if (reads) {
            name_place_of(before * block + skipped, skipped);
            results.push_back(layer.output(older, results[1], skipped, call));
          }
          results.push_back(state_of(newer, results[1], call + 1, before + 1));
          return results;
        },
        {p, h, x[i]});
    half = done[0];
    past = done[1];
    p = h;
    if (spread) p = done[2];
    if (plan.is_read(before)) {
      const std::int64_t unread = plan.skipped(before) - skipped;
      outputs[i - 1] = unread == 0 ? done[2] : narrow(done[2], 1, unread, plan.block - unread);
    }
    h = done.back();
    name_value("state", h);
    call += 2;
  }
  const auto last = static_cast<std::int64_t>(count) - 1;
  name_place_of(last * plan.block + plan.skipped(last), plan.skipped(last));
  outputs[count - 1] = layer.output(h, layer.key_value(h), plan.skipped(last), call);
  if (!leaves) return outputs;

  const NoGrad no_grad;
  if (carried.below.defined()) {
    if (count == 1)
      std::tie(p, h) = begin(carried.below, call + 1, last + 1);
    else
      h = state_of(added(half, carried.below), past, call + 1, last + 1);
  }
  carried.keep(layer.layer.path + ".spread", p);
  carried.keep(layer.layer.path + ".state", h);
  const Tensor older = p * config().accumulate_factor + h;
  name_place_of(plan.time, 0);  // of what follows, if it does: no token of this call
  carried.below = layer.output(older, layer.key_value(older), 0, call + 2);
  return outputs;
}

BlockRows BlockAccumulate::run_layer(const WindowLayer& layer, const BlockRows& x, const BlockPlan& plan,
                                     CarriedRows& carried) const {
  if (const std::optional<BlockRows> fused = run_fused(layer, x, plan, carried)) return *fused;
  std::vector<Tensor> outputs = run_chain(layer, x, plan, carried);
  BlockRows y;
  if (x.rest.defined()) {
    y.rest = outputs.back();
    outputs.pop_back();
  }
  if (x.full.defined()) y.full = reshape(concat(outputs, 0), x.full.shape());
  return y;
}

Tensor BlockAccumulate::run_last_layer(const WindowLayer& layer, const BlockRows& x, const BlockPlan& plan,
                                       CarriedRows& carried) const {
  std::vector<Tensor> read;
  if (const std::optional<BlockRows> fused = run_fused(layer, x, plan, carried)) {
    const std::int64_t from = plan.first_read / plan.block, blocks = plan.full() - from;
    if (blocks > 0) {  // [blocks, batch, w, dim], and back into the order of positions
      const Tensor y = transpose(narrow(fused->full, 0, from, blocks), 0, 1);
      const std::int64_t rows = blocks * plan.block, unread = plan.skipped(from);
      read.push_back(narrow(reshape(y, {plan.batch, rows, config().dim}), 1, unread, rows - unread));
    }
    if (fused->rest.defined()) {
      const std::int64_t unread = plan.skipped(plan.full());
      read.push_back(narrow(fused->rest, 1, unread, fused->rest.dim(1) - unread));
    }
    return read.size() == 1 ? read[0] : concat(read, 1);
  }
  for (const Tensor& y : run_chain(layer, x, plan, carried))
    if (y.defined()) read.push_back(y);
  return read.size() == 1 ? read[0] : concat(read, 1);
}

}  // namespace eddy
