// Where a habit from PyTorch gives other numbers or an error here: one case for each line of that list in
// docs/library.md, which has the same names.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <type_traits>
#include <vector>

#include "autograd/gradcheck.h"
#include "autograd/tape.h"
#include "models/dropout_site.h"
#include "models/layers.h"
#include "models/module.h"
#include "models/optimizer/adam.h"
#include "ops/ops.h"
#include "tensor/base/error.h"
#include "tensor/create.h"
#include "tensor/random/random_tensors.h"
#include "tests/support/files.h"
#include "tests/support/tensors.h"

using namespace eddy;
using namespace eddy::test;

namespace {

double largest_gap(const std::vector<double>& a, const std::vector<double>& b) {
  REQUIRE(a.size() == b.size());
  double gap = 0;
  for (std::size_t i = 0; i < a.size(); ++i) gap = std::max(gap, std::abs(a[i] - b[i]));
  return gap;
}

Tensor gradient_of(const Tensor& x, const Tensor& y) {
  backward(y);
  return grad(x);
}

struct OneLinear {
  explicit OneLinear(const ParamScope& scope) : layer(scope.scope("layer"), 2, 2, 0.5) {}
  Linear layer;
};

template <class Axis>
concept can_be_summed_over = requires(const Tensor& x, Axis axis) {
  eddy::sum(x, axis);
  x.sum(axis);
};

// Two steps of AdamW over all numbers as PyTorch documents it, with clipping before. Gradient of step t: g[t].
std::vector<double> adamw(std::vector<double> p, const std::vector<std::vector<double>>& g, double beta2,
                          const std::vector<double>& decay, double clip) {
  const double rate = 0.1, beta1 = 0.9, eps = 1e-8;
  std::vector<double> m(p.size()), v(p.size());
  for (std::size_t t = 0; t < g.size(); ++t) {
    double squares = 0;
    for (const double x : g[t]) squares += x * x;
    const double factor = clip > 0 ? std::min(1.0, clip / (std::sqrt(squares) + 1e-6)) : 1;
    const double steps = static_cast<double>(t + 1);
    for (std::size_t i = 0; i < p.size(); ++i) {
      const double x = g[t][i] * factor;
      m[i] = beta1 * m[i] + (1 - beta1) * x;
      v[i] = beta2 * v[i] + (1 - beta2) * x * x;
      p[i] *= 1 - rate * decay[i];
      p[i] -=
          rate * m[i] / (1 - std::pow(beta1, steps)) / (std::sqrt(v[i] / (1 - std::pow(beta2, steps))) + eps);
    }
  }
  return p;
}

}  // namespace

TEST_CASE("habit: Attention has its layout in its name") {
  const Tensor q = randn({1, 3, 4, 2}, random_key(1, "q", 0));  // PyTorch: 3 heads, 4 tokens
  const Tensor right = scaled_dot_product_attention(q, q, q), over_heads = attention_bthd(q, q, q);
  CHECK(right.shape() == over_heads.shape());
  CHECK(largest_gap(numbers(right), numbers(over_heads)) > 0.1);
}

TEST_CASE("habit: Rotary positions turn neighbours") {
  const Tensor q = randn({1, 3, 2, 4}, random_key(1, "q", 0), Dtype::f64);
  const Tensor k = randn({1, 3, 2, 4}, random_key(1, "k", 0), Dtype::f64);
  const auto halves = [](const Tensor& x) {  // with the angles of 10000^(-2i / 4) a position
    const Tensor angles = arange(3, Dtype::f64).reshape({3, 1, 1}) * tensor({1.0, 0.01});
    const std::vector<Tensor> half = chunk(x, 2, 3);
    return concat(
        {half[0] * cos(angles) - half[1] * sin(angles), half[1] * cos(angles) + half[0] * sin(angles)}, 3);
  };
  const auto reordered = [](const Tensor& x) {
    return rotary_bthd(x.reshape({1, 3, 2, 2, 2}).transpose(3, 4).reshape({1, 3, 2, 4}), 0);
  };
  const auto scores = [&](auto turned) {
    return numbers(matmul(turned(q).transpose(1, 2), turned(k).permute({0, 2, 3, 1})));
  };
  const std::vector<double> expected = scores(halves);
  CHECK(largest_gap(scores(reordered), expected) <= 1e-14);  // some ten operations on numbers below 5
  CHECK(largest_gap(scores([](const Tensor& x) { return rotary_bthd(x, 0); }), expected) > 0.1);
}

