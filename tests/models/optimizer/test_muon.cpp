// Muon beside plain loops in f64, and its iteration beside a singular value decomposition.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "autograd/tape.h"
#include "models/optimizer/adam.h"
#include "models/optimizer/muon.h"
#include "models/params.h"
#include "ops/core/op_spec.h"
#include "ops/pointwise/pointwise.h"
#include "ops/product/matmul.h"
#include "ops/reduce/reduce.h"
#include "tensor/base/error.h"
#include "tensor/threads/thread_pool.h"

using namespace eddy;

namespace {

// A matrix of plain numbers.
struct PlainMatrix {
  std::int64_t rows = 0, columns = 0;
  std::vector<double> at;
  PlainMatrix(std::int64_t r, std::int64_t c) : rows(r), columns(c), at(static_cast<std::size_t>(r * c)) {}
  double& operator()(std::int64_t i, std::int64_t j) { return at[static_cast<std::size_t>(i * columns + j)]; }
  double operator()(std::int64_t i, std::int64_t j) const {
    return at[static_cast<std::size_t>(i * columns + j)];
  }
};

PlainMatrix product(const PlainMatrix& a, const PlainMatrix& b) {
  PlainMatrix c(a.rows, b.columns);
  for (std::int64_t i = 0; i < a.rows; ++i)
    for (std::int64_t j = 0; j < b.columns; ++j)
      for (std::int64_t k = 0; k < a.columns; ++k) c(i, j) += a(i, k) * b(k, j);
  return c;
}

PlainMatrix transposed(const PlainMatrix& a) {
  PlainMatrix t(a.columns, a.rows);
  for (std::int64_t i = 0; i < a.rows; ++i)
    for (std::int64_t j = 0; j < a.columns; ++j) t(j, i) = a(i, j);
  return t;
}

// The iteration as its authors write it, always over the rows.
PlainMatrix plain_orthogonal(PlainMatrix x) {
  double squares = 0;
  for (const double value : x.at) squares += value * value;
  for (double& value : x.at) value /= std::sqrt(squares) + 1e-7;
  for (int i = 0; i < 5; ++i) {
    const PlainMatrix a = product(x, transposed(x)), a2 = product(a, a);
    PlainMatrix odd(a.rows, a.columns);
    for (std::size_t j = 0; j < odd.at.size(); ++j) odd.at[j] = -4.7750 * a.at[j] + 2.0315 * a2.at[j];
    const PlainMatrix turned = product(odd, x);
    for (std::size_t j = 0; j < x.at.size(); ++j) x.at[j] = 3.4445 * x.at[j] + turned.at[j];
  }
  return x;
}

// `count` orthonormal columns of so many rows, by Gram and Schmidt.
PlainMatrix orthonormal(std::int64_t rows, std::int64_t count, const char* stream) {
  PlainMatrix q(rows, count);
  q.at = sample_normal({rows, count}, stream).to_vector<double>();
  for (std::int64_t j = 0; j < count; ++j) {
    for (int twice = 0; twice < 2; ++twice)
      for (std::int64_t before = 0; before < j; ++before) {
        double dot = 0;
        for (std::int64_t i = 0; i < rows; ++i) dot += q(i, j) * q(i, before);
        for (std::int64_t i = 0; i < rows; ++i) q(i, j) -= dot * q(i, before);
      }
    double squares = 0;
    for (std::int64_t i = 0; i < rows; ++i) squares += q(i, j) * q(i, j);
    for (std::int64_t i = 0; i < rows; ++i) q(i, j) /= std::sqrt(squares);
  }
  return q;
}

ParamStore make_net(Dtype dtype) {
  const auto declare = [](ParamStore& store) {
    const ParamScope root = store.root();
    root.param("embed.weight", {11, 6}, Init::normal(0.1));
    root.param("layers.0.attn_norm.weight", {6}, Init::ones());
    root.param("layers.0.attn.wqkv.weight", {18, 6}, Init::normal(0.1));
    root.param("layers.0.attn.wo.weight", {6, 6}, Init::normal(0.1));
    root.param("layers.0.attn.wo.bias", {6}, Init::zeros());
    root.param("layers.0.mlp.down.weight", {6, 24}, Init::normal(0.1));
    root.param("layers.0.unused.weight", {6, 6}, Init::normal(0.1));
    root.param("head.weight", {11, 6}, Init::normal(0.1));
  };
  ParamStore counted;
  declare(counted);
  ParamStore store(counted, dtype, kCpu);
  declare(store);
  store.initialize(1);
  return store;
}

Tensor gradient_of(const Parameter& parameter, int step) {
  return sample_normal(parameter.shape, (parameter.name + std::to_string(step)).c_str());
}

// Every parameter but one has a gradient.
void set_muon_gradients(ParamStore& store, int step) {
  store.zero_gradients();
  for (const Parameter& parameter : store.parameters())
    if (parameter.name.find("unused") == std::string::npos)
      backward(sum(mul(parameter.value, raw::cast(gradient_of(parameter, step), parameter.value.dtype()))));
}

OptimizerOptions muon_options() {
  OptimizerOptions options;
  options.optimizer = "muon";
  options.matrix_rate = 1.5;
  return options;
}

}  // namespace

