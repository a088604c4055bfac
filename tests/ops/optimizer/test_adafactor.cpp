// The Adafactor kernel: several parameters and steps against a plain loop, closed forms, and refusals.
#include "ops/optimizer/adafactor.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "ops/core/op_spec.h"
#include "ops/optimizer/optimizer.h"
#include "tensor/base/error.h"
#include "tensor/threads/thread_pool.h"
#include "tests/support/errors.h"
#include "tests/support/threads.h"

using namespace eddy;
using namespace eddy::test;

namespace {

using Doubles = std::vector<double>;

// One parameter, written as the formulas are: the whole matrix of estimates is formed.
struct PlainAdafactor {
  std::int64_t rows, columns;  // rows 1 for what is no matrix
  Doubles w, m, r, c, v;

  PlainAdafactor(std::int64_t row_count, std::int64_t column_count, Doubles values)
      : rows(row_count), columns(column_count), w(std::move(values)), m(w.size()) {
    if (factored()) {
      r.resize(static_cast<std::size_t>(rows));
      c.resize(static_cast<std::size_t>(columns));
    } else {
      v.resize(w.size());
    }
  }
  bool factored() const { return rows >= 128 && columns >= 128; }

  static double rms(const Doubles& x) {
    double sum = 0;
    for (const double value : x) sum += value * value;
    return std::sqrt(sum / static_cast<double>(x.size()));
  }

  void step(const Doubles& g, double lr, std::int64_t t) {
    const double beta2 = 1 - std::pow(static_cast<double>(t + 1), -0.8);
    const std::size_t n = w.size(), width = static_cast<std::size_t>(columns);
    Doubles estimate(n), u(n);
    if (factored()) {
      Doubles row_mean(r.size()), column_mean(c.size());
      for (std::size_t i = 0; i < n; ++i) {
        row_mean[i / width] += (g[i] * g[i] + 1e-30) / static_cast<double>(columns);
        column_mean[i % width] += (g[i] * g[i] + 1e-30) / static_cast<double>(rows);
      }
      for (std::size_t i = 0; i < r.size(); ++i) r[i] = beta2 * r[i] + (1 - beta2) * row_mean[i];
      for (std::size_t j = 0; j < c.size(); ++j) c[j] = beta2 * c[j] + (1 - beta2) * column_mean[j];
      double mean = 0;
      for (const double value : r) mean += value / static_cast<double>(rows);
      for (std::size_t i = 0; i < n; ++i) estimate[i] = r[i / width] * c[i % width] / mean;
    } else {
      for (std::size_t i = 0; i < n; ++i)
        estimate[i] = v[i] = beta2 * v[i] + (1 - beta2) * (g[i] * g[i] + 1e-30);
    }
    for (std::size_t i = 0; i < n; ++i) u[i] = g[i] / std::sqrt(estimate[i]);
    const double clip = std::max(1.0, rms(u)), scale = std::max(rms(w), 1e-3);
    for (std::size_t i = 0; i < n; ++i) {
      m[i] = 0.9 * m[i] + 0.1 * (u[i] / clip * lr * scale);
      w[i] -= m[i];
    }
  }
};

// AdafactorArenas for parameters with gaps of 3 elements between them.
struct AdafactorArenas {
  detail::AdafactorPlan plan;
  std::vector<detail::AdafactorParameter> places;
  Tensor p, m, second;