TEST_CASE("habit: A causal query counts from the last key") {
  AttentionOptions causal;
  causal.causal = true;
  const Tensor q = zeros({1, 1, 1, 1}), k = zeros({1, 1, 2, 1});
  const Tensor v = Tensor::from(std::vector<float>{1, 3}, {1, 1, 2, 1});
  CHECK(scaled_dot_product_attention(q, k, v, {.is_causal = true}).item() == 1);
  CHECK(attention_bthd(q, transpose(k, 1, 2), transpose(v, 1, 2), causal).item() == 2);
  CHECK(numbers(softmax(zeros({1, 2}), {.causal = true})) == std::vector<double>{0.5, 0.5});
}

TEST_CASE("habit: A linear layer has the weight [out, in], normal numbers, and a bias of zeros") {
  const auto net = make_module<OneLinear>(1);
  const Tensor weight = Tensor::from(std::vector<float>{1, 2, 3, 4, 5, 6}, {3, 2});  // 2 -> 3
  CHECK(numbers(linear(tensor({1.f, 10.f}), weight)) == std::vector<double>{21, 43, 65});
  CHECK(numbers(net->layer.bias) == std::vector<double>{0, 0});

  struct Wide {
    explicit Wide(const ParamScope& scope)
        : normal(scope.scope("normal"), 400, 100, 0.05, false),
          as_pytorch(scope.scope("as_pytorch"), 400, 100, Init::uniform(0.05), Init::uniform(0.05)) {}
    Linear normal, as_pytorch;
  };
  const auto wide = make_module<Wide>(1);
  CHECK(!wide->normal.bias.defined());
  const auto largest = [](const Tensor& x) { return max(abs(x)).item(); };
  // 40,000 normal numbers: the largest is about 4.2 deviations; PyTorch's stay within 1 / sqrt(in).
  CHECK(largest(wide->normal.weight) > 0.15);
  CHECK(largest(wide->as_pytorch.weight) <= 0.05);
  CHECK(largest(wide->as_pytorch.bias) > 0.04);
}

TEST_CASE("habit: Adam is AdamW with a beta2 of 0.95, a decay of 0.1 on matrices and clipping") {
  const std::vector<std::vector<double>> gradients{{3, -1, 0.5, 2, 1, -2}, {-0.1, 0.3, 0.2, 0.1, 0.4, 0.1}};
  std::vector<double> start;
  const auto after = [&](const OptimizerOptions& options) {
    auto net = make_module<OneLinear>({.seed = 1, .dtype = Dtype::f64});
    Adam adam(net.params(), options);
    const auto now = [&] {
      std::vector<double> all = numbers(net->layer.weight);
      for (const double b : numbers(net->layer.bias)) all.push_back(b);
      return all;
    };
    start = now();
    for (const std::vector<double>& g : gradients) {
      const Tensor all = Tensor::from(g, {6});
      adam.zero_gradients();
      backward(sum(net->layer.weight * reshape(narrow(all, 0, 0, 4), {2, 2})) +
               sum(net->layer.bias * narrow(all, 0, 4, 2)));
      adam.step();
    }
    return now();
  };
  const double rounding = 1e-14;  // some ten operations on numbers below 4
  const std::vector<double> matrices{0.1, 0.1, 0.1, 0.1, 0, 0};
  const std::vector<double> eddy_default = after({.learning_rate = 0.1});
  CHECK(largest_gap(eddy_default, adamw(start, gradients, 0.95, matrices, 1)) <= rounding);
  const std::vector<double> all(6, 0.01), none(6, 0.0);
  CHECK(largest_gap(eddy_default, adamw(start, gradients, 0.999, all, 0)) > 0.01);

  std::vector<double> decay = all;
  decay[4] = decay[5] = 0;
  CHECK(largest_gap(after({.learning_rate = 0.1, .beta2 = 0.999, .weight_decay = 0.01, .clip = 0}),
                    adamw(start, gradients, 0.999, decay, 0)) <= rounding);
  CHECK(largest_gap(after({.optimizer = "adam", .learning_rate = 0.1, .beta2 = 0.999, .clip = 0}),
                    adamw(start, gradients, 0.999, none, 0)) <= rounding);
}