TEST_CASE("orthogonal keeps singular vectors and brings singular values to the iteration's") {
  struct Size {
    std::int64_t rows, columns;
  };
  for (const auto& [rows, columns] : {Size{7, 7}, Size{5, 9}, Size{12, 4}, Size{1, 6}, Size{6, 1}}) {
    CAPTURE(rows);
    CAPTURE(columns);
    const std::int64_t count = std::min(rows, columns);
    const PlainMatrix left = orthonormal(rows, count, "left"), right = orthonormal(columns, count, "right");
    std::vector<double> values;
    double squares = 0;
    for (std::int64_t i = 0; i < count; ++i) {
      values.push_back(3 * std::pow(0.4, static_cast<double>(i)));  // down to 0.004 of the first
      squares += values.back() * values.back();
    }
    PlainMatrix scaled = left;
    for (std::int64_t i = 0; i < rows; ++i)
      for (std::int64_t j = 0; j < count; ++j) scaled(i, j) *= values[static_cast<std::size_t>(j)];
    const PlainMatrix direction = product(scaled, transposed(right));
    const Tensor result = orthogonal(Tensor::from(direction.at, {rows, columns}));
    PlainMatrix found(rows, columns);
    found.at = result.to_vector<double>();
    const PlainMatrix inside = product(product(transposed(left), found), right);
    for (std::int64_t i = 0; i < count; ++i)
      for (std::int64_t j = 0; j < count; ++j) {
        double expected = i == j ? values[static_cast<std::size_t>(i)] / (std::sqrt(squares) + 1e-7) : 0;
        for (int k = 0; k < 5; ++k)
          expected = 3.4445 * expected - 4.7750 * std::pow(expected, 3) + 2.0315 * std::pow(expected, 5);
        CHECK(inside(i, j) == doctest::Approx(expected).epsilon(1e-9).scale(1));
        if (i == j)
          CHECK(std::abs(inside(i, j) - 1) < 0.33);  // U V^T of the decomposition, to the known tolerance
      }
  }
}

TEST_CASE("orthogonal takes a matrix of zeros to zeros") {
  for (const double value : orthogonal(Tensor::zeros({3, 4}, Dtype::f64, kCpu)).to_vector<double>())
    CHECK(value == 0);
}

TEST_CASE("Muon steps hidden matrices as plain loops do, and all else as AdamW") {
  ParamStore store = make_net(Dtype::f64), other = make_net(Dtype::f64);
  const OptimizerOptions options = muon_options();
  OptimizerOptions plain = options;
  plain.optimizer = "adamw";
  const auto muon = make_optimizer(store, options);
  const auto adam = make_optimizer(other, plain);
  std::vector<std::vector<double>> expected, momenta;
  for (const Parameter& parameter : store.parameters()) {
    expected.push_back(parameter.value.to_vector<double>());
    momenta.emplace_back(expected.back().size());
  }
  constexpr double kRate = 0.02;
  for (int step = 0; step < 3; ++step) {
    set_muon_gradients(store, step);
    set_muon_gradients(other, step);
    const double norm = muon->step(kRate), factor = std::min(1.0, options.clip / (norm + 1e-6));
    CHECK(adam->step(kRate) == norm);
    CHECK(factor < 1);
    for (std::size_t i = 0; i < store.parameters().size(); ++i) {
      const Parameter& parameter = store.parameters()[i];
      const bool is_wqkv = parameter.name == "layers.0.attn.wqkv.weight";
      if (!is_wqkv && parameter.name != "layers.0.attn.wo.weight" &&
          parameter.name != "layers.0.mlp.down.weight")
        continue;
      const std::vector<double> gradient = gradient_of(parameter, step).to_vector<double>();
      const std::int64_t rows = parameter.shape[0] / (is_wqkv ? 3 : 1), columns = parameter.shape[1];
      const auto elements = static_cast<std::size_t>(rows * columns);
      for (std::size_t first = 0; first < gradient.size(); first += elements) {
        PlainMatrix direction(rows, columns);
        for (std::size_t j = 0; j < elements; ++j) {
          double& moment = momenta[i][first + j];
          const double g = factor * gradient[first + j];
          moment = 0.95 * moment + g;
          direction.at[j] = g + 0.95 * moment;
        }
        direction = plain_orthogonal(direction);
        const double size = 1.5 * 0.2 * std::sqrt(static_cast<double>(std::max(rows, columns)));
        for (std::size_t j = 0; j < elements; ++j) {
          double& value = expected[i][first + j];
          value = value * (1 - kRate * options.weight_decay) - kRate * size * direction.at[j];
        }
      }
    }
  }
  for (std::size_t i = 0; i < store.parameters().size(); ++i) {
    const Parameter& parameter = store.parameters()[i];
    CAPTURE(parameter.name);
    const std::vector<double> found = parameter.value.to_vector<double>();
    if (hidden_matrices(parameter) == 0) {
      CHECK(found == other.parameters()[i].value.to_vector<double>());
      continue;
    }
    for (std::size_t j = 0; j < found.size(); ++j)
      CHECK(found[j] == doctest::Approx(expected[i][j]).epsilon(1e-11));
  }
}

