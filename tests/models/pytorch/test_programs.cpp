// What a user of PyTorch writes first, in its words as far as they go: a cell and attention by hand, groups of
// parameters, a schedule, batches. Numbers of PyTorch were computed once by PyTorch 2 in f64.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <set>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "autograd/tape.h"
#include "models/dropout_site.h"
#include "models/layers.h"
#include "models/module.h"
#include "models/optimizer/adam.h"
#include "ops/ops.h"
#include "tensor/base/error.h"
#include "tensor/create.h"
#include "tensor/random/random_tensors.h"
#include "tests/support/tensors.h"
#include "tests/support/threads.h"

using namespace eddy;
using namespace eddy::test;

namespace {

double largest_error(const Tensor& x, const std::vector<double>& wanted) {
  const std::vector<double> found = numbers(x);
  REQUIRE(found.size() == wanted.size());
  double error = 0;
  for (std::size_t i = 0; i < found.size(); ++i) error = std::max(error, std::abs(found[i] - wanted[i]));
  return error;
}

struct HandLstm {
  HandLstm(const ParamScope& scope, std::int64_t in, std::int64_t width)
      : ih(scope.scope("ih"), in, 4 * width, 0.3, true), hh(scope.scope("hh"), width, 4 * width, 0.3, true) {}
  std::pair<Tensor, Tensor> operator()(const Tensor& x, const Tensor& h, const Tensor& c) const {
    const std::vector<Tensor> gates = chunk(ih(x) + hh(h), 4, -1);
    const Tensor next = sigmoid(gates[1]) * c + sigmoid(gates[0]) * tanh(gates[2]);
    return {sigmoid(gates[3]) * tanh(next), next};
  }

  Linear ih, hh;
};

struct LastOfLstm {
  LastOfLstm(const ParamScope& scope, std::int64_t hidden)
      : width(hidden), cell(scope.scope("cell"), 1, hidden), out(scope.scope("out"), hidden, 2, 0.3, true) {}
  Tensor operator()(const Tensor& x) const {  // [batch, time, 1] -> [batch, 2]
    Tensor h = zeros({x.dim(0), width}), c = zeros({x.dim(0), width});
    for (std::int64_t t = 0; t < x.dim(1); ++t) std::tie(h, c) = cell(x.select(1, t), h, c);
    return out(h);
  }

  std::int64_t width;
  HandLstm cell;
  Linear out;
};

struct HandBlock {
  HandBlock(const ParamScope& scope, std::int64_t dim, std::int64_t head_count)
      : heads(head_count),
        norm_1(scope.scope("norm_1"), dim),
        norm_2(scope.scope("norm_2"), dim),
        q(scope.scope("q"), dim, dim, 0.1, true),
        k(scope.scope("k"), dim, dim, 0.1, true),
        v(scope.scope("v"), dim, dim, 0.1, true),
        out(scope.scope("out"), dim, dim, 0.1, true),
        up(scope.scope("up"), dim, 4 * dim, 0.1, true),
        down(scope.scope("down"), 4 * dim, dim, 0.1, true) {}
  Tensor attention(const Tensor& x) const {
    const std::int64_t batch = x.dim(0), time = x.dim(1), dim = x.dim(2);
    const auto split_heads = [&](const Tensor& y) {
      return y.reshape({batch, time, heads, -1}).transpose(1, 2);
    };
    const Tensor y = scaled_dot_product_attention(split_heads(q(x)), split_heads(k(x)), split_heads(v(x)),
                                                  {.is_causal = true});
    return out(y.transpose(1, 2).reshape({batch, time, dim}));
  }
  Tensor operator()(const Tensor& x) const {
    const Tensor seen = x + attention(norm_1(x));
    return seen + down(gelu(up(norm_2(seen))));
  }

