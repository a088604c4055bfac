// Every OpSpec sample in bf16 on the GPU, with parameters of f32 and of bf16, against f64 on the CPU from the
// same rounded numbers; and a training step of a model against the CPU's step in bf16. Prints one table.
//
// Tolerances: a result is computed in f32 and rounded once. A gradient is rounded once as well, and may
// stand on a saved result that was rounded before it: with y off by 2^-8 of itself, 1 - y^2 or y (dy -
// sum(dy y)) moves by up to 2 and 3 times that. Attention's gradients stand on the rounded output of each
// row, and those of its tables add up what that costs over all rows, where the terms themselves partly
// cancel. Attention that makes unit vectors of q and k rounds these as well. The unit recurrence rounds
// the factors of four products a step and carries what comes out to the next step. Some ops go by way of
// f32, whose casts round nothing else.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdio>
#include <functional>
#include <string>
#include <utility>

#include "models/eddy/registry.h"
#include "ops/index/gather.h"
#include "ops/loss/cross_entropy.h"
#include "ops/pointwise/pointwise.h"
#include "ops/product/linear.h"
#include "tensor/base/error.h"
#include "tests/gpu/support/gpu_test.h"
#include "tests/support/bf16_check.h"

using namespace eddy;
using namespace eddy::gpu_test;
using namespace eddy::spec_check;

namespace {

// Roundings to bf16 before the last: those of a recurrence, or of logits.
double roundings_inside(const OpSpec& spec) {
  return spec.name.starts_with("unit_recurrence") ? 4 : spec.name.starts_with("linear_cross") ? 2 : 0;
}
double gradient_roundings_to_bf16(const OpSpec& spec) {
  if (spec.name.starts_with("attention") && spec.name.ends_with("_unit")) return 32;
  return spec.name.starts_with("attention") || roundings_inside(spec) > 0 ? 16 : 5;
}

Tensors on_gpu_as_they_are(const Tensors& inputs) {
  Tensors result;
  for (const Tensor& x : inputs)
    result.push_back(!x.defined() || x.contiguous() ? (x.defined() ? to_gpu(x) : x) : strided_on_gpu(x));
  return result;
}

struct Row {
  int samples = 0;
  double result_error = 0, gradient_error = 0;  // in units of 2^-8 of the largest number
};

void check_sample(const OpSpec& spec, const OpSample& sample, int activations, const std::string& name,
                  Row& row) {
  const Tensors inputs = on_gpu_as_they_are(inputs_in_bf16(sample.inputs, activations, Dtype::f32));
  const Tensors exact_inputs = inputs_in_bf16(sample.inputs, 0, Dtype::f64);
  EvaluateOptions options, exact_options;
  const Tensors ys = spec.run(inputs);
  for (const Tensor& y : ys) {
    const std::string stream = fmt::format("cotangent {}", options.dys.size());
    const Tensor dy = raw::cast(sample_normal(y.shape(), stream.c_str()), Dtype::bf16);
    options.dys.push_back(to_gpu(raw::cast(dy, y.dtype())));
    exact_options.dys.push_back(raw::cast(dy, Dtype::f64));
  }
  const auto on_gpu = [&] {
    Outcome outcome = evaluate(spec, inputs, options);
    return Outcome{to_cpu(outcome.results), to_cpu(outcome.gradients)};
  };
  const Outcome got = on_gpu(), want = evaluate(spec, exact_inputs, exact_options);
  REQUIRE_MESSAGE(got.results.size() == want.results.size(), name);
  for (std::size_t i = 0; i < want.results.size(); ++i) {
    const double last = (got.results[i].dtype() == Dtype::bf16 ? 1 : 0) + roundings_inside(spec);
    expect_none(difference(fmt::format("{} result {}", name, i), got.results[i], want.results[i],
                           bf16_roundings(spec.roundings, last), kBf16Rounding));
    row.result_error =
        std::max(row.result_error, error_in_roundings(got.results[i], want.results[i], kBf16Rounding));
  }
  for (std::size_t i = 0; sample.gradcheck && i < want.gradients.size(); ++i) {
    if (got.gradients[i].defined()) CHECK_MESSAGE(got.gradients[i].dtype() == inputs[i].dtype(), name);
    expect_none(difference(fmt::format("{} gradient {}", name, i), got.gradients[i], want.gradients[i],
                           bf16_roundings(gradient_roundings(spec), gradient_roundings_to_bf16(spec)),
                           kBf16Rounding));
    row.gradient_error =
        std::max(row.gradient_error, error_in_roundings(got.gradients[i], want.gradients[i], kBf16Rounding));
  }
  poison_gpu();
  expect_none(bit_difference(name + " again", on_gpu(), got));
  ++row.samples;
}

}  // namespace

