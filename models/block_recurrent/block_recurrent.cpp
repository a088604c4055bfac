// The Block-Recurrent models: parameters, segments, and the fast form of a segment (run_layers): layer by
// layer, where only the chain of cells runs block by block.
//
//   for each layer:
//     project      q, k, v of all tokens of the segment                          one product each
//     run_chain    c_{t+1} = cell(c_t, keys and values of blocks t-1 and t)      a loop over blocks
//     finish       token attention, all reads of the states, MLP                 all blocks at once
//
// The literal form, which models with feedback always take, is run_blocks in literal.cpp; streaming is in
// stream.cpp.
#include "models/block_recurrent/block_recurrent.h"

#include <algorithm>
#include <cmath>
#include <memory>

#include "autograd/scope.h"
#include "autograd/tape.h"
#include "ops/ops.h"
#include "tensor/base/format.h"

namespace eddy {
namespace {

// The authors draw activation masks for this many positions and repeat them.
constexpr std::int64_t kMaskPositions = 128;

}  // namespace

BlockRecurrent::BlockRecurrent(const block_recurrent::Config& config, const ParamScope& scope)
    : FamilyModel(config),
      embed_(scope.scope("embed").param("weight", {config.vocab, config.dim}, Init::normal(1))) {
  layers_.reserve(static_cast<std::size_t>(config.layers));
  for (std::int64_t i = 0; i < config.layers; ++i) layers_.emplace_back(scope.scope("layers"), i, config);
  final_norm_ = scope.scope("final_norm").param("weight", {config.dim}, Init::ones());
  for (const std::int64_t layer : config.recurrent_layers) highest_ = std::max(highest_, layer);
}

std::int64_t BlockRecurrent::source_of(std::int64_t layer) const {
  if (layers_[static_cast<std::size_t>(layer)].cell) return layer;
  return config().feedback ? highest_ : -1;
}

BlockCall BlockRecurrent::call_of(const ForwardInput& input) const {
  BlockCall call;
  call.bias_index = bucket_index(config(), embed_.device());
  // The norm's weight takes the factor: that scales `dim` numbers, not all rows.
  call.final_norm = logit_factor() == 1 ? final_norm_ : final_norm_ * logit_factor();
  call.literal = input.literal;
  if (!input.literal) call.recompute = input.recompute;
  call.drop = {input.dropout, config().dropout};
  call.attn_drop = {input.dropout, config().attn_dropout};
  return call;
}

double BlockRecurrent::logit_factor() const {
  using block_recurrent::LogitDivisor;
  const std::string& divisor = config().logit_divisor;
  if (value_is(divisor, LogitDivisor::none)) return 1;
  const bool by_vocab = value_is(divisor, LogitDivisor::sqrt_vocab);
  return 1 / std::sqrt(static_cast<double>(by_vocab ? config().vocab : config().dim));
}

void BlockRecurrent::check_length(std::int64_t time, bool /*carried*/) const {
  if (time % config().window != 0)
    fail<ShapeError>(
        "{}: {} tokens and a window of {} (a multiple of model.window; generation takes any number)",
        config().model, time, config().window);
}

std::int64_t BlockRecurrent::segments(std::int64_t time) const {
  return (time + config().segment - 1) / config().segment;
}

void BlockRecurrent::fit_to_sizes(block_recurrent::Config& config) {
  const std::int64_t segment = config.segment > 0 ? config.segment : config.context, last = config.layers - 1;
  if (config.model == "xl" || config.model == "vanilla") config.window = segment;
  if (config.model == "block_recurrent") config.recurrent_layers = {last};
  if (config.model != "memorizing") return;
  config.memory_layers = {last};
  config.memory_size = 2 * segment;
  config.memory_topk = config.window > 0 ? config.window : segment;
}

ForwardOutput BlockRecurrent::forward(const ForwardInput& input) const {
  check_tokens(input.tokens);
  const std::int64_t batch = input.tokens.dim(0), time = input.tokens.dim(1);
  const std::int64_t window = config().window, segment = config().segment;
  check_length(time, !input.state.empty());
  const std::int64_t segments = this->segments(time);
  check_start(input.start, batch, segments);

  std::vector<Carry> carry = input.state.empty() ? cold_carry(batch) : load_carry(input.state, batch);
  BlockCall call = call_of(input);
  Tensor x;
  {
    const ScopeGuard scope("embed");
    x = embedding_sum(embed_, input.tokens, {}, params().activations());
  }
  std::vector<Tensor> outputs;
  for (std::int64_t s = 0; s < segments; ++s) {
    const bool cold = s == 0 && input.state.empty();
    if (!cold) begin_segment(carry, start_flags(input.start, s));
    const std::int64_t first = s * segment, length = std::min(segment, time - first);
    const Tensor part = length == time ? x : narrow(x, 1, first, length);
    call.draw = static_cast<std::uint64_t>(config().feedback ? first / window : s);
    call.first = 0;
    call.tile = std::min(kMaskPositions, config().feedback ? window : length);
    const Tensor y =
        input.literal || config().feedback ? run_blocks(part, carry, call) : run_layers(part, carry, call);
    outputs.push_back(y);
  }
  return {input, Classifier{segments == 1 ? outputs[0] : concat(outputs, 1), embed_, {}}, save_carry(carry)};
}

StateRead BlockRecurrent::run_chain(const RecurrentCell& cell, Tensor& c, const KeysValues& tokens,
                                    std::int64_t time, const BlockCall& call) const {
  const std::int64_t window = config().window, blocks = time / window, before = tokens.rows() - time;
  const CellScales scales = cell.scales();
  std::vector<Tensor> read_keys, read_values;
  for (std::int64_t block = 0; block < blocks; ++block) {
    const std::int64_t from = std::max<std::int64_t>(0, before + (block - 1) * window);
    const std::int64_t rows = before + (block + 1) * window - from;
    const bool last = block + 1 == blocks;
    const std::vector<Tensor> done = recomputed(
        call.recompute == Recompute::block,
        [this, &cell, scales, tokens, from, rows, last,
         literal = call.literal](const std::vector<Tensor>& in) {
          const Tensor with_ids = activation(cell.add_ids(in[0]));
          // The state after the last block is a constant of the next segment, its queries are read for that alone.
          std::unique_ptr<NoGrad> constant;
          StateHeads own;
          if (!last) {
            own = cell.heads(with_ids);
          } else {
            own.read = cell.read(with_ids);
            constant = std::make_unique<NoGrad>();
            own.queries = cell.queries(with_ids);
          }
          return std::vector<Tensor>{own.read.keys, own.read.values,
                                     cell.update(in[0], own, scales, tokens.slice(from, rows), literal)};
        },
        {c});
    read_keys.push_back(done[0]);
    read_values.push_back(done[1]);
    c = done[2];
  }
  c = detach(c);
  if (blocks == 1) return {read_keys[0], read_values[0]};
  const auto stacked = [&](const std::vector<Tensor>& parts) {
    const Shape one = parts[0].shape();
    return reshape(concat(parts, 1), {one[0] * blocks, one[1], one[2], one[3]});
  };
  return {stacked(read_keys), stacked(read_values)};
}

Tensor BlockRecurrent::run_layer(const BlockRecurrentLayer& layer, const Tensor& x, Carry& own,
                                 const BlockCall& call) const {
  const ScopeGuard scope(layer.path);
  // Where the layer's attention alone reads q and k, it makes the unit vectors. Those of the past are ones
  // already, so the two are not joined before.
  const TokenHeads heads = layer.project(x, call, !layer.cell && !layer.memory);
  const KeysValues tokens = heads.unit_eps ? KeysValues{heads.k, heads.v, own.k, own.v}
                                           : KeysValues{heads.k, heads.v}.with_past(own.k, own.v);
  StateRead read;
  if (layer.cell) read = run_chain(*layer.cell, own.state, tokens, x.dim(1), call);
  const Tensor y = layer.finish(x, heads, tokens, read, own.memory ? &*own.memory : nullptr, call);
  if (own.memory) own.memory = memory_write(*own.memory, heads.k, heads.v);
  if (own.k.defined()) {
    own.k = heads.last_keys(config().window);
    own.v = last_rows(heads.v, config().window);
  }
  return y;
}

Tensor BlockRecurrent::run_layers(const Tensor& x, std::vector<Carry>& carry, const BlockCall& call) const {
  Tensor y = x;
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    const auto after = std::make_shared<Carry>();
    y = recomputed(
        call.recompute != Recompute::none,
        [this, &layer = layers_[i], before = carry[i], after, call](const std::vector<Tensor>& in) {
          Carry own = before;
          const Tensor done = run_layer(layer, in[0], own, call);
          *after = own;
          return done;
        },
        {y});
    carry[i] = *after;
  }
  return call.dropped(rms_norm(y, call.final_norm, config().norm_eps), "final");
}

}  // namespace eddy
