// Every OpSpec sample: f32 on the GPU against the reference in f64 on the CPU, results and gradients, and the
// same bits twice. Prints one table.
//
// Tolerances are those of the CPU's f32 kernels (tests/op): a result may be off by the roundings that its
// spec names times eps times the largest result, a gradient by four times as many and 16. The GPU adds in
// another order, which the roundings allow for, and its elementary functions err by 2 to 4 units, which they
// include.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdio>
#include <string>

#include "tensor/base/error.h"
#include "tests/gpu/support/gpu_test.h"
#include "tests/support/spec_check.h"

using namespace eddy;
using namespace eddy::gpu_test;
using namespace eddy::spec_check;

namespace {

struct Row {
  int samples = 0;
  double result_error = 0, gradient_error = 0;
};

Row check_op(const OpSpec& spec) {
  Row row;
  for (const OpSample& sample : spec.samples) {
    const std::string name = spec.name + "/" + sample.label;
    const Outcome reference = evaluate(spec, sample.inputs);
    const Tensors want = spec.reference ? spec.reference(sample.inputs) : reference.results;
    const Tensors inputs = inputs_on_gpu(sample.inputs);
    EvaluateOptions options;
    for (const Tensor& dy : cotangents(reference.results))
      options.dys.push_back(to_gpu(raw::cast(dy, Dtype::f32)));
    const auto on_gpu = [&] {
      Outcome outcome = evaluate(spec, inputs, options);
      return Outcome{to_cpu(outcome.results), to_cpu(outcome.gradients)};
    };
    const Outcome got = on_gpu();
    REQUIRE_MESSAGE(got.results.size() == want.size(), name);
    for (std::size_t i = 0; i < want.size(); ++i) {
      expect_none(difference(fmt::format("{} result {}", name, i), got.results[i], want[i], spec.roundings,
                             epsilon(Dtype::f32)));
      row.result_error =
          std::max(row.result_error, error_in_roundings(got.results[i], want[i], epsilon(Dtype::f32)));
    }
    if (sample.gradcheck) {
      expect_none(gradient_difference(name, got.gradients, reference.gradients, gradient_roundings(spec),
                                      epsilon(Dtype::f32)));
      for (std::size_t i = 0; i < got.gradients.size(); ++i)
        row.gradient_error =
            std::max(row.gradient_error,
                     error_in_roundings(got.gradients[i], reference.gradients[i], epsilon(Dtype::f32)));
    }
    poison_gpu();
    expect_none(bit_difference(name + " again", on_gpu(), got));
    ++row.samples;
  }
  return row;
}

}  // namespace

TEST_SUITE("device") {
  TEST_CASE("every op agrees on the GPU with its reference and repeats its bits") {
    REQUIRE(!op_specs().empty());
    std::printf("\n%-20s %8s %22s %22s\n", "op", "samples", "result: error/allowed",
                "gradient: error/allowed");
    for (const OpSpec& spec : op_specs()) {
      const Row row = check_op(spec);
      std::printf("%-20s %8d %12.2f /%8.0f %13.2f /%8.0f\n", spec.name.c_str(), row.samples, row.result_error,
                  spec.roundings, row.gradient_error, gradient_roundings(spec));
    }
    std::fflush(stdout);
  }

  TEST_CASE("one tensor as two inputs of an op on the GPU gets the sum of both gradients") {
    for (const OpSpec& spec : op_specs())
      for (const OpSample& sample : spec.samples) {
        if (!sample.gradcheck || spec.name == "div") continue;  // x / x has the gradient 0
        for_pairs(sample.inputs, [&](int first, int second, const Tensors& inputs) {
          EvaluateOptions tied;
          tied.tied_to = first;
          tied.tied = second;
          const Outcome want = evaluate(spec, inputs, tied);
          for (const Tensor& dy : cotangents(want.results))
            tied.dys.push_back(to_gpu(raw::cast(dy, Dtype::f32)));
          expect_none(gradient_difference(
              fmt::format("{}/{} inputs {} and {}", spec.name, sample.label, first, second),
              to_cpu(evaluate(spec, inputs_on_gpu(inputs), tied).gradients), want.gradients,
              2 * gradient_roundings(spec), epsilon(Dtype::f32)));
        });
      }
  }

  TEST_CASE("an f64 tensor is refused by the ops of the GPU") {
    const Tensor x = to_gpu(sample_normal({4, 8}, "x"));
    for (const OpSpec& spec : op_specs())
      if (spec.name == "softmax" || spec.name == "gelu" || spec.name == "sum")
        CHECK_THROWS_AS(spec.run({x}), DtypeError);
  }
}
