// Products on the GPU at the shapes of models: against f64 on the CPU within derived bounds, in f32, TF32 and
// bf16, with their speeds in one table.
//
// Bounds: a product of k terms summed in f32 in any order is off by at most k u (|A| |B|), u = 2^-24 (Higham,
// Accuracy and stability of numerical algorithms, 2002, section 3.1); inputs cut to TF32, by rounding or
// not, add 2 * 2^-10 of it, a result rounded to bf16 2^-8 of itself.
#include <doctest/doctest.h>

#include <cmath>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include "autograd/tape.h"
#include "cuda/runtime/context.h"
#include "cuda/runtime/gemm.h"
#include "ops/core/parameter_cache.h"
#include "ops/product/linear.h"
#include "ops/product/matmul.h"
#include "tests/gpu/support/gpu_test.h"
#include "tests/support/spec_check.h"

using namespace eddy;
using namespace eddy::detail;
using namespace eddy::gpu_test;

namespace {

struct Sizes {
  const char* what;
  std::int64_t m, n, k;
  bool transpose_a, transpose_b;
};

// Tokens x width of the small and the middle model, their gradients, the readout, and edges.
constexpr std::int64_t kPart = kEmulated ? 8 : 1;
constexpr Sizes kShapes[] = {
    {"mlp up", 4096 / kPart, 1536 / kPart, 384, false, true},
    {"mlp down", 4096 / kPart, 384 / kPart, 1536, false, true},
    {"dx", 4096 / kPart, 384 / kPart, 1536, false, false},
    {"dW", 1536 / kPart, 384 / kPart, 4096, true, false},
    {"readout", 2048 / kPart, 8192 / kPart, 512, false, true},
    {"square", 2048 / kPart, 2048 / kPart, 2048, false, false},
    {"one row", 1, 1536, 384, false, true},
    {"odd", 333, 77, 129, false, true},
    {"odd, both transposed", 77, 65, 33, true, true},
    {"one column", 513, 1, 200, false, false},
    {"sides beside multiples of 8", 1003, 1005, 1007, false, true},
    {"the same the other way round", 1003, 1005, 1007, true, false},
};

Tensor absolute(const Tensor& x) {
  std::vector<double> values = x.to_vector<double>();
  for (double& value : values) value = std::abs(value);
  return Tensor::from(values, x.shape());
}

// As stored: transposed operands lie the other way round.
Tensor stored(const char* stream, std::int64_t rows, std::int64_t columns, bool transposed) {
  return transposed ? sample_normal({columns, rows}, stream) : sample_normal({rows, columns}, stream);
}
Tensor seen(const Tensor& x, bool transposed) {
  return transposed ? raw::transpose(x, 0, 1) : x;
}

GemmArgs arguments(const Sizes& s, const Tensor& a, const Tensor& b, const Tensor& c) {
  GemmArgs g{a.dtype(),    s.transpose_a, s.transpose_b, s.m,      s.n,          s.k,
             a.raw_data(), a.dim(1),      b.raw_data(),  b.dim(1), c.raw_data(), s.n};
  g.c_f32 = c.dtype() == Dtype::f32;
  return g;
}

// The largest error in shares of its bound; NaN counts as infinite.
double worst_share(const Tensor& got, const Tensor& want, const Tensor& magnitudes, double of_magnitude,
                   double of_value) {
  const std::vector<double> c = raw::cast(got, Dtype::f64).to_vector<double>();
  const std::vector<double> exact = want.to_vector<double>(), bound = magnitudes.to_vector<double>();
  double worst = 0;
  for (std::size_t i = 0; i < exact.size(); ++i) {
    const double share =
        std::abs(c[i] - exact[i]) / (of_magnitude * bound[i] + of_value * std::abs(exact[i]) + 1e-30);
    if (!(share <= worst)) worst = std::isnan(share) ? INFINITY : share;
  }
  return worst;
}

enum class Form { f32, tf32, bf16_to_f32, bf16_to_bf16 };
constexpr const char* kFormNames[] = {"f32", "tf32", "bf16 > f32", "bf16 > bf16"};

double tflops(const Sizes& s, const GemmArgs& product) {
  if (kEmulated) return 0;
  for (int warm = 0; warm < 3; ++warm) cuda::gemm(product);
  constexpr int kRepeats = 20;
  cuda::Timer timer;
  timer.start();
  for (int i = 0; i < kRepeats; ++i) cuda::gemm(product);
  return 2.0 * static_cast<double>(s.m) * static_cast<double>(s.n) * static_cast<double>(s.k) * kRepeats /
         (timer.stop() * 1e9);
}

}  // namespace