TEST_CASE("habit: All parameters of an optimizer share one count of steps") {
  struct Two {
    explicit Two(const ParamScope& scope)
        : early(scope.param("early", {1}, Init::ones())), late(scope.param("late", {1}, Init::ones())) {}
    Tensor early, late;
  };
  auto net = make_module<Two>({.seed = 1, .dtype = Dtype::f64});
  Adam adam(net.params(), {.learning_rate = 0.1, .beta2 = 0.999, .clip = 0});
  for (int step = 0; step < 10; ++step) {
    adam.zero_gradients();
    backward(sum(step < 9 ? net->early : net->late));
    adam.step();
  }
  // The first gradient of `late`, 1, at step 10: PyTorch's own count of 1 would move it by the rate.
  const double moved =
      0.1 * (0.1 / (1 - std::pow(0.9, 10))) / (std::sqrt(0.001 / (1 - std::pow(0.999, 10))) + 1e-8);
  CHECK(std::abs(net->late.item() - (1 - moved)) <= 1e-14);
  CHECK(std::abs(moved - 0.1) > 0.05);
}

TEST_CASE("habit: A step whose gradients are not finite changes nothing") {
  auto net = make_module<OneLinear>(1);
  Adam adam(net.params(), {.learning_rate = 0.1});
  const std::vector<double> before = numbers(net->layer.weight);
  backward(sum(net->layer.weight * tensor({{NAN, 1.f}, {1.f, 1.f}})));
  CHECK(std::isnan(adam.step()));
  CHECK(numbers(net->layer.weight) == before);
  CHECK(adam.steps() == 0);
}

TEST_CASE("habit: SGD has a momentum of 0.9, a decay apart from the gradient, and clipping") {
  const std::vector<double> gradient{3, -1, 0.5, 2};
  const double norm = std::sqrt(14.25), rate = 0.1;
  std::vector<double> start;
  const auto moved = [&](const OptimizerOptions& options) {  // by two steps with this gradient
    auto net = make_module<OneLinear>({.seed = 1, .dtype = Dtype::f64});
    const auto sgd = make_optimizer(net.params(), options);
    start = numbers(net->layer.weight);
    for (int step = 0; step < 2; ++step) {
      sgd->zero_gradients();
      backward(sum(net->layer.weight * Tensor::from(gradient, {2, 2})));
      sgd->step();
    }
    return numbers(net->layer.weight);
  };
  const auto expected = [&](double momentum, double decay, double factor) {
    std::vector<double> p = start, m(4);
    for (int step = 0; step < 2; ++step)
      for (std::size_t i = 0; i < 4; ++i) {
        m[i] = momentum * m[i] + factor * gradient[i];
        p[i] = p[i] * (1 - rate * decay) - rate * m[i];
      }
    return p;
  };
  // The same numbers in the order of a few operations on numbers below 4; clipping adds 1e-6 to the norm.
  const double rounding = 1e-14, clipped = 1e-6;
  const std::vector<double> as_it_is = moved({.optimizer = "sgd", .learning_rate = rate});
  CHECK(largest_gap(as_it_is, expected(0.9, 0.1, 1 / norm)) <= clipped);
  const std::vector<double> plain =
      moved({.optimizer = "sgd", .learning_rate = rate, .beta1 = 0, .weight_decay = 0, .clip = 0});
  CHECK(largest_gap(plain, expected(0, 0, 1)) <= rounding);
  const std::vector<double> momentum =
      moved({.optimizer = "sgd", .learning_rate = rate, .weight_decay = 0, .clip = 0});
  CHECK(largest_gap(momentum, expected(0.9, 0, 1)) <= rounding);
}

TEST_CASE("habit: GELU is the exact one, and gelu_tanh is that of GPT-2") {
  const Tensor one = full({}, 1, Dtype::f64);
  CHECK(std::abs(gelu(one).item() - 0.5 * (1 + std::erf(std::sqrt(0.5)))) <= 1e-15);
  const double inside = std::sqrt(2 / std::acos(-1.0)) * 1.044715;
  CHECK(std::abs(gelu_tanh(one).item() - 0.5 * (1 + std::tanh(inside))) <= 1e-15);
  CHECK(std::abs(gelu(one).item() - gelu_tanh(one).item()) > 1e-4);
}