  AdafactorArenas(const std::vector<Shape>& shapes, Dtype dtype) {
    std::int64_t next = 0;
    for (const Shape& shape : shapes) {
      places.push_back({next, shape});
      next += shape.elements() + 3;
    }
    plan = detail::adafactor_plan(places);
    p = raw::cast(sample_normal({next}, "p", 0.1), dtype);
    m = Tensor::zeros({next}, dtype);
    second = Tensor::zeros({plan.second_elements}, dtype);
  }
  Doubles part(const Tensor& arena, std::size_t k) const {
    return raw::cast(raw::narrow(arena, 0, places[k].begin, places[k].shape.elements()), Dtype::f64)
        .to_vector<double>();
  }
};

Tensor gradient(std::int64_t n, int step, Dtype dtype) {
  return raw::cast(sample_normal({n}, ("g" + std::to_string(step)).c_str(), step == 2 ? 10 : 0.01), dtype);
}

const std::vector<Shape> kShapes{{130, 257}, {7}, {127, 300}, {}, {128, 128}, {2, 130, 140}};

// Six steps of the kernel and of plain loops; the largest difference of a parameter and of a momentum.
double difference_after_steps(Dtype dtype) {
  AdafactorArenas arenas(kShapes, dtype);
  std::vector<PlainAdafactor> plain;
  for (std::size_t k = 0; k < kShapes.size(); ++k) {
    const Shape& shape = kShapes[k];
    const bool matrix = shape.rank() == 2;
    plain.emplace_back(matrix ? shape[0] : 1, matrix ? shape[1] : shape.elements(), arenas.part(arenas.p, k));
  }
  double worst = 0;
  for (int t = 0; t < 6; ++t) {
    const double lr = 0.01 * (t + 1);
    const Tensor g = gradient(arenas.p.elements(), t, dtype);
    detail::adafactor_step(arenas.p, g, arenas.m, arenas.second, arenas.plan, {}, {lr, t, 0});
    for (std::size_t k = 0; k < kShapes.size(); ++k) {
      plain[k].step(arenas.part(g, k), lr, t);
      const Doubles w = arenas.part(arenas.p, k), m = arenas.part(arenas.m, k);
      for (std::size_t i = 0; i < w.size(); ++i) {
        for (const double error : {std::abs(w[i] - plain[k].w[i]), std::abs(m[i] - plain[k].m[i])})
          if (!std::isnan(worst) && !(error <= worst)) worst = error;
      }
    }
  }
  return worst;
}

}  // namespace

TEST_CASE("six Adafactor steps over factored and other parameters equal plain loops") {
  // Values of 0.1 to 0.5 and some 40 roundings a step.
  CHECK(difference_after_steps(Dtype::f64) <= 1e-14);
  CHECK(difference_after_steps(Dtype::f32) <= 5e-6);
}

TEST_CASE(
    "the first Adafactor step of a vector has the sign of the gradient and a length that its size sets") {
  // v = g^2 at t = 0, so u = sign(g), RMS(u) = 1 and the step is 0.1 lr RMS(w).
  const Tensor p = Tensor::from(Doubles{3, -4, 0, 5}, {4}), g = Tensor::from(Doubles{1e-6, -2, 7, 1e5}, {4});
  const Tensor m = Tensor::zeros({4}, Dtype::f64), second = Tensor::zeros({4}, Dtype::f64);
  detail::adafactor_step(p, g, m, second, detail::adafactor_plan({{0, {4}}}), {}, {0.5, 0, 0});
  const double step = 0.1 * 0.5 * std::sqrt(50.0 / 4);
  const Doubles want{3 - step, -4 + step, -step, 5 - step};
  for (std::size_t i = 0; i < 4; ++i) CHECK(std::abs(p.to_vector<double>()[i] - want[i]) <= 1e-14);
}

TEST_CASE("a transposed matrix takes the transposed Adafactor step") {
  const Tensor w = sample_normal({150, 131}, "w"), g = sample_normal({150, 131}, "g", 0.01);
  const auto stepped = [](const Tensor& from, const Tensor& gradient_of) {
    const Tensor p = raw::copy(from), m = Tensor::zeros(p.shape(), Dtype::f64);
    const detail::AdafactorPlan plan = detail::adafactor_plan({{0, p.shape()}});
    const Tensor second = Tensor::zeros({plan.second_elements}, Dtype::f64);
    for (int t = 0; t < 3; ++t)
      detail::adafactor_step(p, raw::copy(gradient_of), m, second, plan, {}, {0.1, t, 0});
    return p;
  };
  const Doubles direct = stepped(w, g).to_vector<double>();
  const Doubles other =
      raw::copy(raw::transpose(stepped(raw::transpose(w, 0, 1), raw::transpose(g, 0, 1)), 0, 1))
          .to_vector<double>();
  for (std::size_t i = 0; i < direct.size(); ++i) REQUIRE(std::abs(direct[i] - other[i]) <= 1e-13);
}