TEST_SUITE("device") {
  TEST_CASE("products at the shapes of models keep their bounds and repeat their bits in every precision") {
    std::printf("\n%-22s %5s %5s %5s  %-12s %14s %9s\n", "product", "m", "n", "k", "precision", "error/bound",
                "TFLOP/s");
    for (const Sizes& s : kShapes) {
      const Tensor a64 = stored("a", s.m, s.k, s.transpose_a), b64 = stored("b", s.k, s.n, s.transpose_b);
      for (const Form form : {Form::f32, Form::tf32, Form::bf16_to_f32, Form::bf16_to_bf16}) {
        const bool bf = form == Form::bf16_to_f32 || form == Form::bf16_to_bf16;
        const Dtype in = bf ? Dtype::bf16 : Dtype::f32,
                    out = form == Form::bf16_to_bf16 ? Dtype::bf16 : Dtype::f32;
        const Tensor a = raw::cast(a64, in), b = raw::cast(b64, in);
        // The inputs as the GPU gets them: rounding them is not the product's error.
        const Tensor exact_a = seen(raw::cast(a, Dtype::f64), s.transpose_a),
                     exact_b = seen(raw::cast(b, Dtype::f64), s.transpose_b);
        const Tensor want = matmul(exact_a, exact_b),
                     magnitudes = matmul(absolute(exact_a), absolute(exact_b));
        const Tensor device_a = to_gpu(a), device_b = to_gpu(b),
                     c = Tensor::full({s.m, s.n}, NAN, out, gpu());
        GemmArgs product = arguments(s, device_a, device_b, c);
        if (form == Form::tf32) product.precision = MatmulPrecision::tf32;
        cuda::gemm(product);
        const Tensor got = to_cpu(c);
        const double sums = static_cast<double>(s.k) * 0x1p-24;
        const double share = worst_share(got, want, magnitudes, sums + (form == Form::tf32 ? 0x1p-9 : 0),
                                         out == Dtype::bf16 ? 0x1p-8 : 0);
        CHECK_MESSAGE(share <= 1, std::string(s.what), " ", std::string(kFormNames[static_cast<int>(form)]));
        cuda::gemm(product);
        spec_check::expect_none(spec_check::bit_difference(s.what, to_cpu(c), got));
        std::printf("%-22s %5d %5d %5d  %-12s %14.4f %9.2f\n", s.what, static_cast<int>(s.m),
                    static_cast<int>(s.n), static_cast<int>(s.k), kFormNames[static_cast<int>(form)], share,
                    tflops(s, product));
      }
    }
    std::fflush(stdout);
  }

  TEST_CASE("an f32 product is exact to f32 unless its precision is tf32") {
    const Sizes s{"short sums", 1024 / kPart, 1024 / kPart, 8, false, true};
    const Tensor a = stored("a", s.m, s.k, false), b = stored("b", s.k, s.n, true);
    const Tensor want = matmul(a, seen(b, true)), magnitudes = matmul(absolute(a), absolute(seen(b, true)));
    const Tensor device_a = to_gpu(raw::cast(a, Dtype::f32)), device_b = to_gpu(raw::cast(b, Dtype::f32));
    const Tensor c = Tensor::empty({s.m, s.n}, Dtype::f32, gpu());
    cuda::gemm(arguments(s, device_a, device_b, c));
    CHECK(worst_share(to_cpu(c), want, magnitudes, 8 * 0x1p-24, 0) <= 1);  // TF32 would be some 100 times off
  }

  TEST_CASE("a product adds into its target with beta 1 and bf16 products gather in f32") {
    const Sizes s{"gather", 130, 70, 50, true, false};
    const Tensor a = raw::cast(stored("a", s.m, s.k, true), Dtype::bf16),
                 b = raw::cast(stored("b", s.k, s.n, false), Dtype::bf16);
    const Tensor exact_a = seen(raw::cast(a, Dtype::f64), true), exact_b = raw::cast(b, Dtype::f64);
    const Tensor want = matmul(exact_a, exact_b), magnitudes = matmul(absolute(exact_a), absolute(exact_b));
    const Tensor device_a = to_gpu(a), device_b = to_gpu(b), c = Tensor::zeros({s.m, s.n}, Dtype::f32, gpu());
    GemmArgs product = arguments(s, device_a, device_b, c);
    product.beta = 1;
    for (int i = 0; i < 3; ++i) cuda::gemm(product);
    const Tensor thrice = raw::copy(want), bound = raw::copy(magnitudes);
    for (int i = 0; i < 2; ++i) {
      raw::add_into(thrice, want);
      raw::add_into(bound, magnitudes);
    }
    CHECK(worst_share(to_cpu(c), thrice, bound, (50 + 3) * 0x1p-24, 0) <= 1);
  }

  TEST_CASE("linear adds its bias in the product and batches of heads need no copies") {
    const Tensor x = sample_normal({3, 17, 40}, "x"), w = sample_normal({24, 40}, "w"),
                 bias = sample_normal({24}, "b");
    const auto on_gpu = [](const Tensor& t) { return to_gpu(raw::cast(t, Dtype::f32)); };
    std::string text = spec_check::difference("linear", to_cpu(linear(on_gpu(x), on_gpu(w), on_gpu(bias))),
                                              linear(x, w, bias), 32, spec_check::epsilon(Dtype::f32));
    CHECK_MESSAGE(text.empty(), text);
    // [batch, time, heads, head_size] seen as [batch, heads, time, head_size]: two levels of batch by
    // strides.
    const Tensor q = sample_normal({3, 20, 5, 16}, "q"), k = sample_normal({3, 31, 5, 16}, "k");
    const auto scores = [](const Tensor& a, const Tensor& b) {
      return matmul(raw::transpose(a, 1, 2), raw::transpose(raw::transpose(b, 1, 2), 2, 3));
    };
    text = spec_check::difference("scores", to_cpu(scores(on_gpu(q), on_gpu(k))), scores(q, k), 32,
                                  spec_check::epsilon(Dtype::f32));
    CHECK_MESSAGE(text.empty(), text);
    // More batches than heads: the levels change places.
    const Tensor wide = sample_normal({9, 6, 2, 8}, "wide");
    text = spec_check::difference("wide", to_cpu(scores(on_gpu(wide), on_gpu(wide))), scores(wide, wide), 32,
                                  spec_check::epsilon(Dtype::f32));
    CHECK_MESSAGE(text.empty(), text);
  }

  TEST_CASE("linear with ReLU clips in the product, with and without a bias, in every precision") {
    const Tensor x = sample_normal({3, 17, 40}, "x"), w = sample_normal({24, 40}, "w"),
                 biases = sample_normal({25}, "b");
    for (const Form form : {Form::f32, Form::tf32, Form::bf16_to_bf16})
      for (const std::int64_t start : {-1, 0, 1}) {  // no bias, an aligned one, one that is not
        CAPTURE(kFormNames[static_cast<int>(form)]);
        CAPTURE(start);
        const Dtype dtype = form == Form::bf16_to_bf16 ? Dtype::bf16 : Dtype::f32;
        const auto bias = [&](const Tensor& all) {
          return start < 0 ? Tensor() : raw::narrow(all, 0, start, 24);
        };
        const auto exact = [&](const Tensor& t) { return raw::cast(raw::cast(t, dtype), Dtype::f64); };
        const Tensor want = linear(exact(x), exact(w), bias(exact(biases)), {.relu = true}),
                     magnitudes =
                         linear(absolute(exact(x)), absolute(exact(w)), bias(absolute(exact(biases))));
        const auto on_gpu = [&](const Tensor& t) { return to_gpu(raw::cast(t, dtype)); };
        const Tensor weight = on_gpu(w);
        if (form == Form::tf32) mark_parameters(weight, MatmulPrecision::tf32);
        const Tensor got = to_cpu(linear(on_gpu(x), weight, bias(on_gpu(biases)), {.relu = true}));
        const double sums = 41 * 0x1p-24 + (form == Form::tf32 ? 0x1p-9 : 0);
        CHECK(worst_share(got, want, magnitudes, sums, dtype == Dtype::bf16 ? 0x1p-8 : 0) <= 1);
      }
    const auto bias_of = [](double value) { return to_gpu(Tensor::full({2}, value)); };
    for (const double value : {-5.0, 5.0}) {  // an empty sum
      const Tensor none = linear(to_gpu(Tensor::zeros({3, 0})), to_gpu(Tensor::zeros({2, 0})), bias_of(value),
                                 {.relu = true});
      CHECK(to_cpu(none).to_vector<float>() == std::vector<float>(6, value > 0 ? 5.0f : 0.0f));
    }
  }

  TEST_CASE("weights that lie upon each other are one product, and so are their gradients") {
    const Tensor x = sample_normal({3, 17, 40}, "x"), w = sample_normal({29, 40}, "w"),
                 dy = sample_normal({3, 17, 29}, "dy");
    const auto on_gpu = [](const Tensor& t) { return to_gpu(raw::cast(t, Dtype::f32)); };
    const Tensor values = on_gpu(w), gradients = on_gpu(w), device_x = on_gpu(x);
    require_grad(device_x);
    std::vector<Tensor> weights;
    for (const auto& [first, rows] : {std::pair{0, 8}, std::pair{8, 5}, std::pair{13, 16}}) {
      weights.push_back(require_grad(raw::narrow(values, 0, first, rows)));
      set_grad_storage(weights.back(), raw::narrow(gradients, 0, first, rows));
    }
    require_grad(x);
    require_grad(w);
    const auto close = [](const char* what, const Tensor& got, const Tensor& want) {
      spec_check::expect_none(
          spec_check::difference(what, to_cpu(got), want, 64, spec_check::epsilon(Dtype::f32)));
    };
    for (const bool in_parts : {false, true}) {  // the second time the weights' gradients are added to
      const std::vector<Tensor> parts =
          in_parts ? linear_parts(device_x, weights) : std::vector<Tensor>{linear(device_x, weights)};
      const Tensor want = linear(x, w);
      std::vector<Tensor> dys;
      std::int64_t first = 0;
      for (const Tensor& part : parts) {
        close("linear", part, raw::copy(raw::narrow(want, 2, first, part.dim(2))));
        dys.push_back(on_gpu(raw::copy(raw::narrow(dy, 2, first, part.dim(2)))));
        first += part.dim(2);
      }
      backward(parts, dys);
      backward(want, dy);
    }
    close("dx", grad(device_x), grad(x));
    close("dweights", gradients, grad(w));
  }

  TEST_CASE("an empty sum is zero or the bias and operands that are not aligned are multiplied") {
    const Tensor none =
        linear(to_gpu(Tensor::zeros({2, 0})), to_gpu(Tensor::zeros({3, 0})), to_gpu(Tensor::full({3}, 5)));
    CHECK(to_cpu(none).to_vector<float>() == std::vector<float>(6, 5.0f));
    const Tensor a = raw::cast(sample_normal({33 * 20 + 1}, "a"), Dtype::f32);
    const auto odd = [](const Tensor& t) { return raw::reshape(raw::narrow(t, 0, 1, 33 * 20), {33, 20}); };
    const Tensor exact = raw::cast(odd(a), Dtype::f64);
    std::string text = spec_check::difference(
        "odd", to_cpu(matmul(odd(to_gpu(a)), raw::transpose(odd(to_gpu(a)), 0, 1))),
        matmul(exact, raw::transpose(exact, 0, 1)), 32, spec_check::epsilon(Dtype::f32));
    CHECK_MESSAGE(text.empty(), text);
    const auto bias = [](const Tensor& t) { return raw::narrow(t, 0, 1, 33); };
    text = spec_check::difference("odd bias", to_cpu(linear(odd(to_gpu(a)), odd(to_gpu(a)), bias(to_gpu(a)))),
                                  linear(exact, exact, bias(raw::cast(a, Dtype::f64))), 32,
                                  spec_check::epsilon(Dtype::f32));
    CHECK_MESSAGE(text.empty(), text);
  }
}