TEST_CASE("habit: Dropout with a key drops the same elements at each call") {
  const Tensor x = ones({1000});
  const auto at = [&](std::uint64_t step) { return numbers(dropout(x, 0.5, random_key(1, "mlp", step))); };
  CHECK(at(0) == at(0));
  CHECK(at(0) != at(1));
  const auto in_scope_of = [&](std::int64_t step) {
    const DropoutScope dropping({.training = true, .seed = 1, .step = step});
    return numbers(dropout(x, 0.5));
  };
  CHECK(in_scope_of(0) == in_scope_of(0));
  CHECK(in_scope_of(0) != in_scope_of(1));
}

TEST_CASE("habit: NoGrad turns no dropout off where a scope trains") {
  const Tensor x = ones({100});
  const DropoutScope dropping({.training = true, .seed = 1});
  const NoGrad evaluating;
  CHECK(numbers(dropout(x, 0.5)) != numbers(x));
  const DropoutScope off(DropoutContext{});
  CHECK(numbers(dropout(x, 0.5)) == numbers(x));
}

TEST_CASE("habit: A gradient check returns what it found") {
  const auto square = [](const std::vector<Tensor>& inputs) {  // with half its gradient
    const Tensor plain = detach(inputs[0]);
    return std::vector{record("square", {inputs[0]}, plain * plain, {inputs[0]},
                              [](VjpContext& v) { v.sink.accumulate(0, v.dy() * v.saved(0)); })};
  };
  CHECK_FALSE(gradcheck(square, {ones({2}, Dtype::f64)}).ok);
}

TEST_CASE("habit: Targets are whole numbers, and the classes the last axis") {
  const Tensor logits = randn({2, 3, 4}, random_key(1, "logits", 0));  // PyTorch: 3 classes of 4 positions
  const auto loss = [&](const Tensor& targets) { return cross_entropy(logits, targets); };
  CHECK_THROWS_AS(loss(zeros({2, 4}, Dtype::i64)), ShapeError);
  CHECK(loss(zeros({2, 3}, Dtype::i64)).shape() == Shape{});
  CHECK_THROWS_AS(loss(zeros({2, 3, 4})), DtypeError);  // probabilities
  CHECK_THROWS_AS(loss(full({2, 3}, -100, Dtype::i64)), ValueError);
  CHECK(loss(full({2, 3}, -1, Dtype::i64)).item() == 0);  // PyTorch: NaN
}

TEST_CASE("habit: A reduction takes one axis, and its gradient goes to one of equal elements") {
  const Tensor x = tensor({{1.f, 5.f, 5.f}, {2.f, 0.f, 1.f}});
  CHECK(numbers(max(x, 1)) == std::vector<double>{5, 2});  // the values alone
  CHECK(numbers(argmax(x, 1)) == std::vector<double>{1, 0});
  CHECK(numbers(sum(sum(x, 1), 0)) == std::vector<double>{14});
  require_grad(x);
  CHECK(numbers(gradient_of(x, sum(max(x, 1)))) == std::vector<double>{0, 1, 0, 1, 0, 0});
  const Tensor a = ones({1}), b = ones({1});
  require_grad(a);
  CHECK(numbers(gradient_of(a, sum(maximum(a, b)))) == std::vector<double>{0});  // PyTorch: 0.5
  static_assert(!can_be_summed_over<bool> && can_be_summed_over<int>);  // PyTorch: x.sum(keepdim=True)
  static_assert(!can_be_summed_over<double>);
}

TEST_CASE("habit: The first flag of var and std keeps the axis") {
  const Tensor x = tensor({{1.f, 4.f}, {3.f, 4.f}});
  CHECK(numbers(var(x, 0, false)) == std::vector<double>{2, 0});
  CHECK(numbers(var(x, 0, false, 0)) == std::vector<double>{1, 0});  // PyTorch: var(x, 0, false)
  CHECK(eddy::std(x, 0, true).shape() == Shape{1, 2});               // PyTorch: [2]
}

TEST_CASE("habit: A softmax of nothing is zeros") {
  CHECK(numbers(softmax(full({1, 2}, -INFINITY), -1)) == std::vector<double>{0, 0});
  const Tensor q = ones({1, 1, 1, 2}), none = zeros({1, 1}, Dtype::u8);
  CHECK(numbers(scaled_dot_product_attention(q, q, q, {.attn_mask = none})) == std::vector<double>{0, 0});
}