  std::int64_t heads;
  LayerNorm norm_1, norm_2;
  Linear q, k, v, out, up, down;
};

struct HandGpt {
  HandGpt(const ParamScope& scope, std::int64_t vocab, std::int64_t context, std::int64_t dim)
      : token(scope.scope("token"), vocab, dim, 0.1),
        position(scope.scope("position"), context, dim, 0.1),
        norm(scope.scope("norm"), dim),
        head(scope.scope("head"), dim, vocab, 0.1, false) {
    for (std::int64_t i = 0; i < 2; ++i) blocks.emplace_back(scope.scope("blocks").scope(i), dim, 4);
  }
  Tensor operator()(const Tensor& ids) const {
    Tensor x = token(ids) + position(arange(static_cast<double>(ids.dim(1)), Dtype::i64));
    for (const HandBlock& block : blocks) x = block(x);
    return head(norm(x));
  }

  Embedding token, position;
  std::vector<HandBlock> blocks;
  LayerNorm norm;
  Linear head;
};

}  // namespace

// PyTorch's third argument is padding_idx, where here is the deviation.
static_assert(std::is_constructible_v<Embedding, const ParamScope&, int, int, double>);
static_assert(!std::is_constructible_v<Embedding, const ParamScope&, int, int, int>);
// And that of Linear is its bias.
static_assert(std::is_constructible_v<Linear, const ParamScope&, int, int, double>);
static_assert(!std::is_constructible_v<Linear, const ParamScope&, int, int, bool>);

TEST_CASE("programs: an LSTM cell by hand has the numbers of PyTorch's LSTMCell") {
  auto cell = make_module<HandLstm>({.seed = 1, .dtype = Dtype::f64}, 2, 2);
  const auto set = [](const Tensor& parameter, const auto& value_at) {
    const std::int64_t columns = parameter.rank() == 2 ? 2 : 1;
    for (std::int64_t i = 0; i < parameter.elements(); ++i)
      parameter.mutable_data<double>()[i] = value_at(i / columns, i % columns);
  };
  const auto fifths = [](std::int64_t whole) { return static_cast<double>(whole) / 5; };
  set(cell->ih.weight, [&](std::int64_t k, std::int64_t j) { return fifths((3 * k + j) % 7 - 3); });
  set(cell->hh.weight, [&](std::int64_t k, std::int64_t j) { return fifths((5 * k + 2 * j) % 7 - 3); });
  set(cell->ih.bias, [&](std::int64_t k, std::int64_t) { return fifths(k % 3 - 1); });
  Tensor h = tensor({{0.1, 0.2}}), c = tensor({{-0.3, 0.4}});
  for (const Tensor& x : {tensor({{0.5, -1.0}}), tensor({{2.0, 0.25}})}) std::tie(h, c) = cell(x, h, c);
  CHECK(largest_error(h, {-0.1129165445562602, -0.0309472799633775}) <= 1e-15);
  CHECK(largest_error(c, {-0.1941480043524272, -0.1388884175614944}) <= 1e-15);
}

TEST_CASE("programs: an LSTM by hand learns to remember the first of eight numbers") {
  const OneThread one;
  auto net = make_module<LastOfLstm>(1, 16);
  Adam adam(net.params(), {.learning_rate = 1e-2});
  double right = 0;
  for (std::uint64_t step = 0; step < 120; ++step) {
    const Tensor x = randn({32, 8, 1}, random_key(1, "x", step));
    const Tensor y = cast(x.select(1, 0).squeeze(-1) > 0.0, Dtype::i64);
    const Tensor logits = net(x);
    adam.zero_gradients();
    backward(cross_entropy(logits, y));
    adam.step();
    if (step >= 110) right += mean(cast(argmax(logits, -1) == y, Dtype::f32)).item() / 10;
  }
  CHECK(right > 0.85);
}

