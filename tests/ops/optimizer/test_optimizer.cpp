// The optimizer kernels: closed forms, long runs against plain loops, and refusals.
#include "ops/optimizer/optimizer.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

#include "autograd/tape.h"
#include "ops/core/op_spec.h"
#include "ops/pointwise/pointwise.h"
#include "ops/views/views.h"
#include "tensor/base/error.h"
#include "tests/support/errors.h"

using namespace eddy;
using namespace eddy::detail;
using namespace eddy::test;

namespace {

using Doubles = std::vector<double>;

constexpr detail::AdamConstants kUsual = {0.9, 0.999, 1e-8};

// Four arenas of n elements.
struct Arenas {
  Tensor p, g, m, v;
  explicit Arenas(std::int64_t n, Dtype dtype = Dtype::f64)
      : p(raw::cast(sample_normal({n}, "p"), dtype)),
        g(raw::cast(sample_normal({n}, "g"), dtype)),
        m(Tensor::zeros({n}, dtype)),
        v(Tensor::zeros({n}, dtype)) {}
};

double worst_error(const Tensor& got, const Doubles& want) {
  const Doubles values = raw::cast(got, Dtype::f64).to_vector<double>();
  double worst = 0;
  for (std::size_t i = 0; i < want.size(); ++i) {
    const double error = std::abs(values[i] - want[i]);
    if (!(error <= worst)) worst = error;
    if (std::isnan(worst)) break;
  }
  return worst;
}

}  // namespace

TEST_CASE("the first step of Adam moves every parameter by lr against the sign of its gradient") {
  // m^ = g and v^ = g^2 at t = 1, so the step is lr g / (|g| + eps).
  const Arenas a(37);
  const Doubles p = a.p.to_vector<double>(), g = a.g.to_vector<double>();
  detail::adamw_step(a.p, a.g, a.m, a.v, {}, kUsual, {0.01, 1, 0});
  Doubles want(p.size());
  for (std::size_t i = 0; i < p.size(); ++i) want[i] = p[i] - 0.01 * g[i] / (std::abs(g[i]) + 1e-8);
  CHECK(worst_error(a.p, want) <= 1e-15);
}

TEST_CASE("the decay of the first step of AdamW is lr decay p beside the step of Adam") {
  const Arenas a(10), b(10);
  const Doubles before = a.p.to_vector<double>();
  detail::adamw_step(a.p, a.g, a.m, a.v, {}, kUsual, {0.01, 1, 0});
  detail::adamw_step(b.p, b.g, b.m, b.v, {{2, 5, 0.1}, {7, 8, 0.5}}, kUsual, {0.01, 1, 0});
  Doubles want = a.p.to_vector<double>();
  for (const std::size_t i : {2, 3, 4}) want[i] -= 0.01 * 0.1 * before[i];
  want[7] -= 0.01 * 0.5 * before[7];
  CHECK(worst_error(b.p, want) <= 1e-15);
  CHECK(a.m.to_vector<double>() == b.m.to_vector<double>());
  CHECK(a.v.to_vector<double>() == b.v.to_vector<double>());
}

TEST_CASE("a hundred steps of AdamW with clipping agree with a plain loop") {
  const std::int64_t n = 53;
  const detail::AdamConstants options = {0.8, 0.95, 1e-3};
  const double lr = 0.02, clip = 3, decay = 0.1;
  for (const Dtype dtype : {Dtype::f64, Dtype::f32}) {
    const Arenas a(n, dtype);
    Doubles p = raw::cast(a.p, Dtype::f64).to_vector<double>(), m(p.size(), 0), v(p.size(), 0);
    for (std::int64_t step = 1; step <= 100; ++step) {
      // The gradient of a bowl around 1, so that the run settles instead of spreading roundings.
      const Tensor g = raw::cast(a.p, Dtype::f64);
      Doubles gradient = g.to_vector<double>();
      for (double& value : gradient) value -= 1;
      raw::copy_into(a.g, raw::cast(Tensor::from(gradient, {n}), dtype));
      detail::adamw_step(a.p, a.g, a.m, a.v, {{0, n, decay}}, options, {lr, step, clip}, l2_norm(a.g));
      double squares = 0;
      for (const double value : p) squares += (value - 1) * (value - 1);
      const double factor = std::min(1.0, clip / (std::sqrt(squares) + 1e-6));
      for (std::size_t i = 0; i < p.size(); ++i) {
        const double plain = factor * (p[i] - 1);
        m[i] = options.beta1 * m[i] + (1 - options.beta1) * plain;
        v[i] = options.beta2 * v[i] + (1 - options.beta2) * plain * plain;
        p[i] *= 1 - lr * decay;
        p[i] -= lr * m[i] / (1 - std::pow(options.beta1, step)) /
                (std::sqrt(v[i] / (1 - std::pow(options.beta2, step))) + options.eps);
      }
    }
    // Each step rounds p, some 2 in size, a few times; a step depends on p by lr / eps = 20 at most near the
    // bottom.
    const double eps = dtype == Dtype::f32 ? 0x1p-23 : 0x1p-52;
    CHECK(worst_error(a.p, p) <= 100 * 4 * 2 * eps * 20);
  }
}

