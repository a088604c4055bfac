// The elementary functions of kernels against libm in double precision, over floats of every size, and at the
// values where such code goes wrong. The bounds are those that ops/cpu/vec_math.h promises.
#include "ops/cpu/vec_math.h"

#include <doctest/doctest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <initializer_list>
#include <limits>

namespace {

using namespace eddy;

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kLeast = 0x1p-149f;
// Below this a result may be 0.
constexpr double kFlush = 0x1p-125;

// The distance of a result from the true value, in units in the last place of the true value; infinite when
// one of them alone is infinite or NaN. Below kFlush the unit is kFlush itself.
double error_in_ulp(float result, double truth) {
  const float rounded = static_cast<float>(truth);
  if (!std::isfinite(rounded) || !std::isfinite(result)) {
    const bool same = std::isnan(truth) ? std::isnan(result) : result == rounded;
    return same ? 0.0 : static_cast<double>(kInf);
  }
  const double size = std::abs(truth);
  const double unit = size < kFlush ? kFlush : std::ldexp(1.0, std::ilogb(size) - 23);
  return std::abs(static_cast<double>(result) - truth) / unit;
}

// Checks `function` against `truth` at some 260 000 floats of both signs and all exponents in [low, high].
template <class Function, class Truth>
void sweep(Function function, Truth truth, float low, float high, double bound) {
  double worst = 0;
  float at = 0, got = 0;
  std::int64_t count = 0;
  for (std::uint64_t bits = 0; bits < (std::uint64_t{1} << 32); bits += 16411) {
    const float x = std::bit_cast<float>(static_cast<std::uint32_t>(bits));
    if (!(x >= low && x <= high)) continue;
    ++count;
    const float y = function(x);
    const double error = error_in_ulp(y, truth(static_cast<double>(x)));
    if (!(error <= worst)) {
      worst = error;
      at = x;
      got = y;
    }
  }
  CAPTURE(worst);
  CAPTURE(at);
  CAPTURE(got);
  CHECK(worst <= bound);
  CHECK(count > 1000);
}

double normal_cdf_in_double(double x) {
  return 0.5 * std::erfc(-x / std::sqrt(2.0));
}
double normal_pdf_in_double(double x) {
  return std::exp(-0.5 * x * x) / std::sqrt(2.0 * 3.14159265358979323846);
}

TEST_CASE("vec exp is within 2 units in the last place everywhere") {
  sweep([](float x) { return vec::exp(x); }, [](double x) { return std::exp(x); }, -kInf, kInf, 2);
}
TEST_CASE("vec log is within 2 units in the last place everywhere") {
  sweep([](float x) { return vec::log(x); }, [](double x) { return std::log(x); }, -kInf, kInf, 2);
}
TEST_CASE("vec expm1 and log1p are within 2 units in the last place everywhere") {
  sweep([](float x) { return vec::expm1(x); }, [](double x) { return std::expm1(x); }, -kInf, kInf, 2);
  sweep([](float x) { return vec::log1p(x); }, [](double x) { return std::log1p(x); }, -kInf, kInf, 2);
}
TEST_CASE("vec tanh is within 3 units in the last place everywhere") {
  sweep([](float x) { return vec::tanh(x); }, [](double x) { return std::tanh(x); }, -kInf, kInf, 3);
}
TEST_CASE("vec sigmoid is within 3 units in the last place everywhere") {
  sweep([](float x) { return vec::sigmoid(x); }, [](double x) { return 1.0 / (1.0 + std::exp(-x)); }, -kInf,
        kInf, 3);
}
TEST_CASE("vec softplus is within 3 units in the last place everywhere") {
  sweep([](float x) { return vec::softplus(x); },
        [](double x) { return std::fmax(x, 0.0) + std::log1p(std::exp(-std::fabs(x))); }, -kInf, kInf, 3);
}
TEST_CASE("vec sin and cos are within 3 units in the last place up to 2^27, and between -1 and 1 beyond") {
  constexpr float kWide = 0x1p27f;
  sweep([](float x) { return vec::sin(x); }, [](double x) { return std::sin(x); }, -kWide, kWide, 3);
  sweep([](float x) { return vec::cos(x); }, [](double x) { return std::cos(x); }, -kWide, kWide, 3);
  for (const float far : {0x1p28f, 0x1p60f, 0x1p127f, -0x1p90f}) {
    CHECK(std::abs(vec::sin(far)) <= 1);
    CHECK(std::abs(vec::cos(far)) <= 1);
  }
  for (const float infinite : {kInf, -kInf}) {
    CHECK(std::isnan(vec::sin(infinite)));
    CHECK(std::isnan(vec::cos(infinite)));
  }
}
TEST_CASE("vec erf is within 2 units in the last place everywhere") {
  sweep([](float x) { return vec::erf(x); }, [](double x) { return std::erf(x); }, -kInf, kInf, 2);
}
TEST_CASE("vec normal_cdf is within 8 units in the last place everywhere") {
  sweep([](float x) { return vec::normal_cdf(x); }, normal_cdf_in_double, -kInf, kInf, 8);
}
TEST_CASE("vec normal_pdf is within 3 units in the last place everywhere") {
  sweep([](float x) { return vec::normal_pdf(x); }, normal_pdf_in_double, -kInf, kInf, 3);
}

// The sweep has few floats in the ranges that matter most; these have the same exponent over and over.
TEST_CASE("vec functions hold their bounds on a fine grid around 0") {
  double exp_worst = 0, log_worst = 0, tanh_worst = 0, cdf_worst = 0, erf_worst = 0;
  double expm1_worst = 0, log1p_worst = 0;
  const auto keep = [](double& worst, double error) {
    if (!(error <= worst)) worst = error;
  };
  for (int i = -20000; i <= 20000; ++i) {
    const float x = static_cast<float>(i) * 2.3e-4f;
    const double wide = static_cast<double>(x);
    keep(exp_worst, error_in_ulp(vec::exp(x), std::exp(wide)));
    keep(log_worst,
         error_in_ulp(vec::log(1.0f + 0.15f * x), std::log(static_cast<double>(1.0f + 0.15f * x))));
    keep(expm1_worst, error_in_ulp(vec::expm1(x), std::expm1(wide)));
    keep(log1p_worst, error_in_ulp(vec::log1p(0.2f * x), std::log1p(static_cast<double>(0.2f * x))));
    keep(tanh_worst, error_in_ulp(vec::tanh(x), std::tanh(wide)));
    keep(cdf_worst, error_in_ulp(vec::normal_cdf(x), normal_cdf_in_double(wide)));
    keep(erf_worst, error_in_ulp(vec::erf(x), std::erf(wide)));
  }
  CHECK(exp_worst <= 2);
  CHECK(log_worst <= 2);
  CHECK(expm1_worst <= 2);
  CHECK(log1p_worst <= 2);
  CHECK(tanh_worst <= 3);
  CHECK(cdf_worst <= 8);
  CHECK(erf_worst <= 2);
}

TEST_CASE("vec functions give NaN for NaN") {
  for (const float nan :
       {kNan, -kNan, std::bit_cast<float>(0x7f800001u), std::bit_cast<float>(0xffffffffu)}) {
    CHECK(std::isnan(vec::exp(nan)));
    CHECK(std::isnan(vec::log(nan)));
    CHECK(std::isnan(vec::expm1(nan)));
    CHECK(std::isnan(vec::log1p(nan)));
    CHECK(std::isnan(vec::tanh(nan)));
    CHECK(std::isnan(vec::sigmoid(nan)));
    CHECK(std::isnan(vec::softplus(nan)));
    CHECK(std::isnan(vec::sin(nan)));
    CHECK(std::isnan(vec::cos(nan)));
    CHECK(std::isnan(vec::erf(nan)));
    CHECK(std::isnan(vec::normal_cdf(nan)));
    CHECK(std::isnan(vec::normal_pdf(nan)));
  }
}

TEST_CASE("vec functions are exact at 0 and keep the sign of zero") {
  for (const float zero : {0.0f, -0.0f}) {
    CHECK(vec::exp(zero) == 1.0f);
    CHECK(vec::log(zero) == -kInf);
    CHECK(vec::cos(zero) == 1.0f);
    for (const float result : {vec::expm1(zero), vec::log1p(zero), vec::sin(zero)}) {
      CHECK(result == 0.0f);
      CHECK(std::signbit(result) == std::signbit(zero));
    }
    CHECK(vec::tanh(zero) == 0.0f);
    CHECK(std::signbit(vec::tanh(zero)) == std::signbit(zero));
    CHECK(vec::sigmoid(zero) == 0.5f);
    CHECK(vec::erf(zero) == 0.0f);
    CHECK(std::signbit(vec::erf(zero)) == std::signbit(zero));
    CHECK(vec::normal_cdf(zero) == 0.5f);
  }
  CHECK(vec::log(1.0f) == 0.0f);
}

TEST_CASE("vec functions take infinities and overflow to what libm gives") {
  CHECK(vec::exp(kInf) == kInf);
  CHECK(vec::exp(-kInf) == 0.0f);
  CHECK(vec::exp(88.73f) == kInf);
  CHECK(vec::exp(3e38f) == kInf);
  CHECK(std::isfinite(vec::exp(88.7228f)));
  CHECK(vec::exp(-104.0f) == 0.0f);
  CHECK(vec::exp(-3e38f) == 0.0f);
  CHECK(vec::log(kInf) == kInf);
  CHECK(std::isnan(vec::log(-kInf)));
  CHECK(std::isnan(vec::log(-kLeast)));
  CHECK(std::isfinite(vec::log(std::numeric_limits<float>::max())));
  CHECK(vec::expm1(kInf) == kInf);
  CHECK(vec::expm1(88.73f) == kInf);
  CHECK(std::isfinite(vec::expm1(88.7228f)));
  for (const float low : {-17.5f, -104.0f, -3e38f, -kInf}) CHECK(vec::expm1(low) == -1.0f);
  CHECK(vec::log1p(kInf) == kInf);
  CHECK(std::isfinite(vec::log1p(std::numeric_limits<float>::max())));
  CHECK(vec::log1p(-1.0f) == -kInf);
  for (const float low : {-0x1.000002p0f, -2.0f, -3e38f, -kInf}) CHECK(std::isnan(vec::log1p(low)));
  for (const float big : {20.0f, 3e38f, kInf}) {
    CHECK(vec::tanh(big) == 1.0f);
    CHECK(vec::tanh(-big) == -1.0f);
    CHECK(vec::erf(big) == 1.0f);
    CHECK(vec::erf(-big) == -1.0f);
    CHECK(vec::normal_cdf(big) == 1.0f);
    CHECK(vec::normal_cdf(-big) == 0.0f);
    CHECK(vec::normal_pdf(big) == 0.0f);
    CHECK(vec::normal_pdf(-big) == 0.0f);
    CHECK(vec::sigmoid(big) == doctest::Approx(1.0).epsilon(1e-7));
  }
  CHECK(vec::sigmoid(-kInf) == 0.0f);
  CHECK(vec::sigmoid(-3e38f) == 0.0f);
}

TEST_CASE("vec functions never pass their limits") {
  for (int i = 0; i <= 40000; ++i) {
    const float x = static_cast<float>(i) * 5e-4f;
    const bool inside = vec::tanh(x) <= 1.0f && vec::tanh(-x) >= -1.0f && vec::erf(x) <= 1.0f &&
                        vec::erf(-x) >= -1.0f && vec::sigmoid(x) <= 1.0f && vec::sigmoid(-x) >= 0.0f &&
                        vec::normal_cdf(x) <= 1.0f && vec::normal_cdf(-x) >= 0.0f;
    if (!inside) CAPTURE(x);
    if (!inside) FAIL_CHECK("out of range");
  }
}

TEST_CASE("vec tanh and erf of denormal numbers keep their size") {
  for (const float x : {kLeast, -kLeast, 0x1p-130f, 0x1.8p-127f}) {
    CHECK(std::abs(static_cast<double>(vec::tanh(x)) - static_cast<double>(x)) <=
          static_cast<double>(kLeast));
    CHECK(std::abs(static_cast<double>(vec::erf(x)) - std::erf(static_cast<double>(x))) <=
          static_cast<double>(kLeast));
  }
}

TEST_CASE("vec functions in double are those of libm") {
  for (const double x : {-3.0, -0.5, 0.0, 0.25, 2.0}) {
    CHECK(vec::exp(x) == std::exp(x));
    CHECK(vec::expm1(x) == std::expm1(x));
    CHECK(vec::tanh(x) == std::tanh(x));
    CHECK(vec::erf(x) == std::erf(x));
    CHECK(std::abs(vec::normal_cdf(x) - normal_cdf_in_double(x)) <= 1e-15);
    CHECK(std::abs(vec::normal_pdf(x) - normal_pdf_in_double(x)) <= 1e-15);
    CHECK(std::abs(vec::sigmoid(x) - 0.5 * (1.0 + std::tanh(0.5 * x))) <= 1e-15);
  }
  CHECK(vec::log(2.5) == std::log(2.5));
  CHECK(vec::log1p(1e-20) == 1e-20);
  CHECK(vec::sqrt(2.0f) == std::sqrt(2.0f));
  CHECK(vec::pow(2.0f, 10.0f) == 1024.0f);
}

}  // namespace
