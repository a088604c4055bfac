// Samples and references of the pointwise ops.
#include <algorithm>
#include <cmath>

#include "ops/core/op_spec.h"
#include "ops/pointwise/pointwise.h"
#include "ops/pointwise/pointwise_functors.h"

namespace eddy {
namespace {

using namespace pointwise;

// The parts of an op's struct that its OpSpec uses.
struct Names {
  const char *name, *formula;
};
template <class Op>
constexpr Names kNames{Op::kName, Op::kFormula};

// Numbers of all sizes, for results that are small: of both signs, or positive with some next to 1.
Tensor sizes_sample(bool positive) {
  std::vector<double> values;
  for (const double size : {1e-20, 1e-12, 1e-6, 1e-3, 0.1, 5.0, 7.0, 10.0, 15.0, 20.0}) {
    values.push_back(size);
    values.push_back(positive ? 1 + size : -size);
  }
  for (double& value : values) value = static_cast<double>(static_cast<float>(value));
  return Tensor::from(values, {std::ssize(values)});
}

OpSpec unary_spec(const Names& names, Tensor (*op)(const Tensor&), double low, double high,
                  double (*oracle)(double)) {
  OpSpec spec{names.name, names.formula};
  spec.run = [op](const Tensors& x) { return op(x[0]); };
  spec.reference = [oracle](const Tensors& x) {
    std::vector<double> values = x[0].to_vector<double>();
    for (double& value : values) value = oracle(value);
    return Tensor::from(values, x[0].shape());
  };
  const auto values = [name = names.name, low, high](const Shape& shape) {
    return sample_uniform(shape, name, low, high);
  };
  spec.samples = {
      {"size_0", {values({0, 3})}},
      {"size_1", {values({1})}},
      {"odd_tail", {values({3, 37})}},
      {"strided", {strided_copy(values({5, 7}))}},
      {"large", {raw::copy(sample_uniform({33}, names.name, low >= 0 ? low : 40 * low, 40 * high))}, false},
      {"sizes", {sizes_sample(low >= 0)}, false, true}};
  spec.roundings = 16;
  spec.bench = [=] { return values({4096, 1024}); };
  return spec;
}

OpSpec binary_spec(const Names& names, Tensor (*op)(const Tensor&, const Tensor&), double low, double high,
                   double (*oracle)(double, double)) {
  OpSpec spec{names.name, names.formula};
  spec.run = [op](const Tensors& x) { return op(x[0], x[1]); };
  spec.reference = [name = names.name, oracle](const Tensors& x) {
    const Shape shape = broadcast_shape(name, x[0].shape(), x[1].shape());
    std::vector<double> a = raw::expand(x[0], shape).to_vector<double>();
    const std::vector<double> b = raw::expand(x[1], shape).to_vector<double>();
    for (std::size_t i = 0; i < a.size(); ++i) a[i] = oracle(a[i], b[i]);
    return Tensor::from(a, shape);
  };
  const auto a = [=](const Shape& shape) { return sample_uniform(shape, "a", low, high); };
  const auto b = [=](const Shape& shape) { return sample_uniform(shape, "b", low, high); };
  spec.samples = {{"size_0", {a({0, 3}), b({3})}},
                  {"size_1", {a({1}), b({})}},
                  {"odd_tail", {a({3, 37}), b({3, 37})}},
                  {"broadcast_row", {a({4, 5}), b({5})}},
                  {"broadcast_column", {a({2, 3, 4}), b({3, 1})}},
                  {"broadcast_both", {a({3, 1, 4}), b({1, 5, 1})}},
                  {"strided", {strided_copy(a({5, 7})), b({5, 7})}},
                  {"strided_both", {strided_copy(a({5, 7})), strided_copy(b({7}))}}};
  spec.roundings = 16;
  spec.bench = [=] { return Tensors{a({2048, 1024}), b({2048, 1024})}; };
  return spec;
}

OpSpec comparison_spec(const Names& names, Tensor (*op)(const Tensor&, const Tensor&),
                       double (*oracle)(double, double)) {
  OpSpec spec = binary_spec(names, op, -3, 3, oracle);
  // Of so few numbers many are equal.
  const auto a = [](const Shape& shape) { return raw::cast(sample_indices(shape, "a", 3), Dtype::f64); };
  const auto b = [](const Shape& shape) { return raw::cast(sample_indices(shape, "b", 3), Dtype::f64); };
  spec.samples = {{"size_0", {a({0, 3}), b({3})}, false},
                  {"size_1", {a({1}), b({})}, false},
                  {"odd_tail", {a({3, 37}), b({3, 37})}, false},
                  {"broadcast_both", {a({3, 1, 4}), b({1, 5, 1})}, false},
                  {"strided", {strided_copy(a({5, 7})), b({5, 7})}, false}};
  spec.roundings = 0;
  return spec;
}

}  // namespace

std::vector<OpSpec> pointwise_specs() {
  return {
      binary_spec(kNames<Add>, add, -3, 3, [](double a, double b) { return a + b; }),
      binary_spec(kNames<Sub>, sub, -3, 3, [](double a, double b) { return a - b; }),
      binary_spec(kNames<Mul>, mul, -3, 3, [](double a, double b) { return a * b; }),
      binary_spec(kNames<Div>, div, 0.5, 3, [](double a, double b) { return a / b; }),
      binary_spec(kNames<Pow>, pow, 0.5, 3, [](double a, double b) { return std::pow(a, b); }),
      binary_spec(kNames<Swiglu>, swiglu, -3, 3,
                  [](double gate, double up) { return gate / (1 + std::exp(-gate)) * up; }),
      unary_spec(kNames<Neg>, neg, -3, 3, [](double x) { return -x; }),
      unary_spec(kNames<Exp>, exp, -2, 2, [](double x) { return std::exp(x); }),
      unary_spec(kNames<Log>, log, 0.1, 5, [](double x) { return std::log(x); }),
      unary_spec(kNames<Tanh>, tanh, -3, 3, [](double x) { return std::tanh(x); }),
      unary_spec(kNames<Sigmoid>, sigmoid, -3, 3, [](double x) { return 1 / (1 + std::exp(-x)); }),
      unary_spec(kNames<Relu>, relu, -3, 3, [](double x) { return x > 0 ? x : 0; }),
      unary_spec(kNames<Silu>, silu, -3, 3, [](double x) { return x / (1 + std::exp(-x)); }),
      unary_spec(kNames<Gelu>, gelu, -3, 3,
                 [](double x) { return 0.5 * x * std::erfc(-x / std::sqrt(2.0)); }),
      unary_spec(kNames<GeluTanh>, gelu_tanh, -3, 3,
                 [](double x) {
                   return x / (1 + std::exp(-2 * std::sqrt(2 / 3.14159265358979323846) *
                                            (x + 0.044715 * x * x * x)));
                 }),
      unary_spec(kNames<Sqrt>, sqrt, 0.1, 5, [](double x) { return std::sqrt(x); }),
      unary_spec(kNames<Rsqrt>, rsqrt, 0.1, 5, [](double x) { return 1 / std::sqrt(x); }),
      unary_spec(kNames<Abs>, abs, -3, 3, [](double x) { return x < 0 ? -x : x; }),
      unary_spec(kNames<Sin>, sin, -3, 3, [](double x) { return std::sin(x); }),
      unary_spec(kNames<Cos>, cos, -3, 3, [](double x) { return std::cos(x); }),
      unary_spec(kNames<Log1p>, log1p, -0.9, 5, [](double x) { return std::log1p(x); }),
      unary_spec(kNames<Expm1>, expm1, -2, 2, [](double x) { return std::expm1(x); }),
      unary_spec(kNames<Softplus>, softplus, -3, 3,
                 [](double x) { return std::max(x, 0.0) + std::log1p(std::exp(-std::abs(x))); }),
      comparison_spec(kNames<Greater>, greater, [](double a, double b) { return a > b ? 1.0 : 0.0; }),
      comparison_spec(kNames<GreaterEqual>, greater_equal,
                      [](double a, double b) { return a >= b ? 1.0 : 0.0; }),
      comparison_spec(kNames<Equal>, equal, [](double a, double b) { return a == b ? 1.0 : 0.0; }),
      comparison_spec(kNames<NotEqual>, not_equal, [](double a, double b) { return a != b ? 1.0 : 0.0; }),
  };
}

}  // namespace eddy
