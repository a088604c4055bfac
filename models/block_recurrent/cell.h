// The horizontal direction of the Block-Recurrent Transformer: after each block of tokens a recurrent cell
// updates `states` vectors c, which read themselves and the keys and values of the tokens.
// source: D. Hutchins et al., "Block-Recurrent Transformers", 2022, sections 3.1 and 3.2, figures 2 and 3.
#pragma once

#include <optional>
#include <vector>

#include "models/block_recurrent/attention.h"
#include "models/keys_values.h"
#include "models/params.h"

namespace eddy {

// Row-major weights [out, in], truncated normal with variance `gain` / in.
Tensor scaled_matrix(const ParamScope& scope, const std::string& name, std::int64_t out, std::int64_t in,
                     double gain = 1);

// One gate of the cell. Parameters: wz.weight, and bg (fixed) or wi.weight, wf.weight, bi, bf (lstm); bz when
// the config adds it.
class StateGate {
 public:
  StateGate(const ParamScope& scope, std::int64_t in, const ModelConfig& config);
  // The next state.
  // shapes: c [batch, states, dim], input [batch, states, in].
  Tensor operator()(const Tensor& c, const Tensor& input) const;
  // The same for the input relu(rows Wup^T).
  // shapes: rows [batch, states, width], up [in, width].
  Tensor behind_relu(const Tensor& c, const Tensor& rows, const Tensor& up) const;
  // The mean over channels of what the gate keeps of c when its input is 0.
  double kept_at_rest() const;

 private:
  Tensor wz_, wi_, wf_, bz_, bg_, bi_, bf_;
  bool tanh_;
};

// What a state offers to those who read it, [batch, states, heads, head_dim] each; keys are unit vectors.
struct StateRead {
  Tensor keys, values;
};
// What the cell reads itself and the tokens with, of the same shape and unit vectors as well.
struct StateQueries {
  Tensor self, cross;
};
struct StateHeads {
  StateRead read;
  StateQueries queries;
};
// What the logits are multiplied by, [heads] each: the same for all blocks of a call.
struct CellScales {
  Tensor self, cross;
};

// The cell, for a state c:
//
//   r = RMSNorm(c) + IDs                      keys, values and queries of the states come from r
//   h = [attend(Q_self, K_s, V_s), attend(Q_cross, K_tokens, V_tokens)]         no bias, no mask
//   dual    m = gate(c, h);  c' = gate(m, relu(RMSNorm(m) W_in))
//   single  c' = gate(c, relu(h W_in))
//   skip    c' = gate(c, h)
//
// A gate mixes c with z = (its input) W_z; the formulas are in ops/recurrence/gates.h. The gates see the raw c.
class RecurrentCell {
 public:
  RecurrentCell(const ParamScope& scope, const ModelConfig& config);

  // The learned initial state for every sequence, [batch, states, dim].
  Tensor initial(std::int64_t batch) const;
  // RMSNorm(c) + IDs, what the following read.
  Tensor place(const Tensor& c) const;
  StateRead read(const Tensor& placed) const;
  StateQueries queries(const Tensor& placed) const;
  // Both, by one product.
  StateHeads heads(const Tensor& placed) const;
  CellScales scales() const;
  // c after a block.
  // shapes: c [batch, states, dim]; tokens: those of the previous and this block.
  Tensor update(const Tensor& c, const StateHeads& own, const CellScales& scales, const KeysValues& tokens,
                bool dense) const;
  // The mean of kept_at_rest over the cell's gates.
  double kept_at_rest() const;

 private:
  // The heads of the products with several weights. All become unit vectors but those of weight `values`,
  // -1 for none.
  std::vector<Tensor> project(const Tensor& placed, const std::vector<Tensor>& weights, int values) const;

  HeadRules rules_;
  double eps_;
  Tensor init_state_, state_ids_, norm_, wk_, wv_, wq_self_, wq_cross_, scale_self_, scale_cross_;
  std::optional<StateGate> gate_attn_;
  Tensor mlp_norm_, mlp_up_;
  std::optional<StateGate> gate_mlp_;
};

}  // namespace eddy
