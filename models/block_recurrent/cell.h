// The horizontal direction of the Block-Recurrent Transformer: after each block of tokens a recurrent cell
// updates the state, `states` vectors c. They attend to themselves and to the tokens.
// Source: D. Hutchins et al., "Block-Recurrent Transformers", 2022, sections 3.1 and 3.2, figures 2 and 3.
#pragma once

#include <optional>
#include <vector>

#include "models/block_recurrent/attention.h"
#include "models/params.h"
#include "ops/attention/keys_values.h"

namespace eddy {

// Truncated normal with variance `gain` / in, and a weight [out, in] of it.
Init scaled(std::int64_t in, double gain = 1);
Tensor scaled_matrix(const ParamScope& scope, const std::string& name, std::int64_t out, std::int64_t in,
                     double gain = 1);

// A copy of the last `rows` rows of x [batch, time, ...], for the cache of the next segment.
inline Tensor last_rows(const Tensor& x, std::int64_t rows) {
  return raw::copy(raw::narrow(x, 1, x.dim(1) - rows, rows));
}

// One gate of the cell; the formulas are in ops/recurrence/gates.h. Parameters: wz.weight, and bg (fixed) or
// wi.weight, wf.weight, bi, bf (lstm); bz with z_bias. Another gate_constant than the formulas' 1 is a part of the
// biases that they get.
class StateGate {
 public:
  StateGate(const ParamScope& scope, std::int64_t in, const block_recurrent::Config& config);
  // The next state, from the old one and the gate's input.
  // shapes: c [batch, states, dim], input [batch, states, in].
  Tensor operator()(const Tensor& c, const Tensor& input) const;
  // The share of c that the gate keeps when its input is 0, mean over channels.
  double retention_at_zero_input() const;

 private:
  Tensor wz_, wi_, wf_, bz_, bg_, bi_, bf_;
  bool tanh_;
  double beyond_one_;  // of gate_constant
};

// Keys (unit vectors) and values of a state, [batch, states, heads, head_dim] each.
struct StateRead {
  Tensor keys, values;
};
// Queries of a state for itself and for the tokens, of the same shape; unit vectors too.
struct StateQueries {
  Tensor self, cross;
};
struct StateHeads {
  StateRead read;
  StateQueries queries;
};
// The factors of the logits, [heads] each, the same for all blocks of a call; undefined without qk_norm.
struct CellScales {
  Tensor self, cross;
};

// The cell, for a state c:
//
//   r       = RMSNorm(c) + IDs                   the states' keys, values and queries are products of r
//   h       = [attend(Q_self, K_s, V_s), attend(Q_cross, K_tokens, V_tokens)]             no bias, no mask
//
//   dual      m  = gate(c, h)
//             c' = gate(m, relu(RMSNorm(m) W_in))
//   single    c' = gate(c, relu(h W_in))
//   skip      c' = gate(c, h)
//
// A gate mixes c with z = (its input) W_z; see ops/recurrence/gates.h. Gates read c without norm and IDs.
class RecurrentCell {
 public:
  RecurrentCell(const ParamScope& scope, const block_recurrent::Config& config);

  // The learned initial state for every sequence, [batch, states, dim].
  Tensor initial(std::int64_t batch) const;
  // r = RMSNorm(c) + IDs, the input of the next three.
  Tensor add_ids(const Tensor& c) const;
  // Keys and values.
  StateRead read(const Tensor& with_ids) const;
  StateQueries queries(const Tensor& with_ids) const;
  // Keys, values and queries by one product.
  StateHeads heads(const Tensor& with_ids) const;
  CellScales scales() const;
  // The state after a block of tokens.
  // shapes: c [batch, states, dim]; tokens: those of the previous and this block.
  Tensor update(const Tensor& c, const StateHeads& own, const CellScales& scales, const KeysValues& tokens,
                bool literal) const;
  // The mean of retention_at_zero_input over the cell's gates.
  double retention_at_zero_input() const;

 private:
  // The heads of the products with several weights. They are unit vectors, except those of weight number
  // `values` (-1: no exception).
  std::vector<Tensor> project(const Tensor& with_ids, const std::vector<Tensor>& weights, int values) const;

  HeadRules rules_;
  double eps_;
  Tensor init_state_, state_ids_, norm_, wk_, wv_, wq_self_, wq_cross_, scale_self_, scale_cross_;
  std::optional<StateGate> gate_attn_;
  Tensor mlp_norm_, mlp_up_;
  std::optional<StateGate> gate_mlp_;
};

}  // namespace eddy
