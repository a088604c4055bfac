// Norms of rows of every length on a GPU, in f32 and bf16: shorter than a warp, of one warp and several, with
// and without whole groups of 16 bytes, and longer than registers hold; few rows and so many that the
// gradients of the parameters are summed on the way of dx. Against f64 on the CPU from the same numbers.
//
// Tolerances: as in test_gpu_edges.cpp for f32, as in test_gpu_bf16.cpp for bf16.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "ops/norm/layer_norm.h"
#include "ops/norm/rms_norm.h"
#include "ops/norm/unit_norm.h"
#include "ops/reduce/reduce.h"
#include "tensor/transfer.h"
#include "tests/gpu/support/gpu_test.h"
#include "tests/support/bf16_check.h"

using namespace eddy;
using namespace eddy::detail;
using namespace eddy::gpu_test;
using namespace eddy::spec_check;

namespace {

struct NormCase {
  const char* name;
  int activations;         // among the inputs, in front
  const char* parameters;  // a letter each: v for a vector, t for a table of the last two axes
  std::function<Tensors(const Tensors&)> run;
};

std::vector<NormCase> norm_cases() {
  const auto both = [](const SumAndNorm& y) { return Tensors{y.sum, y.norm}; };
  return {
      {"layer_norm", 1, "vv", [](const Tensors& x) { return Tensors{layer_norm(x[0], x[1], x[2])}; }},
      {"layer_norm of rows alone", 1, "", [](const Tensors& x) { return Tensors{layer_norm(x[0], {})}; }},
      {"add_layer_norm", 2, "vv",
       [both](const Tensors& x) { return both(add_layer_norm(x[0], x[1], x[2], x[3])); }},
      {"rms_norm", 1, "v", [](const Tensors& x) { return Tensors{rms_norm(x[0], x[1])}; }},
      {"rms_norm_add", 1, "vt", [](const Tensors& x) { return Tensors{rms_norm_add(x[0], x[1], x[2])}; }},
      {"add_rms_norm", 2, "v", [both](const Tensors& x) { return both(add_rms_norm(x[0], x[1], x[2])); }},
      {"unit_norm", 1, "", [](const Tensors& x) { return Tensors{unit_norm(x[0])}; }},
      {"unit_norm_heads", 1, "",
       [](const Tensors& x) {
         return Tensors{unit_norm_heads(x[0], 1e-6, {x[0].dim(-2) / 2, x[0].dim(-2) / 2})};
       }},
  };
}

Tensors inputs_of(const NormCase& one, const Shape& shape) {
  Tensors inputs;
  for (int i = 0; i < one.activations; ++i)
    inputs.push_back(sample_normal(shape, ("x" + std::to_string(i)).c_str()));
  for (const char* kind = one.parameters; *kind != 0; ++kind)
    inputs.push_back(sample_normal(*kind == 'v' ? Shape{shape.dim(-1)} : Shape{shape.dim(-2), shape.dim(-1)},
                                   ("p" + std::to_string(inputs.size())).c_str()));
  return inputs;
}

OpSpec spec_of(const NormCase& one) {
  OpSpec spec;
  spec.name = one.name;
  spec.run = one.run;
  return spec;
}

// The inputs on the GPU, activations of the dtype and parameters of f32, and the cotangents of the results.
struct OnGpu {
  Tensors inputs;
  EvaluateOptions options;
};
OnGpu on_gpu(const NormCase& one, const Tensors& inputs, const Tensors& dys, Dtype dtype) {
  OnGpu result;
  for (std::size_t i = 0; i < inputs.size(); ++i)
    result.inputs.push_back(
        to_gpu(raw::cast(inputs[i], static_cast<int>(i) < one.activations ? dtype : Dtype::f32)));
  for (const Tensor& dy : dys) result.options.dys.push_back(to_gpu(raw::cast(dy, dtype)));
  return result;
}
Outcome run(const NormCase& one, const OnGpu& given) {
  const Outcome outcome = evaluate(spec_of(one), given.inputs, given.options);
  return {to_cpu(outcome.results), to_cpu(outcome.gradients)};
}

// Rounded to what the dtype holds, as f64.
Tensors rounded(const Tensors& tensors, Dtype dtype) {
  return changed(tensors, [&](const Tensor& x) { return raw::cast(raw::cast(x, dtype), Dtype::f64); });
}

// Compares with f64, and the GPU's bits with those of a second time.
void check(const NormCase& one, const Shape& shape, Dtype dtype, bool twice = false) {
  const std::string name = std::string(one.name) + " of " + to_string(shape) + " in " + dtype_name(dtype) +
                           (twice ? " twice" : "");
  const Tensors inputs = rounded(inputs_of(one, shape), dtype);
  EvaluateOptions options;
  options.dys = rounded(cotangents(one.run(inputs)), dtype);
  options.twice = twice;
  const Outcome want = evaluate(spec_of(one), inputs, options);
  OnGpu given = on_gpu(one, inputs, options.dys, dtype);
  given.options.twice = twice;
  const Outcome got = run(one, given);
  const bool half = dtype == Dtype::bf16;
  const double eps = half ? kBf16Rounding : epsilon(Dtype::f32);
  const double result = half ? bf16_roundings(128, rounds_twice(one.name) ? 2 : 1) : 128;
  const double gradient = half ? bf16_roundings(528, 5) : 528;
  for (std::size_t i = 0; i < want.results.size(); ++i) {
    expect_none(difference(name, got.results[i], want.results[i], result, eps));
  }
  std::string text = gradient_difference(name, got.gradients, want.gradients, gradient, eps);
  CHECK_MESSAGE(text.empty(), text);
  poison_gpu();
  text = bit_difference(name + " again", run(one, given), got);
  CHECK_MESSAGE(text.empty(), text);
}

// The same numbers in rows that are `gap` elements apart and begin `start` elements behind an aligned place.
Tensor moved(const Tensor& x, std::int64_t start, std::int64_t gap) {
  Shape shape = x.shape();
  shape[x.rank() - 1] += start + gap;
  const Tensor view = raw::narrow(Tensor::zeros(shape, x.dtype(), x.device()), -1, start, x.dim(-1));
  raw::copy_into(view, x);
  return view;
}

}  // namespace