TEST_CASE("Adafactor leaves alone what belongs to no parameter and gives the same bits on any thread count") {
  Doubles bits[2];
  for (int run = 0; run < 2; ++run) {
    const Threads threads(run == 0 ? 1 : 3);
    AdafactorArenas arenas(kShapes, Dtype::f32);
    const Tensor start = raw::copy(arenas.p);
    detail::adafactor_step(arenas.p, gradient(arenas.p.elements(), 0, Dtype::f32), arenas.m, arenas.second,
                           arenas.plan, {}, {0.1, 0, 0});
    bits[run] = raw::cast(arenas.p, Dtype::f64).to_vector<double>();
    const Doubles first = raw::cast(start, Dtype::f64).to_vector<double>();
    for (const detail::AdafactorParameter& place : arenas.places)
      for (std::int64_t gap = 0; gap < 3; ++gap) {
        const auto i = static_cast<std::size_t>(place.begin + place.shape.elements() + gap);
        CHECK(bits[run][i] == first[i]);
      }
  }
  CHECK(bits[0] == bits[1]);
}

TEST_CASE("a gradient norm that is not finite changes nothing in Adafactor") {
  AdafactorArenas arenas({{130, 130}, {5}}, Dtype::f64);
  const Tensor g = gradient(arenas.p.elements(), 0, Dtype::f64);
  detail::adafactor_step(arenas.p, g, arenas.m, arenas.second, arenas.plan, {}, {0.1, 0, 0}, l2_norm(g));
  const Doubles p = arenas.p.to_vector<double>(), m = arenas.m.to_vector<double>(),
                second = arenas.second.to_vector<double>();
  for (const double bad : {std::nan(""), std::numeric_limits<double>::infinity()}) {
    raw::fill(raw::narrow(g, 0, 17, 1), bad);
    detail::adafactor_step(arenas.p, g, arenas.m, arenas.second, arenas.plan, {}, {0.1, 1, 0}, l2_norm(g));
    CHECK(arenas.p.to_vector<double>() == p);
    CHECK(arenas.m.to_vector<double>() == m);
    CHECK(arenas.second.to_vector<double>() == second);
  }
}

TEST_CASE("a gradient of zeros moves nothing and leaves no NaN in Adafactor") {
  for (const Dtype dtype : {Dtype::f32, Dtype::f64}) {
    AdafactorArenas arenas({{130, 130}, {5}}, dtype);
    const Doubles before = raw::cast(arenas.p, Dtype::f64).to_vector<double>();
    detail::adafactor_step(arenas.p, Tensor::zeros(arenas.p.shape(), dtype), arenas.m, arenas.second,
                           arenas.plan, {}, {0.1, 0, 0});
    CHECK(raw::cast(arenas.p, Dtype::f64).to_vector<double>() == before);
  }
}

TEST_CASE("adafactor_step names what is wrong before it writes") {
  AdafactorArenas arenas({{4, 4}, {5}}, Dtype::f64);
  const Tensor g = gradient(arenas.p.elements(), 0, Dtype::f64);
  const auto step = [&](const detail::AdafactorOptions& options, const detail::AdafactorScalars& scalars) {
    detail::adafactor_step(arenas.p, g, arenas.m, arenas.second, arenas.plan, options, scalars);
  };
  CHECK(contains(error_of<ValueError>([&] { step({}, {-1, 0, 0}); }), "lr -1"));
  CHECK(contains(error_of<ValueError>([&] { step({}, {1, -1, 0}); }), "counted from 0"));
  CHECK(contains(error_of<ValueError>([&] { step({}, {1, 0, 2}); }), "without the norm"));
  CHECK(contains(error_of<ValueError>([&] { step({.momentum = 1}, {1, 0, 0}); }), "momentum 1"));
  CHECK(contains(error_of<ValueError>([&] { step({.update_clip = 0}, {1, 0, 0}); }), "update_clip 0"));
  CHECK(contains(error_of<ShapeError>([&] {
                   detail::adafactor_step(arenas.p, g, arenas.m, Tensor::zeros({3}, Dtype::f64), arenas.plan,
                                          {}, {1, 0, 0});
                 }),
                 "a plan of 21 second moments"));
  CHECK(contains(error_of<DtypeError>([&] {
                   detail::adafactor_step(arenas.p, raw::cast(g, Dtype::f32), arenas.m, arenas.second,
                                          arenas.plan, {}, {1, 0, 0});
                 }),
                 "one dtype"));
  CHECK(contains(error_of<ValueError>([] { detail::adafactor_plan({{4, {3}}, {5, {2}}}); }), "disjoint"));
}