TEST_CASE("programs: a GPT by hand learns a line and writes it") {
  const OneThread one;
  const std::string line = "hello world, this is eddy. ";
  std::vector<std::int64_t> ids;
  for (int i = 0; i < 4; ++i) ids.insert(ids.end(), line.begin(), line.end());
  const std::int64_t time = 32, batch = 8;
  auto net = make_module<HandGpt>(1, 128, time, 32);
  Adam adam(net.params(), {.learning_rate = 3e-3, .beta2 = 0.999, .weight_decay = 0.01});
  const Tensor text = tensor(ids);
  for (std::int64_t step = 0; step < 60; ++step) {
    std::vector<Tensor> x, y;
    for (std::int64_t b = 0; b < batch; ++b) {
      const std::int64_t at = (7 * step + 5 * b) % (std::ssize(ids) - time - 1);
      x.push_back(narrow(text, 0, at, time));
      y.push_back(narrow(text, 0, at + 1, time));
    }
    adam.zero_gradients();
    backward(cross_entropy(net(stack(x)), stack(y)));
    adam.step();
  }
  const NoGrad no_grad;
  std::vector<std::int64_t> written{'h', 'e'};
  while (written.size() < line.size())
    written.push_back(argmax(net(Tensor::from(written, {1, std::ssize(written)}))[0][-1]).item_int());
  CHECK(std::string(written.begin(), written.end()) == line);
}

TEST_CASE("programs: a warm-up and a cosine have the rates of LinearLR and CosineAnnealingLR in sequence") {
  const ScheduleOptions schedule{.schedule = "cosine", .min_learning_rate = 1e-4, .steps = 40, .warmup = 5};
  for (const auto& [step, rate] : std::vector<std::pair<std::int64_t, double>>{{0, 0.002},
                                                                               {3, 0.008},
                                                                               {4, 0.01},
                                                                               {5, 0.01},
                                                                               {6, 0.009980072755276435},
                                                                               {20, 0.0061514786230837575},
                                                                               {39, 0.00011992724472356663},
                                                                               {40, 0.0001},
                                                                               {60, 0.0001}})
    CHECK(std::abs(learning_rate_at(schedule, 1e-2, step) - rate) <= 1e-16);
}

TEST_CASE("programs: randperm and index_select make an epoch of numbers and labels that stay together") {
  const Tensor inputs = arange(10).reshape({10, 1}), labels = arange(10, Dtype::i64);
  const Tensor order = randperm(10, random_key(1, "order", 0));
  std::multiset<std::int64_t> seen;
  for (std::int64_t at = 0; at < 10; at += 4) {
    const Tensor picks = narrow(order, 0, at, std::min<std::int64_t>(4, 10 - at));
    const std::vector<double> x = numbers(index_select(inputs, 0, picks));
    const std::vector<std::int64_t> y = index_select(labels, 0, picks).to_vector<std::int64_t>();
    CHECK(std::equal(x.begin(), x.end(), y.begin(), y.end()));
    seen.insert(y.begin(), y.end());
  }
  CHECK(std::vector<std::int64_t>(seen.begin(), seen.end()) == labels.to_vector<std::int64_t>());
}

TEST_CASE("programs: initial values that a constructor writes, as with torch.nn.init, stay") {
  struct Scaled {
    explicit Scaled(const ParamScope& scope)
        : layer(scope.scope("layer"), 2, 2, 0.5, true), scale(scope.param("scale", {2}, Init::ones())) {
      if (!scale.defined()) return;  // the parameters are counted
      raw::fill(layer.weight, 2);
      raw::fill(layer.bias, 3);
      raw::fill(scale, 0.5);
    }
    Linear layer;
    Tensor scale;
  };
  for (const Dtype dtype : {Dtype::f32, Dtype::bf16}) {
    const auto net = make_module<Scaled>({.seed = 1, .dtype = dtype});
    CHECK(numbers(net->scale) == std::vector<double>{0.5, 0.5});
    CHECK(numbers(net->layer(ones({1, 2}, dtype))) == std::vector<double>{7, 7});
  }
}

TEST_CASE("programs: dropout(x, p) without a scope is an error where a graph is recorded") {
  const Tensor x = ones({1000});
  require_grad(x);
  CHECK_THROWS_AS(dropout(x, 0.5), ValueError);
  const DropoutScope dropping({.training = true, .seed = 1, .step = 3});
  const std::vector<double> y = numbers(dropout(x, 0.5));
  const std::int64_t kept = std::count(y.begin(), y.end(), 2.0),
                     dropped = std::count(y.begin(), y.end(), 0.0);
  CHECK(kept + dropped == 1000);
  CHECK(std::abs(static_cast<double>(kept) - 500) < 5 * std::sqrt(250.0));  // five deviations
}