TEST_CASE("hidden matrices are the weights of layers, and not tables, heads, states and biases") {
  const auto matrices = [](const char* name, const Shape& shape) {
    Parameter parameter;
    parameter.name = name;
    parameter.shape = shape;
    return hidden_matrices(parameter);
  };
  CHECK(matrices("weight", {4, 4}) == 1);
  CHECK(matrices("layers.0.recurrent.gate_attn.wz.weight", {4, 8}) == 1);
  CHECK(matrices("layers.1.attn.wqkv.weight", {12, 4}) == 3);
  CHECK(matrices("lstm.0.w_hh", {16, 4}) == 4);
  CHECK(matrices("gru.w_hh", {18, 6}) == 1);  // four matrices are not in it
  CHECK(matrices("embed.weight", {9, 4}) == 0);
  CHECK(matrices("pos_embed.weight", {9, 4}) == 0);
  CHECK(matrices("head.weight", {9, 4}) == 0);
  CHECK(matrices("pos.key_pe", {4, 9}) == 0);
  CHECK(matrices("layers.0.attn.rel_bias", {4, 8}) == 0);
  CHECK(matrices("layers.0.memory.init", {4, 8}) == 0);
  CHECK(matrices("final_norm.weight", {4}) == 0);
}

TEST_CASE("Muon's state names the momentum of matrices and Adam's moments of all else") {
  ParamStore store = make_net(Dtype::f32);
  const auto saved = make_optimizer(store, muon_options())->save();
  CHECK(saved.size() == 1 + 4 + 2 * 4);
  CHECK(saved.count("momentum.layers.0.attn.wo.weight") == 1);
  CHECK(saved.count("m.layers.0.attn.wo.weight") == 0);
  CHECK(saved.count("m.embed.weight") == 1);
  CHECK(saved.count("v.layers.0.attn.wo.bias") == 1);
}

TEST_CASE("Muon's bits do not depend on the number of threads, and it lowers what it minimises") {
  const int threads = thread_count();
  std::vector<float> first;
  for (const int count : {1, 2, 3}) {
    set_thread_count(count);
    ParamStore store = make_net(Dtype::f32);
    const auto muon = make_optimizer(store, muon_options());
    const Tensor& weight = store.get("layers.0.mlp.down.weight").value;
    double before = 0, after = 0;
    for (int step = 0; step < 30; ++step) {
      muon->zero_gradients();
      const Tensor gap = matmul(weight, Tensor::full({24, 5}, 0.25f)) - 1.0;
      const Tensor loss = sum(gap * gap);
      (step == 0 ? before : after) = loss.item();
      backward(loss);
      muon->step(0.03);
    }
    CHECK(after < 0.5 * before);
    const std::vector<float> values = store.values().to_vector<float>();
    if (first.empty()) first = values;
    CHECK(values == first);
  }
  set_thread_count(threads);
}

TEST_CASE("Muon steps past a parameter of no elements that stands where a matrix begins") {
  const auto declare = [](ParamStore& store) {
    store.root().param("nothing.bias", {0}, Init::zeros());
    store.root().param("layer.weight", {3, 2}, Init::ones());
  };
  ParamStore counted;
  declare(counted);
  ParamStore store(counted, Dtype::f64, kCpu);
  declare(store);
  store.initialize(1);
  const auto muon = make_optimizer(store, muon_options());
  const Tensor& weight = store.get("layer.weight").value;
  backward(sum(weight * weight));
  muon->step(0.1);
  for (const double value : weight.to_vector<double>()) CHECK(value < 0.98);  // 0.99 by the decay alone
}

TEST_CASE("Muon refuses a mask of another size, as every optimizer does") {
  ParamStore store = make_net(Dtype::f32);
  CHECK_THROWS_AS(make_optimizer(store, muon_options(), {true, false}), ValueError);
  CHECK_THROWS_AS(make_optimizer(store, muon_options(), ParameterMask(100, true)), ValueError);
}

TEST_CASE("Muon refuses constants out of their range") {
  ParamStore store = make_net(Dtype::f32);
  OptimizerOptions options = muon_options();
  options.matrix_momentum = 1;
  CHECK_THROWS_AS(make_optimizer(store, options), ConfigError);
  options = muon_options();
  options.matrix_rate = 0;
  CHECK_THROWS_AS(make_optimizer(store, options), ConfigError);
  options = muon_options();
  options.weight_decay = -1;
  CHECK_THROWS_AS(make_optimizer(store, options), ConfigError);
}