TEST_CASE("clipping scales gradients down to the norm and never up") {
  CHECK(clip_factor(0, 1) == 1);
  CHECK(clip_factor(0.5, 1) == 1);
  CHECK(clip_factor(4, 1) == 1 / (4 + 1e-6));
  CHECK(clip_factor(4, 0) == 1);
  const Arenas a(40), b(40);
  const double norm = l2_norm(a.g).item();
  detail::adamw_step(a.p, a.g, a.m, a.v, {}, kUsual, {0.01, 1, norm / 2}, l2_norm(a.g));
  raw::copy_into(b.g, b.g * (norm / 2 / (norm + 1e-6)));
  detail::adamw_step(b.p, b.g, b.m, b.v, {}, kUsual, {0.01, 1, 0});
  CHECK(worst_error(a.m, b.m.to_vector<double>()) <= 1e-15);
}

TEST_CASE("a norm that is not finite leaves parameters and moments as they are") {
  for (const double bad : {std::numeric_limits<double>::infinity(), std::numeric_limits<double>::quiet_NaN()})
    for (const double clip : {0.0, 1.0}) {
      const Arenas a(40);
      raw::fill(raw::narrow(a.g, 0, 17, 1), bad);
      const Doubles before = a.p.to_vector<double>();
      detail::adamw_step(a.p, a.g, a.m, a.v, {{0, 40, 0.1}}, kUsual, {0.01, 1, clip}, l2_norm(a.g));
      CHECK(a.p.to_vector<double>() == before);
      CHECK(a.m.to_vector<double>() == Doubles(40, 0));
      CHECK(a.v.to_vector<double>() == Doubles(40, 0));
    }
}

TEST_CASE("the norm of f32 values does not overflow") {
  CHECK(l2_norm(Tensor::full({4}, 1e30)).item() == doctest::Approx(2e30).epsilon(1e-6));
  CHECK(l2_norm(Tensor::zeros({0})).item() == 0);
  CHECK(l2_norm(Tensor::from(Doubles{3, -4}, {2})).item() == 5);
}

TEST_CASE("a step marks the parameters as written") {
  const Arenas a(6);
  const Tensor part = narrow(a.p, 0, 2, 2);  // a parameter is a part of the arena
  const std::uint32_t version = part.buffer()->version();
  detail::adamw_step(a.p, a.g, a.m, a.v, {}, kUsual, {0.01, 1, 0});
  CHECK(part.buffer()->version() == version + 1);
  CHECK(std::string(part.buffer()->last_writer()) == "adamw_step");
  require_grad(a.p);
  const auto step = [&] { detail::adamw_step(reshape(a.p, {6}), a.g, a.m, a.v, {}, kUsual, {0.01, 1, 0}); };
  CHECK(contains(error_of<GraphError>(step), "adamw_step"));
}

TEST_CASE("steps refuse arenas that do not fit") {
  const Arenas a(6);
  const auto step = [](const Tensor& p, const Tensor& g, const Tensor& m, const Tensor& v) {
    detail::adamw_step(p, g, m, v, {}, kUsual, {0.01, 1, 0});
  };
  CHECK(contains(error_of<ShapeError>([&] { step(a.p, Tensor::zeros({5}, Dtype::f64), a.m, a.v); }),
                 "adamw_step: params [6] and grads [5]"));
  CHECK(contains(error_of<DtypeError>([&] { step(a.p, a.g, Tensor::zeros({6}), a.v); }),
                 "adamw_step: f64 and f32"));
  CHECK(contains(error_of<ValueError>([&] { step(a.p, a.g, a.m, Tensor()); }), "adamw_step: v is undefined"));
  CHECK(contains(error_of<ValueError>([&] { step(strided_copy(a.p), a.g, a.m, a.v); }),
                 "adamw_step: params [6] has strides"));
  CHECK(contains(error_of<DtypeError>([&] { l2_norm(Tensor::zeros({2}, Dtype::i64)); }),
                 "l2_norm: input is i64"));
}

TEST_CASE("steps refuse numbers out of range before anything is written") {
  const Arenas a(6);
  const Doubles before = a.p.to_vector<double>();
  const auto text = [&](const detail::AdamConstants& options, const detail::AdamScalars& scalars) {
    return error_of<ValueError>([&] { detail::adamw_step(a.p, a.g, a.m, a.v, {}, options, scalars); });
  };
  const auto segments = [&](const std::vector<detail::DecaySegment>& table) {
    return error_of<ValueError>([&] { detail::adamw_step(a.p, a.g, a.m, a.v, table, kUsual, {0.01, 1, 0}); });
  };
  CHECK(contains(text({1.0, 0.9, 1e-8}, {0.01, 1, 0}), "adamw_step: betas 1 and 0.9"));
  CHECK(contains(text({0.9, 0.99, 0}, {0.01, 1, 0}), "adamw_step: eps 0"));
  CHECK(contains(text(kUsual, {-0.01, 1, 0}), "adamw_step: lr -0.01"));
  CHECK(contains(text(kUsual, {std::nan(""), 1, 0}), "adamw_step: lr nan"));
  CHECK(contains(text(kUsual, {0.01, 0, 0}), "adamw_step: step 0"));
  CHECK(contains(text(kUsual, {0.01, 1, 1}), "adamw_step: clip 1 without the norm"));
  CHECK(contains(text(kUsual, {0.01, 1, -1}), "adamw_step: clip -1"));
  CHECK(
      contains(segments({{0, 3, 0.1}, {2, 4, 0.1}}), "adamw_step: segment 2 to 4 after 3 of an arena of 6"));
  CHECK(contains(segments({{0, 7, 0.1}}), "segment 0 to 7"));
  CHECK(contains(segments({{3, 2, 0.1}}), "segment 3 to 2"));
  CHECK(contains(segments({{-1, 2, 0.1}}), "segment -1 to 2"));
  CHECK(contains(segments({{0, 2, -0.1}}), "decay -0.1 of segment 0 to 2"));
  CHECK(a.p.to_vector<double>() == before);
}
