// Linear layers by products that also add the residual stream (fused): with a bias, and an MLP with ReLU, in f32, TF32
// and bf16 against f64 on the CPU, results and gradients.
//
// Bounds: beside each case stands the same one on absolute values, whose results and gradients are the sums
// of the terms' magnitudes. A sum is off by at most its length times 2^-24 of that, factors cut to TF32 add
// 2^-9 for each product, and what is rounded to bf16 2^-8 each time: x and weights are exact, h and its
// gradient are rounded, and so is the result. Inputs are exact in TF32, too, so that no h near 0 changes its
// sign.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "autograd/tape.h"
#include "ops/core/capture.h"
#include "ops/core/parameter_cache.h"
#include "ops/core/warnings.h"
#include "ops/product/linear.h"
#include "ops/product/matmul.h"
#include "tensor/base/error.h"
#include "tensor/base/format.h"
#include "tests/gpu/support/gpu_test.h"
#include "tests/support/spec_check.h"

using namespace eddy;
using namespace eddy::gpu_test;
using namespace eddy::spec_check;

namespace {

enum class Form { f32, tf32, bf16, bf16_parameters };
constexpr const char* kFormNames[] = {"f32", "TF32", "bf16 with f32 parameters", "bf16"};
constexpr Form kForms[] = {Form::f32, Form::tf32, Form::bf16, Form::bf16_parameters};
bool is_bf16(Form form) {
  return form == Form::bf16 || form == Form::bf16_parameters;
}

struct Sizes {
  std::int64_t rows, in, mlp, out;
};
// Neither multiples of 8 nor of 128; of 16; of 128, and more rows than a block of sums has; one row; odd ones; vectors.
constexpr Sizes kSizes[] = {{37, 13, 77, 29}, {48, 16, 80, 32}, {130, 32, 256, 128},
                            {1, 8, 16, 24},   {5, 3, 131, 7},   {6, 1, 16, 1}};

// x, its parameters, and then perhaps a residual.
struct Problem {
  OpFunction run;
  Tensors inputs;
  std::size_t last_parameter;