TEST_SUITE("device") {
  TEST_CASE("every op agrees in bf16 with f64 and repeats its bits") {
    std::printf("\n%-24s %8s %16s %16s\n", "op in bf16", "samples", "result: 2^-8", "gradient: 2^-8");
    for (const OpSpec& spec : op_specs()) {
      const int activations = activations_of(spec.name);
      if (activations < 0 || rounds_twice(spec.name)) continue;
      Row row;
      for (const OpSample& sample : spec.samples) {
        const std::string name = spec.name + "/" + sample.label;
        check_sample(spec, sample, 100, name, row);
        if (activations < static_cast<int>(sample.inputs.size()))
          check_sample(spec, sample, activations, name + " with f32 parameters", row);
      }
      std::printf("%-24s %8d %16.2f %16.2f\n", spec.name.c_str(), row.samples, row.result_error,
                  row.gradient_error);
    }
    std::fflush(stdout);
  }

  TEST_CASE("linear in bf16 that upcasts is the CPU's, with and without a bias") {
    const Tensors inputs{raw::cast(sample_normal({3, 40, 24}, "x"), Dtype::bf16),
                         raw::cast(sample_normal({72, 24}, "w"), Dtype::f32),
                         raw::cast(sample_normal({72}, "b"), Dtype::f32)};
    for (const bool biased : {false, true}) {
      const auto run = [&](const std::function<Tensor(const Tensor&)>& placed) {
        Tensors leaves;
        for (const Tensor& input : inputs) leaves.push_back(require_grad(raw::alias(placed(input))));
        const Tensor y = linear(leaves[0], leaves[1], biased ? leaves[2] : Tensor(), {.upcast = true});
        CHECK(y.dtype() == Dtype::f32);
        backward(y, placed(raw::cast(sample_normal(y.shape(), "dy"), Dtype::f32)));
        Tensors all{to_cpu(detach(y))};
        for (std::size_t i = 0; i < (biased ? 3u : 2u); ++i) all.push_back(to_cpu(grad(leaves[i])));
        return all;
      };
      const Tensors got = run([](const Tensor&x) { return to_gpu(x); }),
                    want = run([](const Tensor&x) { return raw::copy(x); });
      const auto compared = [](const Tensor& x) { return raw::cast(x, Dtype::f64); };
      expect_none(difference("result", got[0], compared(want[0]), 16, epsilon(Dtype::f32)));
      for (std::size_t i = 1; i < want.size(); ++i)
        expect_none(difference("gradient", got[i], compared(want[i]), 4, kBf16Rounding));
    }
  }

  TEST_CASE("gradients of a parameter from products of bf16 gather in f32") {
    const Tensor weight = to_gpu(Tensor::full({16, 16}, 1, Dtype::f32));
    require_grad(weight);
    const auto product = [&](double value) {
      return linear(to_gpu(Tensor::full({16, 16}, value, Dtype::bf16)), weight);
    };
    const Tensor large = product(16), small = product(0.03125);
    const Tensor one = to_gpu(Tensor::full({16, 16}, 1, Dtype::bf16));
    backward({large, small}, {one, one});
    CHECK(to_cpu(grad(weight)).to_vector<float>()[7] == 256.5f);
  }

  TEST_CASE("rows of an f32 table in bf16 are the CPU's to the bit and their gradients gather in f32") {
    for (const auto& [dim, id_dtype] :
         {std::pair{std::int64_t{5}, Dtype::i64}, {8, Dtype::i64}, {132, Dtype::i64}, {5, Dtype::i32}}) {
      const Tensor table = raw::cast(sample_normal({7, dim}, "table"), Dtype::f32),
                   rows = raw::cast(sample_normal({40, 1, dim}, "rows"), Dtype::f32),
                   ids = raw::cast(sample_indices({40, 3}, "ids", 7), id_dtype);
      const Tensor dy = raw::cast(sample_normal({40, 3, dim}, "dy"), Dtype::bf16);
      for (const bool with_rows : {false, true}) {
        const auto run = [&](const Tensors& on) {
          const Tensor from = raw::alias(on[0]), more = raw::alias(on[2]);
          require_grad(from);
          require_grad(more);
          const Tensor y = embedding_sum(from, on[1], with_rows ? more : Tensor(), Dtype::bf16);
          backward(y, on[3]);
          return Tensors{to_cpu(detach(y)), to_cpu(grad(from)), with_rows ? to_cpu(grad(more)) : Tensor()};
        };
        const Tensors got = run({to_gpu(table), to_gpu(ids), to_gpu(rows), to_gpu(dy)}),
                      want = run({table, ids, rows, dy});
        std::string text = bit_difference("result", got[0], want[0]);
        CHECK_MESSAGE(text.empty(), text);
        for (const std::size_t i : {1u, 2u}) {
          if (!want[i].defined()) continue;
          CHECK(got[i].dtype() == Dtype::f32);
          text = difference("gradient", got[i], raw::cast(want[i], Dtype::f64), 64, epsilon(Dtype::f32));
          CHECK_MESSAGE(text.empty(), text);
        }
      }
    }
  }

  TEST_CASE("bf16 times a number is rounded once in the result and once in the gradient") {
    const Tensor x = raw::cast(sample_normal({3, 37}, "x"), Dtype::bf16),
                 dy = raw::cast(sample_normal({3, 37}, "dy"), Dtype::bf16);
    const auto run = [](const Tensor& values, const Tensor& cotangent) {
      const Tensor leaf = raw::alias(values);
      require_grad(leaf);
      const Tensor y = leaf * (1 / 3.0);
      backward(y, cotangent);
      return Tensors{to_cpu(detach(y)), to_cpu(grad(leaf))};
    };
    const Tensors got = run(to_gpu(x), to_gpu(dy)), want = run(x, dy);
    for (const std::size_t i : {0u, 1u}) {
      expect_none(bit_difference("part", got[i], want[i]));
    }
  }

  // The same numbers are rounded at the same places, but for what kernels keep in bf16.
  TEST_CASE("a model in bf16 agrees with the CPU's") {
    ModelConfig config;
    config.model = "regular";
    config.vocab = 11;
    config.context = 16;
    config.dim = 32;
    config.heads = 2;
    config.layers = 2;
    config.init_std = 0.1;
    config.positions = config.bias = true;
    const Tensor tokens = sample_indices({3, 16}, "tokens", 11),
                 targets = sample_indices({3, 16}, "targets", 11);
    Tensor logits[2], gradients[2];
    for (const int on_gpu : {0, 1}) {
      const Device device = on_gpu == 1 ? gpu() : kCpu;
      const auto model = make_model(config, Dtype::bf16, device);
      model->params().initialize(3);
      ForwardInput input;
      input.tokens = raw::to_device(tokens, device);
      const ForwardOutput output = model->forward(input);
      logits[on_gpu] = raw::cast(to_cpu(detach(output.logits)), Dtype::f32);
      backward(cross_entropy(output.logits, raw::to_device(targets, device)));
      model->params().zero_missing_gradients();
      gradients[on_gpu] = to_cpu(model->params().gradients());
    }
    expect_none(difference("logits", logits[1], logits[0], 8, kBf16Rounding));
    expect_none(difference("gradients", gradients[1], gradients[0], 16, kBf16Rounding));
  }
}
