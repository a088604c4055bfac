// Numbers that tell whether a model uses its state. The known failure of the family is that a model learns to
// ignore it and never recovers.
// Source: D. Hutchins et al., "Block-Recurrent Transformers", 2022, appendix B.
#include <cmath>

#include "autograd/tape.h"
#include "models/block_recurrent/block_recurrent.h"

namespace eddy {
namespace {

std::vector<double> plain_values(const Tensor& x) {
  const Tensor here = raw::to_device(x, kCpu);
  return raw::contiguous(here.dtype() == Dtype::f64 ? here : raw::cast(here, Dtype::f64)).to_vector<double>();
}

double mean_sigmoid(const Tensor& bias, double shift) {
  double sum = 0;
  const std::vector<double> values = plain_values(bias);
  for (const double b : values) sum += 1 / (1 + std::exp(-(b + shift)));
  return sum / static_cast<double>(values.size());
}

// The standard deviation over the states of c [batch, states, dim], mean over batch and dim.
double spread_of(const Tensor& c) {
  const std::vector<double> values = plain_values(c);
  const auto batch = static_cast<std::size_t>(c.dim(0)), states = static_cast<std::size_t>(c.dim(1)),
             dim = static_cast<std::size_t>(c.dim(2));
  double sum = 0;
  for (std::size_t b = 0; b < batch; ++b)
    for (std::size_t d = 0; d < dim; ++d) {
      const double* column = values.data() + b * states * dim + d;
      double mean = 0, squares = 0;
      for (std::size_t s = 0; s < states; ++s) mean += column[s * dim] / static_cast<double>(states);
      for (std::size_t s = 0; s < states; ++s) squares += (column[s * dim] - mean) * (column[s * dim] - mean);
      sum += std::sqrt(squares / static_cast<double>(states));
    }
  return sum / static_cast<double>(batch * dim);
}

}  // namespace

double StateGate::retention_at_zero_input() const {
  return bg_.defined() ? mean_sigmoid(bg_, 0) : mean_sigmoid(bf_, 1 + beyond_one_);
}

double RecurrentCell::retention_at_zero_input() const {
  if (!gate_mlp_) return gate_attn_->retention_at_zero_input();
  if (!gate_attn_) return gate_mlp_->retention_at_zero_input();
  return (gate_attn_->retention_at_zero_input() + gate_mlp_->retention_at_zero_input()) / 2;
}

State BlockRecurrent::without_recurrence(const State& state) const {
  const std::vector<std::int64_t>& recurrent = config().recurrent_layers;
  const std::vector<std::int64_t>& memories = config().memory_layers;
  if (state.empty() || (recurrent.empty() && memories.empty())) return {};
  const NoGrad no_grad;
  const std::string first = recurrent.empty()
                                ? layers_[static_cast<std::size_t>(memories[0])].path + ".mem_count"
                                : layers_[static_cast<std::size_t>(recurrent[0])].path + ".state";
  const std::int64_t batch = state.get(first).dim(0);
  std::vector<Carry> carry = load_carry(state, batch);
  for (std::size_t i = 0; i < carry.size(); ++i) {
    if (layers_[i].cell) carry[i].state = layers_[i].cell->initial(batch);
    if (layers_[i].memory) carry[i].memory = empty_memory(batch, config(), embed_.dtype(), embed_.device());
  }
  return save_carry(carry);
}

std::vector<std::pair<std::string, double>> BlockRecurrent::diagnostics(const State& state) const {
  std::vector<std::pair<std::string, double>> numbers;
  for (const std::int64_t layer : config().recurrent_layers) {
    const BlockRecurrentLayer& own = layers_[static_cast<std::size_t>(layer)];
    const std::string end = config().recurrent_layers.size() > 1 ? "_" + std::to_string(layer) : "";
    numbers.emplace_back("state_gate" + end, own.cell->retention_at_zero_input());
    if (const Tensor* c = state.find(own.path + ".state"); c != nullptr && c->rank() == 3)
      numbers.emplace_back("state_spread" + end, spread_of(*c));
  }
  return numbers;
}

}  // namespace eddy