  bool is_parameter(std::size_t i) const { return i > 0 && i <= last_parameter; }
};

Problem linear_problem(const Sizes& s) {
  return {[](const Tensors& x) { return Tensors{linear(x[0], x[1], x[2], {.residual = x[3]})}; },
          {sample_normal({s.rows, s.in}, "x"), sample_normal({s.out, s.in}, "w"), sample_normal({s.out}, "b"),
           sample_normal({s.rows, s.out}, "r")},
          2};
}
// A bias that leaves no h so near 0 that its sign depends on what is rounded first:
// cuBLASLt 13.1 rounds the sum to bf16 before it adds the bias (seen on an H200).
Tensor bias_away_from_zero(const Tensor& x, const Tensor& up) {
  const auto in_bf16 = [](const Tensor& t) { return raw::cast(raw::cast(t, Dtype::bf16), Dtype::f64); };
  const Tensor sums = matmul(in_bf16(x), raw::transpose(in_bf16(up), 0, 1)),
               bias = sample_normal({up.dim(0)}, "up bias");
  const std::int64_t rows = sums.dim(0), units = sums.dim(1);
  for (std::int64_t unit = 0; unit < units; ++unit) {
    double& own = bias.mutable_data<double>()[unit];
    const auto too_near = [&] {
      for (std::int64_t row = 0; row < rows; ++row)
        if (const double sum = sums.data<double>()[row * units + unit];
            std::abs(sum + own) < 0x1p-7 * (std::abs(sum) + std::abs(own)))
          return true;
      return false;
    };
    while (too_near()) own += 0.0625;
  }
  return bias;
}
Problem mlp_problem(const Sizes& s, bool biased) {
  Tensors inputs{sample_normal({s.rows, s.in}, "x"), sample_normal({s.mlp, s.in}, "up"),
                 sample_normal({s.out, s.mlp}, "down")};
  if (biased) {
    inputs.push_back(bias_away_from_zero(inputs[0], inputs[1]));
    inputs.push_back(sample_normal({s.out}, "down bias"));
  }
  const std::size_t last_parameter = inputs.size() - 1;
  inputs.push_back(sample_normal({s.rows, s.out}, "r"));
  return {[biased](const Tensors& x) {
            const Tensor h = linear(x[0], x[1], biased ? x[3] : Tensor(), {.relu = true});
            return Tensors{linear(h, x[2], biased ? x[4] : Tensor(), {.residual = x.back()})};
          },
          inputs, last_parameter};
}

Tensor absolute(const Tensor& x) {
  std::vector<double> values = x.to_vector<double>();
  for (double& value : values) value = std::abs(value);
  return Tensor::from(values, x.shape());
}

// The result and the gradients after `uses` calls on the same leaves, each with its own cotangent.
Outcome outcome_of(const Problem& problem, const Tensors& inputs, const Tensors& dys) {
  Tensors leaves, ys;
  for (const Tensor& x : inputs) leaves.push_back(require_grad(raw::alias(x)));
  for (std::size_t i = 0; i < dys.size(); ++i) ys.push_back(problem.run(leaves)[0]);
  backward(ys, dys);
  Outcome outcome{{detach(ys[0])}, {}};
  for (const Tensor& leaf : leaves) outcome.gradients.push_back(grad(leaf));
  return outcome;
}

void check_close(const std::string& what, const Tensor& got, const Tensor& want, const Tensor& magnitudes,
                 double of_magnitude) {
  const std::vector<double> a = raw::cast(to_cpu(got), Dtype::f64).to_vector<double>(),
                            b = want.to_vector<double>(), m = magnitudes.to_vector<double>();
  REQUIRE(a.size() == b.size());
  std::string text;
  for (std::size_t i = 0; i < a.size() && text.empty(); ++i)
    if (const double error = std::abs(a[i] - b[i]); !(error <= of_magnitude * m[i]))
      text = fmt::format("{}: element {}: {} and should be {}: error {:.3g}, tolerance {:.3g}", what, i, a[i],
                         b[i], error, of_magnitude * m[i]);
  CHECK_MESSAGE(text.empty(), text);
}

void check_problem(const Problem& problem, const Sizes& s, Form form, int uses) {
  const std::string name = kFormNames[static_cast<int>(form)];
  CAPTURE(name);
  CAPTURE(s.rows);
  CAPTURE(s.mlp);
  CAPTURE(uses);
  const Dtype activations = is_bf16(form) ? Dtype::bf16 : Dtype::f32,
              parameters = form == Form::bf16_parameters ? Dtype::bf16 : Dtype::f32,
              numbers = form == Form::f32 ? Dtype::f32 : Dtype::bf16;
  Tensors inputs, exact, magnitudes, dys, exact_dys, dy_magnitudes;
  for (const Tensor& x : problem.inputs) {
    const Tensor rounded = raw::cast(raw::cast(x, numbers), Dtype::f64);
    inputs.push_back(
        to_gpu(raw::cast(rounded, problem.is_parameter(exact.size()) ? parameters : activations)));
    exact.push_back(rounded);
    magnitudes.push_back(absolute(rounded));
  }
  const Shape shape = problem.run(exact)[0].shape();
  for (int i = 0; i < uses; ++i) {
    const std::string stream = "dy " + std::to_string(i);
    const Tensor dy = raw::cast(sample_normal(shape, stream.c_str()), activations);
    dys.push_back(to_gpu(dy));
    exact_dys.push_back(raw::cast(dy, Dtype::f64));
    dy_magnitudes.push_back(absolute(exact_dys.back()));
  }
  if (form == Form::tf32)
    for (const Tensor& x : inputs) mark_parameters(x, MatmulPrecision::tf32);
  const Outcome want = outcome_of(problem, exact, exact_dys),
                bound = outcome_of(problem, magnitudes, dy_magnitudes);
  const Outcome got = outcome_of(problem, inputs, dys);
  poison_gpu();
  const Outcome again = outcome_of(problem, inputs, dys);
  // Three products in a row, and as many roundings of bf16 and one more for each use that is added.
  const auto longest = static_cast<double>(std::max({s.rows * uses, s.in, s.mlp, s.out}) + 4);
  const double allowed = 3 * longest * 0x1p-24 + (form == Form::tf32 ? 3 * 0x1p-9 : 0) +
                         (is_bf16(form) ? (3 + uses) * 0x1p-8 : 0);
  check_close("result", got.results[0], want.results[0], bound.results[0], allowed);
  for (std::size_t i = 0; i < want.gradients.size(); ++i) {
    CHECK(got.gradients[i].dtype() == inputs[i].dtype());
    check_close("gradient " + std::to_string(i), got.gradients[i], want.gradients[i], bound.gradients[i],
                allowed);
  }
  expect_none(bit_difference("again", {to_cpu(again.results), to_cpu(again.gradients)},
                             {to_cpu(got.results), to_cpu(got.gradients)}));
}

// Whether all was fused: the emulation can, and a GPU's library need not at every size.
void check_all_taken() {
  for (const std::string& warning : take_warnings()) {
    if (kEmulated) FAIL_CHECK(warning);
    std::printf("%s\n", warning.c_str());
  }
}

}  // namespace

