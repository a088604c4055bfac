// Every op on bf16: its results and gradients are those of f64, up to the roundings of f32 inside and one
// rounding to bf16 at the end; parameters beside bf16 may be f32 and then get gradients that are not rounded.
#include <doctest/doctest.h>

#include "ops/attention/attention.h"
#include "ops/loss/cross_entropy.h"
#include "ops/norm/layer_norm.h"
#include "ops/norm/rms_norm.h"
#include "ops/pointwise/pointwise.h"
#include "ops/product/linear.h"
#include "ops/product/matmul.h"
#include "ops/views/views.h"
#include "tensor/base/error.h"
#include "tests/support/bf16_check.h"

using namespace eddy;
using namespace eddy::spec_check;

namespace {

// Whether every number is one of bf16.
bool holds_bf16(const Tensor& x) {
  const Tensor rounded = raw::cast(raw::cast(x, Dtype::bf16), x.dtype());
  return bit_difference("", rounded, x).empty();
}

void check_sample(const OpSpec& spec, const OpSample& sample, int activations, const std::string& name) {
  const Tensors inputs = inputs_in_bf16(sample.inputs, activations, Dtype::f32);
  EvaluateOptions options;
  const Tensors ys = spec.run(inputs);
  Tensors wide_dys;
  for (const Tensor& dy : cotangents(ys)) {
    const Tensor rounded = raw::cast(dy, Dtype::bf16);
    options.dys.push_back(raw::cast(rounded, dy.dtype()));
    wide_dys.push_back(raw::cast(rounded, Dtype::f64));
  }
  const Outcome got = evaluate(spec, inputs, options);
  EvaluateOptions wide_options;
  wide_options.dys = wide_dys;
  const Outcome want = evaluate(spec, inputs_in_bf16(sample.inputs, 0, Dtype::f64), wide_options);
  REQUIRE_MESSAGE(got.results.size() == want.results.size(), name);
  for (std::size_t i = 0; i < want.results.size(); ++i) {
    const double last = got.results[i].dtype() == Dtype::bf16 ? 1 : 0;
    expect_none(difference(fmt::format("{} result {}", name, i), got.results[i], want.results[i],
                           bf16_roundings(spec.roundings, last), kBf16Rounding));
  }
  if (!sample.gradcheck) return;
  for (std::size_t i = 0; i < want.gradients.size(); ++i) {
    const Tensor& gradient = got.gradients[i];
    if (gradient.defined()) CHECK_MESSAGE(gradient.dtype() == inputs[i].dtype(), name);
    const double last = gradient.defined() && gradient.dtype() == Dtype::bf16 ? 1 : 0;
    expect_none(difference(fmt::format("{} gradient {}", name, i), gradient, want.gradients[i],
                           bf16_roundings(gradient_roundings(spec), last), kBf16Rounding));
  }
}

}  // namespace

TEST_CASE("every op takes bf16 and rounds once") {
  for (const OpSpec& spec : op_specs()) {
    const int activations = activations_of(spec.name);
    if (activations < 0 || rounds_twice(spec.name)) continue;
    SUBCASE(spec.name.c_str()) {
      for (const OpSample& sample : spec.samples) {
        check_sample(spec, sample, 100, spec.name + "/" + sample.label);
        if (activations < static_cast<int>(sample.inputs.size()))
          check_sample(spec, sample, activations, spec.name + "/" + sample.label + " with f32 parameters");
      }
    }
  }
}

TEST_CASE("a sum and its norm in one pass have the bits of add and of the norm") {
  for (const Dtype dtype : {Dtype::f64, Dtype::f32, Dtype::bf16}) {
    const auto leaf = [&](const Shape& shape, const char* stream) {
      const Tensor x = raw::cast(sample_normal(shape, stream), dtype);
      require_grad(x);
      return x;
    };
    const Tensor dy = raw::cast(sample_normal({7, 33}, "dy"), dtype);
    for (const bool rms : {false, true}) {
      Tensors results[2];
      for (const bool fused : {false, true}) {
        const Tensor x = leaf({7, 33}, "x"), delta = leaf({7, 33}, "delta"), weight = leaf({33}, "w");
        SumAndNorm y;
        if (fused)
          y = rms ? add_rms_norm(x, delta, weight) : add_layer_norm(x, delta, weight);
        else
          y.sum = x + delta;
        if (!fused) y.norm = rms ? rms_norm(y.sum, weight) : layer_norm(y.sum, weight);
        backward({y.sum, y.norm}, {raw::copy(dy), dy});
        results[fused] = {y.sum, y.norm, grad(x), grad(delta), grad(weight)};
      }
      for (std::size_t i = 0; i < results[0].size(); ++i) {
        expect_none(bit_difference(fmt::format("{} {}", dtype_name(dtype), i), results[1][i], results[0][i]));
      }
    }
  }
}