TEST_CASE("habit: A gradient of 0 stays 0") {
  const Tensor x = zeros({1});
  require_grad(x);
  CHECK(numbers(gradient_of(x, sum(sqrt(x) * 0.0))) == std::vector<double>{0});  // PyTorch: 0 inf, NaN
}

TEST_CASE("habit: An operator such as += makes a new tensor") {
  Tensor x = ones({2});
  const Tensor same = x;
  x += 1;
  CHECK(numbers(x) == std::vector<double>{2, 2});
  CHECK(numbers(same) == std::vector<double>{1, 1});

  auto net = make_module<OneLinear>(1);
  const Tensor weight = net->layer.weight, before = raw::copy(weight);
  for (Parameter p : net.params().parameters()) p.value -= 1;
  CHECK(numbers(weight) == numbers(before));
  raw::copy_into(weight, raw::copy(before - 1));
  wrote_in_place(weight, "my_step");
  CHECK(largest_gap(numbers(weight), numbers(before - 1)) == 0);
  static_assert(std::is_assignable_v<Tensor&, Tensor> &&
                !std::is_assignable_v<Tensor, Tensor>);  // narrow(x, ..) = y
  static_assert(!std::is_assignable_v<Tensor, const Tensor&>);
  static_assert(!std::is_assignable_v<const Tensor, Tensor>);  // x[0] = y
}

TEST_CASE("habit: Shapes broadcast, but not dtypes, and not the batches of matrices") {
  CHECK((ones({2, 1}) + ones({3})).shape() == Shape{2, 3});
  CHECK_THROWS_AS(ones({2}) + ones({2}, Dtype::f64), DtypeError);
  CHECK_THROWS_AS(arange(3, Dtype::i64) + 1, DtypeError);
  CHECK(matmul(ones({2, 3, 4}), ones({4, 5})).shape() == Shape{2, 3, 5});
  CHECK_THROWS_AS(matmul(ones({2, 3, 4}), ones({1, 4, 5})), ShapeError);
}

TEST_CASE("habit: RMS norm adds 1e-5 to the mean square") {
  const Tensor x = full({2}, 1e-3, Dtype::f64);  // the mean square is 1e-6
  CHECK(std::abs(rms_norm(x).to_vector<double>()[0] - 1e-3 / std::sqrt(1.1e-5)) <= 1e-15);
}

TEST_CASE("habit: A module in bf16 keeps its values in f32") {
  auto net = make_module<OneLinear>({.seed = 1, .dtype = Dtype::bf16});
  CHECK(net.params().values().dtype() == Dtype::f32);
  CHECK(net->layer(ones({1, 2}, Dtype::bf16)).dtype() == Dtype::bf16);
}

TEST_CASE("habit: Numbers have the dtype that C++ gives them, arange is f32, and a mask u8") {
  CHECK(tensor({1, 2}).dtype() == Dtype::i32);
  CHECK(arange(3).dtype() == Dtype::f32);
  CHECK(arange(3, Dtype::i64).dtype() == Dtype::i64);
  CHECK((arange(3) > 1).dtype() == Dtype::u8);
}

TEST_CASE("the list of habits in docs/library.md has the names of these cases") {
  const auto between = [](const std::string& text, const std::string& begin, const std::string& end) {
    std::vector<std::string> found;
    for (std::size_t at = text.find(begin); at != std::string::npos; at = text.find(begin, at)) {
      at += begin.size();
      found.push_back(text.substr(at, text.find(end, at) - at));
    }
    return found;
  };
  const std::string page = read_bytes(EDDY_SOURCE_DIR "/docs/library.md");
  const std::string list = page.substr(page.find("\n## Where a habit from PyTorch"));
  const std::vector<std::string> lines = between(list.substr(0, list.find("\n## ", 1)), "\n- **", ".**");
  const std::string source = read_bytes(EDDY_SOURCE_DIR "/tests/models/pytorch/test_habits.cpp");
  // The text that is searched for stands here in two parts, so that it is not found.
  CHECK(lines == between(source, std::string("(\"") + "habit: ", "\""));
}