TEST_SUITE("device") {
  TEST_CASE("a residual added in a product has the result and the gradients of f64 in every precision") {
    set_gpu_kernels("products=fused");
    for (const Sizes& s : kSizes)
      for (const Form form : kForms)
        for (const int uses : {1, 3}) check_problem(linear_problem(s), s, form, uses);
    check_all_taken();
  }

  TEST_CASE("two linear layers with ReLU between and a residual are those of f64 in every precision") {
    set_gpu_kernels("products=fused");
    for (const Sizes& s : kSizes)
      for (const Form form : kForms)
        for (const bool biased : {false, true})
          for (const int uses : {1, 3}) check_problem(mlp_problem(s, biased), s, form, uses);
    check_all_taken();
  }

  TEST_CASE("the derivative of ReLU at exactly 0 is 0") {
    for (const std::int64_t rows : {16, 130})  // by a kernel of its own, and with the sums for the bias
      for (const double zero : {0.0, -0.0}) {
        const Tensor x = to_gpu(Tensor::full({rows, 32}, zero)), up = to_gpu(Tensor::full({48, 32}, 0.5)),
                     bias = to_gpu(Tensor::full({48}, zero));
        for (const Tensor& leaf : {x, up, bias}) require_grad(leaf);
        backward(linear(x, up, bias, {.relu = true}), Tensor::full({rows, 48}, 1, Dtype::f32, gpu()));
        for (const Tensor& leaf : {x, up, bias})
          for (const float gradient : to_cpu(grad(leaf)).to_vector<float>()) CHECK(gradient == 0);
      }
  }

  TEST_CASE("fused products take every sample of the linear ops and gradients that a caller stores") {
    set_gpu_kernels("products=fused");
    for (const OpSpec& spec : op_specs()) {
      const std::string_view op = spec.name;
      if (!op.starts_with("linear") || op.starts_with("linear_cross_entropy")) continue;
      for (const OpSample& sample : spec.samples) {
        const std::string name = spec.name + "/" + sample.label;
        const Outcome want = evaluate(spec, sample.inputs);
        Tensors leaves;
        for (const Tensor& x : inputs_on_gpu(sample.inputs)) {
          leaves.push_back(require_grad(raw::alias(x)));
          // One element behind an aligned address, so that not all can be written there directly.
          const Tensor room = Tensor::full({x.elements() + 1}, NAN, Dtype::f32, gpu());
          set_grad_storage(leaves.back(), raw::reshape(raw::narrow(room, 0, 1, x.elements()), x.shape()));
        }
        const Tensors ys = spec.run(leaves), dys = cotangents(want.results);
        Tensors dys_on_gpu;
        for (const Tensor& dy : dys) dys_on_gpu.push_back(to_gpu(raw::cast(dy, Dtype::f32)));
        backward(ys, dys_on_gpu);
        std::string text;
        for (std::size_t i = 0; i < ys.size(); ++i) {
          text =
              difference(name, to_cpu(detach(ys[i])), want.results[i], spec.roundings, epsilon(Dtype::f32));
          CHECK_MESSAGE(text.empty(), text);
        }
        Tensors gradients;
        for (const Tensor& leaf : leaves) gradients.push_back(to_cpu(grad(leaf)));
        text = gradient_difference(name, gradients, want.gradients, gradient_roundings(spec),
                                   epsilon(Dtype::f32));
        CHECK_MESSAGE(text.empty(), text);
      }
    }
  }

  TEST_CASE("only the gradients that are wanted are made by fused products") {
    set_gpu_kernels("products=fused");
    const Sizes s{6, 8, 16, 4};
    const Problem problem = mlp_problem(s, true);
    const Tensor dy = sample_normal({s.rows, s.out}, "dy");
    for (std::size_t wanted = 0; wanted < problem.inputs.size(); ++wanted) {
      CAPTURE(wanted);
      const auto gradient = [&](bool on_gpu) {
        Tensors x;
        for (const Tensor& input : problem.inputs)
          x.push_back(on_gpu ? to_gpu(raw::cast(input, Dtype::f32)) : raw::copy(input));
        require_grad(x[wanted]);
        backward(problem.run(x)[0], on_gpu ? to_gpu(raw::cast(dy, Dtype::f32)) : dy);
        return to_cpu(grad(x[wanted]));
      };
      expect_none(difference("gradient", gradient(true), gradient(false), 64, epsilon(Dtype::f32)));
    }
    // Nothing wanted, nothing recorded; the same numbers.
    Tensors x;
    for (const Tensor& input : problem.inputs) x.push_back(to_gpu(raw::cast(input, Dtype::f32)));
    expect_none(difference("result", to_cpu(problem.run(x)[0]), problem.run(problem.inputs)[0], 64,
                           epsilon(Dtype::f32)));
  }

  TEST_CASE("linear layers without rows have a result without rows and gradients of zero") {
    set_gpu_kernels("products=fused");
    for (const Sizes& s : {Sizes{0, 3, 5, 2}, {4, 0, 5, 2}, {4, 3, 0, 2}, {4, 3, 5, 0}}) {
      CAPTURE(s.in);
      CAPTURE(s.mlp);
      Problem problem = mlp_problem(s, true);
      Tensors on_gpu;
      for (const Tensor& x : problem.inputs) on_gpu.push_back(to_gpu(raw::cast(x, Dtype::f32)));
      const Tensor dy = sample_normal({s.rows, s.out}, "dy");
      const Outcome want = outcome_of(problem, problem.inputs, {dy}),
                    got = outcome_of(problem, on_gpu, {to_gpu(raw::cast(dy, Dtype::f32))});
      for (std::size_t i = 0; i < want.gradients.size(); ++i) {
        expect_none(
            difference("gradient", to_cpu(got.gradients[i]), want.gradients[i], 64, epsilon(Dtype::f32)));
      }
      expect_none(difference("result", to_cpu(got.results[0]), want.results[0], 64, epsilon(Dtype::f32)));
    }
  }

  TEST_CASE("a NaN that arrives reaches the sums of fused products and anomaly mode names its node") {
    set_gpu_kernels("products=fused");
    const Sizes s{4, 8, 16, 4};
    const Problem problem = mlp_problem(s, true);
    Tensors x;
    for (const Tensor& input : problem.inputs) x.push_back(to_gpu(raw::cast(input, Dtype::f32)));
    std::vector<float> values(static_cast<std::size_t>(s.rows * s.out), 1.0f);
    values[2] = NAN;  // of row 0 and column 2
    const Tensor dy = to_gpu(Tensor::from(values, {s.rows, s.out}));
    const Outcome got = outcome_of(problem, x, {dy});
    const std::vector<float> dx = to_cpu(got.gradients[0]).to_vector<float>(),
                             down_bias = to_cpu(got.gradients[4]).to_vector<float>();
    for (std::size_t i = 0; i < down_bias.size(); ++i) CHECK(std::isnan(down_bias[i]) == (i == 2));
    for (std::size_t i = 0; i < dx.size(); ++i) CHECK(std::isnan(dx[i]) == (i < 8));
    const AnomalyMode anomalies;
    CHECK_THROWS_WITH_AS(outcome_of(problem, x, {dy}), doctest::Contains("linear"), NonFiniteError);
  }

  TEST_CASE("captured fused products replay the bits of the same products uncaptured") {
    set_gpu_kernels("products=fused");
    const Sizes s{24, 8, 40, 16};
    const Problem problem = mlp_problem(s, true);
    Tensors x;
    for (const Tensor& input : problem.inputs) x.push_back(to_gpu(raw::cast(input, Dtype::f32)));
    const Tensor dy = to_gpu(raw::cast(sample_normal({s.rows, s.out}, "dy"), Dtype::f32));
    Outcome captured;
    // The plans are made while the work is captured: nothing of these sizes ran before.
    const auto work = capture(gpu(), [&] { captured = outcome_of(problem, x, {dy}); });
    work->replay();
    const Outcome got{to_cpu(captured.results), to_cpu(captured.gradients)},
        want = outcome_of(problem, x, {dy});
    expect_none(bit_difference("captured", got, {to_cpu(want.results), to_cpu(want.gradients)}));
    captured = {};
  }
}