TEST_CASE("add_layer_norm and add_rms_norm without a gradient of the norm or of the sum and with strides") {
  const Tensor weight = sample_normal({5}, "w");
  const Tensor x = sample_normal({2, 3, 4, 5}, "x"), delta = sample_normal({2, 4, 5}, "delta");
  require_grad(x);
  require_grad(delta);
  const Tensor rows = select(x, 1, 1);  // rows that do not lie in one progression
  const SumAndNorm y = add_layer_norm(rows, delta, weight);
  CHECK(bit_difference("sum", y.sum, detach(rows) + detach(delta)).empty());
  CHECK(bit_difference("norm", y.norm, layer_norm(detach(y.sum), weight)).empty());
  const Tensor contiguous_x = sample_normal({4, 5}, "x"), other = sample_normal({4, 5}, "delta");
  require_grad(contiguous_x);
  require_grad(other);
  backward(add_rms_norm(contiguous_x, other, weight).sum, Tensor::full({4, 5}, 2, Dtype::f64));
  CHECK(grad(other).to_vector<double>() == std::vector<double>(20, 2.0));
  CHECK_THROWS_WITH_AS(add_rms_norm(contiguous_x, sample_normal({5}, "d"), weight),
                       doctest::Contains("add_rms_norm: [4, 5] and [5]"), ShapeError);
  CHECK_THROWS_AS(add_layer_norm(contiguous_x, raw::cast(other, Dtype::f32), weight), DtypeError);
}

TEST_CASE("bf16: a product rounds parameters of f32 and their gradients are not rounded") {
  const Tensor x = raw::cast(sample_normal({40, 33}, "x"), Dtype::bf16);
  const Tensor weight = raw::cast(sample_normal({7, 33}, "weight"), Dtype::f32);
  const Tensor bias = raw::cast(sample_normal({7}, "bias"), Dtype::f32);
  require_grad(weight);
  require_grad(bias);
  const Tensor y = linear(x, weight, bias);
  CHECK(y.dtype() == Dtype::bf16);
  const Tensor same = linear(x, raw::cast(weight, Dtype::bf16), raw::cast(bias, Dtype::bf16));
  expect_none(bit_difference("result", detach(y), same));
  backward(y, raw::cast(sample_normal(y.shape(), "dy"), Dtype::bf16));
  CHECK(grad(weight).dtype() == Dtype::f32);
  CHECK_FALSE(holds_bf16(grad(weight)));
  CHECK_FALSE(holds_bf16(grad(bias)));
}

TEST_CASE("bf16: gradients of a parameter from several products gather in f32") {
  const Tensor weight = Tensor::full({1, 1}, 1, Dtype::f32);
  require_grad(weight);
  const Tensor large = linear(Tensor::full({1, 1}, 256, Dtype::bf16), weight),
               small = linear(Tensor::full({1, 1}, 0.5, Dtype::bf16), weight);
  const Tensor one = Tensor::full({1, 1}, 1, Dtype::bf16);
  backward({large, small}, {one, one});
  CHECK(grad(weight).item() == 256.5);
}

TEST_CASE("bf16: a loss of bf16 logits is f32") {
  const Tensor logits = raw::cast(sample_normal({5, 11}, "logits"), Dtype::bf16);
  require_grad(logits);
  const Tensor targets = sample_indices({5}, "targets", 11);
  const Tensor loss = cross_entropy(logits, targets);
  CHECK(loss.dtype() == Dtype::f32);
  CHECK(cross_entropy_rows(logits, targets).dtype() == Dtype::f32);
  CHECK(loss.item() == cross_entropy(raw::cast(logits, Dtype::f32), targets).item());
  backward(loss);
  CHECK(grad(logits).dtype() == Dtype::bf16);
}

TEST_CASE("bf16: a number beside bf16 is not rounded") {
  const Tensor x = Tensor::full({3}, 256, Dtype::bf16);
  CHECK((x * (1 + 0x1p-7 + 0x1p-9)).to_vector<bf16>()[0] == 258.0f);
  CHECK((x * (1 + 0x1p-7 + 0x1p-9 + 0x1p-12)).to_vector<bf16>()[0] == 258.0f);
  CHECK((x * (1 + 0x1p-7 + 0x1p-8 + 0x1p-12)).to_vector<bf16>()[0] == 260.0f);
}

TEST_CASE("bf16: what is no parameter is not taken beside it in another dtype") {
  const Tensor x = Tensor::zeros({2, 3}, Dtype::bf16), wide = Tensor::zeros({2, 3});
  CHECK_THROWS_AS(x + wide, DtypeError);
  CHECK_THROWS_AS(wide + x, DtypeError);
  CHECK_THROWS_AS(matmul(x, Tensor::zeros({3, 2})), DtypeError);
  CHECK_THROWS_AS(linear(wide, raw::cast(wide, Dtype::bf16)), DtypeError);
  CHECK_THROWS_AS(layer_norm(wide, Tensor::zeros({3}, Dtype::bf16)), DtypeError);
  const Tensor q = Tensor::zeros({1, 2, 1, 4}, Dtype::bf16);
  CHECK_THROWS_AS(attention_bthd(q, Tensor::zeros({1, 2, 1, 4}), q), DtypeError);
}