TEST_SUITE("device") {
  TEST_CASE("norms of rows of every length agree with the CPU and repeat their bits") {
    for (const NormCase& one : norm_cases())
      for (const std::int64_t width : {1, 3, 8, 16, 17, 128, 384, 1000, 1024, 2048, 8192, 8200, 12001})
        for (const Shape& shape : {Shape{1, 1, width}, Shape{1, 5, width}, Shape{2, 9, width}}) {
          // dx of a row of one element is what rounding leaves of dy - dy: test_gpu_ops has one near eps.
          if (width == 1 && one.name != std::string("layer_norm")) continue;
          if (kEmulated && width > 2048 && shape.dim(0) > 1) continue;
          for (const Dtype dtype : {Dtype::f32, Dtype::bf16}) check(one, shape, dtype);
        }
  }

  TEST_CASE("norms of rows without entries, and of no rows, are empty on the GPU") {
    for (const NormCase& one : norm_cases())
      for (const Shape& shape : {Shape{2, 4, 0}, Shape{0, 4, 8}})
        for (const Dtype dtype : {Dtype::f32, Dtype::bf16}) check(one, shape, dtype);
    // The kernels by themselves, which the ops do not call then: no row is read.
    for (const Dtype dtype : {Dtype::f32, Dtype::bf16}) {
      const Tensor rstd = Tensor::full({3}, 0, Dtype::f32, gpu());
      rms_norm_forward_slot(
          gpu(), {dtype, 3, 0, nullptr, 0, nullptr, nullptr, nullptr, 0, nullptr, rstd.raw_data(), 1e-5});
      rms_norm_backward_slot(gpu(), {dtype, 3, 0, nullptr, 0, nullptr, 0, nullptr, nullptr, rstd.raw_data(),
                                     nullptr, 0, 0, nullptr, nullptr, 0});
      CHECK(to_cpu(rstd).to_vector<float>().size() == 3);
    }
  }

  TEST_CASE("norms of many rows agree with the CPU and repeat their bits") {
    // So many blocks of 64 rows that dx and the sums for the parameters are one kernel.
    const std::vector<NormCase> cases = norm_cases();
    std::vector<std::int64_t> widths = {24};  // a part of a warp to a row
    if (!kEmulated) widths = {24, 131, 520, 1032, 2056};
    for (const NormCase& one : cases)
      for (const std::int64_t width : widths)
        for (const Dtype dtype : {Dtype::f32, Dtype::bf16}) check(one, {3, 1367, width}, dtype);
    check(cases[0], {3, 1367, 520}, Dtype::bf16);  // two warps
    check(cases[3], {3, 1367, 1032}, Dtype::f32);  // a block
  }

  TEST_CASE("gradients of norms are added to what is there already") {
    for (const NormCase& one : norm_cases())
      for (const Shape& shape : {Shape{2, 9, 40}, Shape{3, 1367, 40}, Shape{2, 9, 8200}})
        check(one, shape, Dtype::f32, true);
  }

  TEST_CASE("norms of rows anywhere have the bits of norms of rows that are aligned") {
    for (const NormCase& one : norm_cases())
      for (const Shape& shape : {Shape{2, 9, 24}, Shape{2, 9, 1024}, Shape{3, 1367, 40}})
        for (const Dtype dtype : {Dtype::f32, Dtype::bf16}) {
          const Tensors inputs = inputs_of(one, shape);
          const OnGpu aligned = on_gpu(one, inputs, cotangents(one.run(inputs)), dtype);
          const Outcome want = run(one, aligned);
          // By one element, so that nothing is aligned, and by 16 with as many between, so that all is.
          for (const std::int64_t start : {1, 16}) {
            const auto elsewhere = [&](const Tensor& x) { return moved(x, start, 16 - start % 16); };
            OnGpu given = aligned;
            given.inputs = changed(given.inputs, elsewhere);
            given.options.dys = changed(given.options.dys, elsewhere);
            expect_none(bit_difference(fmt::format("{} of {} in {}, {} elements on", one.name,
                                                   to_string(shape), dtype_name(dtype), start),
                                       run(one, given), want));
          }
        }
  }

  TEST_CASE("NaN in a row stays in the row's norm and gradient") {
    for (const NormCase& one : norm_cases())
      for (const Shape& shape : {Shape{1, 9, 64}, Shape{1, 9, 2048}, Shape{1, 4107, 16}, Shape{1, 9, 8200}})
        for (const Dtype dtype : {Dtype::f32, Dtype::bf16}) {
          const Tensors inputs = inputs_of(one, shape);
          const OnGpu sound = on_gpu(one, inputs, cotangents(one.run(inputs)), dtype);
          const Outcome want = run(one, sound);
          OnGpu given = sound;
          const std::int64_t width = shape.dim(-1), bad = 3;
          const Tensor broken = raw::copy(given.inputs[0]);
          raw::copy_into(raw::narrow(raw::narrow(broken, -2, bad, 1), -1, width - 1, 1),
                         Tensor::full({1, 1, 1}, std::numeric_limits<double>::quiet_NaN(), dtype, gpu()));
          given.inputs[0] = broken;
          const Outcome got = run(one, given);
          for (const auto& [a, b] : {std::pair{got.results.back(), want.results.back()},
                                     std::pair{got.gradients[0], want.gradients[0]}})
            for (const auto& [first, count] :
                 {std::pair{std::int64_t{0}, bad}, std::pair{bad + 1, shape.dim(-2) - bad - 1}}) {
              expect_none(bit_difference(one.name, raw::narrow(a, -2, first, count),
                                         raw::narrow(b, -2, first, count)));
            }
          const bool plain = one.name == std::string("unit_norm_heads") && bad >= shape.dim(-2) / 2;
          const std::vector<double> row =
              raw::cast(raw::narrow(got.results.back(), -2, bad, 1), Dtype::f64).to_vector<double>();
          for (const double value : row)
            if (!plain) CHECK(std::isnan(value));
        }
  }

  TEST_CASE("a norm's gradient may replace that of its result and partial sums go on") {
    for (const std::int64_t rows : {70, 4101}) {
      constexpr std::int64_t kWidth = 72;
      const Tensor x = sample_normal({rows, kWidth}, "x"), dy = sample_normal({rows, kWidth}, "dy"),
                   weight = sample_normal({kWidth}, "weight");
      // Twice over the same rows: the second time the sums are added to the first.
      const auto gradients = [&](Device device, Dtype dtype, bool centred) {
        const auto there = [&](const Tensor& t) { return raw::to_device(raw::cast(t, dtype), device); };
        const Tensor at_x = there(x), gain = there(weight), y = Tensor::empty(x.shape(), dtype, device),
                     mean = Tensor::empty({rows}, dtype, device), rstd = Tensor::empty({rows}, dtype, device);
        const Tensor sums = Tensor::empty({norm_blocks(device, rows), kWidth}, dtype, device),
                     bias_sums = Tensor::full({norm_blocks(device, rows), kWidth}, 0, dtype, device);
        Tensor dx;
        for (const float partial_beta : {0.0f, 1.0f}) {
          dx = there(dy);
          if (centred) {
            layer_norm_forward_slot(
                device, {dtype, rows, kWidth, at_x.raw_data(), kWidth, gain.raw_data(), nullptr, y.raw_data(),
                         kWidth, mean.raw_data(), rstd.raw_data(), 1e-5});
            layer_norm_backward_slot(
                device, {dtype, rows, kWidth, dx.raw_data(), kWidth, at_x.raw_data(), kWidth, gain.raw_data(),
                         mean.raw_data(), rstd.raw_data(), dx.raw_data(), kWidth, 0, sums.raw_data(),
                         bias_sums.raw_data(), partial_beta});
          } else {
            rms_norm_forward_slot(device, {dtype, rows, kWidth, at_x.raw_data(), kWidth, gain.raw_data(),
                                           nullptr, y.raw_data(), kWidth, nullptr, rstd.raw_data(), 1e-5});
            rms_norm_backward_slot(device, {dtype, rows, kWidth, dx.raw_data(), kWidth, at_x.raw_data(),
                                            kWidth, gain.raw_data(), nullptr, rstd.raw_data(), dx.raw_data(),
                                            kWidth, 0, sums.raw_data(), nullptr, partial_beta});
          }
        }
        return Tensors{to_cpu(dx), sum_to(to_cpu(sums), {kWidth}), sum_to(to_cpu(bias_sums), {kWidth})};
      };
      for (const bool centred : {true, false}) {
        const Tensors want = gradients(kCpu, Dtype::f64, centred),
                      got = gradients(gpu(), Dtype::f32, centred);
        expect_none(gradient_difference("slots", got, want, 528, epsilon(Dtype::f32)));
      }
    }
  }

  TEST_CASE("a norm sums the columns of dx as it is stored, and nothing else changes") {
    struct Size {
      std::int64_t rows, width;
    };
    for (const Dtype dtype : {Dtype::f32, Dtype::bf16})
      for (const auto& [rows, width] : {Size{497, 72}, Size{16400, 8}, Size{500, 1088}})
        for (const bool centred : {true, false})
          for (const bool aligned : {true, false}) {
            CAPTURE(rows);
            CAPTURE(width);
            const auto there = [&](const char* name, const Shape& shape, Dtype type) {
              const Tensor x = to_gpu(raw::cast(sample_normal(shape, name), type));
              return aligned ? x : at_odd_addresses({x})[0];
            };
            const Tensor x = there("x", {rows, width}, dtype), dy = there("dy", {rows, width}, dtype),
                         dsum = there("dsum", {rows, width}, dtype),
                         gain = there("gain", {width}, Dtype::f32), mean = there("mean", {rows}, Dtype::f32),
                         rstd = there("rstd", {rows}, Dtype::f32);
            const Shape partials{norm_blocks(gpu(), rows), width};
            const auto sums = [&] { return Tensor::empty(partials, Dtype::f32, gpu()); };
            Tensors results[2];
            for (const bool columns : {false, true}) {
              const Tensor dx = there("dx", {rows, width}, dtype), dweight = sums(), dbias = sums(),
                           of_dx = sums();
              const RowNormBackwardArgs args{dtype,
                                             rows,
                                             width,
                                             dy.raw_data(),
                                             width,
                                             x.raw_data(),
                                             width,
                                             gain.raw_data(),
                                             mean.raw_data(),
                                             rstd.raw_data(),
                                             dx.raw_data(),
                                             width,
                                             0,
                                             dweight.raw_data(),
                                             dbias.raw_data(),
                                             0,
                                             dsum.raw_data(),
                                             columns ? of_dx.raw_data() : nullptr};
              (centred ? layer_norm_backward_slot : rms_norm_backward_slot)(gpu(), args);
              results[columns] = to_cpu({dx, dweight});
              if (centred) results[columns].push_back(to_cpu(dbias));
              if (!columns) continue;
              const Tensor stored = raw::cast(to_cpu(dx), Dtype::f64);
              const std::int64_t each = norm_block_rows(true, rows);
              Tensors want;
              for (std::int64_t b = 0; b < partials[0]; ++b)
                want.push_back(
                    sum_to(raw::narrow(stored, 0, b * each, std::min(each, rows - b * each)), {1, width}));
              expect_none(difference("sums", to_cpu(of_dx), raw::concat(want, 0), 64, epsilon(Dtype::f32)));
            }
            for (std::size_t i = 0; i < results[0].size(); ++i)
              expect_none(bit_difference("beside sums", results[1][i], results[0][i]));
          }
  }
}
