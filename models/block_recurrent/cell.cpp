// The horizontal direction: the gates and the cell.
#include "models/block_recurrent/cell.h"

#include <algorithm>
#include <cmath>

#include "autograd/named_values.h"
#include "autograd/scope.h"
#include "ops/ops.h"

namespace eddy {
namespace {

bool is_single(const block_recurrent::Config& config) {
  return value_is(config.cell, block_recurrent::CellKind::single);
}

}  // namespace

Init scaled(std::int64_t in, double gain) {
  return Init::truncated_normal(std::sqrt(gain / static_cast<double>(in)));
}

Tensor scaled_matrix(const ParamScope& scope, const std::string& name, std::int64_t out, std::int64_t in,
                     double gain) {
  return scope.scope(name).param("weight", {out, in}, scaled(in, gain));
}

// Weights that open and close the gate start small, and no bias starts at 0: Adafactor's steps grow with a
// parameter's size, and a model that once ignores the state never comes back (appendix B of the paper). The keys
// gate_* try this claim.
StateGate::StateGate(const ParamScope& scope, std::int64_t in, const block_recurrent::Config& config)
    : wz_(scaled_matrix(scope, "wz", config.dim, in)), beyond_one_(config.gate_constant - 1) {
  const auto bias = [&](const char* name, double mean) {
    return scope.param(name, {config.dim}, Init::normal(config.gate_bias_std, mean));
  };
  const bool lstm = value_is(config.gate, GateKind::lstm);
  if (lstm) {
    wi_ = scaled_matrix(scope, "wi", config.dim, in, config.gate_gain);
    wf_ = scaled_matrix(scope, "wf", config.dim, in, config.gate_gain);
    bi_ = bias("bi", -config.gate_bias);
    bf_ = bias("bf", config.gate_bias);
  } else {
    bg_ = bias("bg", config.gate_bias);
  }
  if (config.z_bias) bz_ = scope.param("bz", {config.dim}, Init::normal(0.1));
  tanh_ = value_is(config.tanh_rule, block_recurrent::TanhRule::paper) ? lstm : is_single(config);
}

Tensor StateGate::operator()(const Tensor& c, const Tensor& input) const {
  // The state is mixed in its own dtype, whatever the products are in.
  if (bg_.defined()) return fixed_gate(c, cast(linear(input, wz_, bz_), c.dtype()), bg_, tanh_);
  const std::int64_t dim = c.dim(2);
  const std::vector<Tensor> zif = split(cast(linear(input, {wz_, wi_, wf_}), c.dtype()), 2, {dim, dim, dim});
  const Tensor z = bz_.defined() ? zif[0] + bz_ : zif[0];
  if (beyond_one_ == 0) return lstm_gate(c, z, zif[1], zif[2], bi_, bf_, tanh_);
  return lstm_gate(c, z, zif[1], zif[2], bi_ - beyond_one_, bf_ + beyond_one_, tanh_);
}

RecurrentCell::RecurrentCell(const ParamScope& scope, const block_recurrent::Config& config)
    : rules_(config), eps_(config.norm_eps) {
  const std::int64_t dim = config.dim, width = rules_.heads * rules_.head_dim, mlp = config.mlp_dim;
  init_state_ = scope.param("init_state", {config.states, dim}, Init::normal(0.1));
  state_ids_ = scope.param("state_ids", {config.states, dim}, Init::normal(1));
  norm_ = scope.scope("norm").param("weight", {dim}, Init::ones());
  wk_ = scaled_matrix(scope, "wk", width, dim);
  wv_ = scaled_matrix(scope, "wv", width, dim);
  wq_self_ = scaled_matrix(scope, "wq_self", width, dim);
  wq_cross_ = scaled_matrix(scope, "wq_cross", width, dim);
  scale_self_ = rules_.learned_scale(scope, "scale_self");
  scale_cross_ = rules_.learned_scale(scope, "scale_cross");
  const bool single = is_single(config);
  if (!single) gate_attn_.emplace(scope.scope("gate_attn"), 2 * width, config);
  if (value_is(config.cell, block_recurrent::CellKind::skip)) return;
  if (!single) mlp_norm_ = scope.scope("mlp_norm").param("weight", {dim}, Init::ones());
  mlp_up_ = scaled_matrix(scope.scope("mlp"), "up", mlp, single ? 2 * width : dim);
  gate_mlp_.emplace(scope.scope("gate_mlp"), mlp, config);
}

Tensor RecurrentCell::initial(std::int64_t batch) const {
  return contiguous(expand(init_state_, {batch, init_state_.dim(0), init_state_.dim(1)}));
}

Tensor RecurrentCell::add_ids(const Tensor& c) const {
  const ScopeGuard scope("recurrent");
  return rms_norm_add(c, norm_, state_ids_, eps_);
}

std::vector<Tensor> RecurrentCell::project(const Tensor& with_ids, const std::vector<Tensor>& weights,
                                           int values) const {
  const ScopeGuard scope("recurrent");
  const std::int64_t heads = rules_.heads, products = std::ssize(weights);
  const AxisRange plain{std::max(values, 0) * heads, values < 0 ? 0 : heads};
  const Tensor rows = reshape(linear(with_ids, weights),
                              {with_ids.dim(0), with_ids.dim(1), products * heads, rules_.head_dim});
  return split(rules_.unit ? unit_norm_heads(rows, rules_.eps, plain) : rows, 2,
               std::vector<std::int64_t>(weights.size(), heads));
}

StateRead RecurrentCell::read(const Tensor& with_ids) const {
  const std::vector<Tensor> parts = project(with_ids, {wk_, wv_}, 1);
  return {parts[0], parts[1]};
}

StateQueries RecurrentCell::queries(const Tensor& with_ids) const {
  const std::vector<Tensor> parts = project(with_ids, {wq_self_, wq_cross_}, -1);
  return {parts[0], parts[1]};
}

StateHeads RecurrentCell::heads(const Tensor& with_ids) const {
  const std::vector<Tensor> parts = project(with_ids, {wk_, wv_, wq_self_, wq_cross_}, 1);
  return {{parts[0], parts[1]}, {parts[2], parts[3]}};
}

CellScales RecurrentCell::scales() const {
  return {rules_.scale(scale_self_), rules_.scale(scale_cross_)};
}

Tensor RecurrentCell::update(const Tensor& c, const StateHeads& own, const CellScales& scales,
                             const KeysValues& tokens, bool literal) const {
  const ScopeGuard scope("recurrent");
  const auto read = [&](const char* name, const Tensor& q, const Tensor& learned, const KeysValues& rows) {
    const ScopeGuard inside(name);
    AttentionOptions options;
    options.scale = rules_.unit ? 1 : 1 / std::sqrt(static_cast<double>(rules_.head_dim));
    options.head_scale = learned;
    options.precision = matmul_precision(wk_);
    return rules_.join(attend(q, rows, options, literal));
  };
  const Tensor h = concat({read("self", own.queries.self, scales.self, {own.read.keys, own.read.values}),
                           read("cross", own.queries.cross, scales.cross, tokens)},
                          2);
  const auto gate = [](const char* name, const StateGate& mix, const Tensor& old, const Tensor& input) {
    const ScopeGuard inside(name);
    return mix(old, input);
  };
  Tensor next = c, rows = h;  // the state, and what the next gate's MLP reads
  if (gate_attn_) next = gate("gate_attn", *gate_attn_, c, h);
  if (gate_mlp_) {
    if (gate_attn_) rows = cast(rms_norm(next, mlp_norm_, eps_), h.dtype());
    next = gate("gate_mlp", *gate_mlp_, next, linear(rows, mlp_up_, {}, {.relu = true}));
  }
  name_value("state", next);
  return next;
}

}  // namespace eddy
