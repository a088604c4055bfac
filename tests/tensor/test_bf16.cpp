// bf16: rounding, casts, sums that round once, and gradients of bf16 tensors.
#include <doctest/doctest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

#include "autograd/tape.h"
#include "tensor/base/error.h"
#include "tensor/tensor.h"
#include "tests/autograd/tiny_ops.h"
#include "tests/support/errors.h"

using namespace eddy;
using namespace eddy::test;

namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

float float_of(std::uint32_t bits) {
  return std::bit_cast<float>(bits);
}
bf16 bf16_of(std::uint32_t bits) {
  bf16 value;
  value.bits = static_cast<std::uint16_t>(bits);
  return value;
}

// The bf16 number nearest to d, ties to even, from the definition of the format: 8 significant bits,
// exponents from -126 (below it the spacing stays) to 127. Works on numbers, not on bits.
double nearest_bf16(double d) {
  if (d == 0 || !std::isfinite(d)) return d;
  int exponent = 0;
  std::frexp(d, &exponent);
  const double spacing = std::ldexp(1.0, std::max(exponent, -125) - 8);
  const double rounded = std::nearbyint(d / spacing) * spacing;
  return std::abs(rounded) >= std::ldexp(1.0, 128) ? std::copysign(HUGE_VAL, d) : rounded;
}

Tensor bf16_tensor(const std::vector<float>& values) {
  std::vector<bf16> rounded;
  for (const float value : values) rounded.push_back(bf16(value));
  return Tensor::from(rounded, {static_cast<std::int64_t>(values.size())});
}

std::vector<float> floats(const Tensor& x) {
  return raw::cast(x, Dtype::f32).to_vector<float>();
}

// factor * x in bf16, whose backward gives a gradient of its own storage.
Tensor scaled(const Tensor& x, float factor) {
  const auto map = [](const Tensor& from, float by) {
    std::vector<float> values = floats(from);
    for (float& value : values) value *= by;
    return raw::reshape(bf16_tensor(values), from.shape());
  };
  return record("scaled", {x}, map(x, factor), {},
                [=](VjpContext& c) { c.sink.accumulate(0, map(c.dy(), factor)); });
}

}  // namespace

TEST_CASE(
    "bf16: every finite number comes back and what lies between rounds to the nearest or the even one") {
  std::int64_t wrong = 0, ties = 0;
  for (std::uint32_t sign : {0u, 0x8000u}) {
    for (std::uint32_t bits = 0; bits < 0x7f80; ++bits) {
      const std::uint32_t here = sign | bits, next = here + 1, even = (bits & 1) == 0 ? here : next;
      wrong += bf16(float_of(here << 16)).bits != here;
      wrong += static_cast<float>(bf16_of(here)) != float_of(here << 16);
      wrong += bf16(float_of(here << 16 | 0x0001)).bits != here;
      wrong += bf16(float_of(here << 16 | 0x7fff)).bits != here;
      wrong += bf16(float_of(here << 16 | 0x8000)).bits != even;
      wrong += bf16(float_of(here << 16 | 0x8001)).bits != next;
      wrong += bf16(float_of(here << 16 | 0xffff)).bits != next;
      ++ties;
    }
  }
  CHECK(wrong == 0);
  CHECK(ties == 2 * 0x7f80);
}

TEST_CASE("bf16: what is too large becomes infinite and zeros keep their sign") {
  CHECK(static_cast<float>(bf16(std::numeric_limits<float>::max())) == kInfinity);
  CHECK(static_cast<float>(bf16(-std::numeric_limits<float>::max())) == -kInfinity);
  CHECK(static_cast<float>(bf16(kInfinity)) == kInfinity);
  CHECK(static_cast<float>(bf16(-kInfinity)) == -kInfinity);
  CHECK(bf16(-0.0f).bits == 0x8000);
  CHECK(std::signbit(static_cast<float>(bf16(-std::numeric_limits<float>::denorm_min()))));
}

TEST_CASE("bf16: a NaN stays a NaN of its sign even when only its lower half tells it from infinity") {
  for (const std::uint32_t bits :
       {0x7f800001u, 0x7fc00000u, 0x7fffffffu, 0x7f80ffffu, 0xff800001u, 0xffffffffu}) {
    CAPTURE(bits);
    const float back = static_cast<float>(bf16(float_of(bits)));
    CHECK(std::isnan(back));
    CHECK(std::signbit(back) == (bits >> 31 == 1));
  }
}

TEST_CASE("bf16: a cast from f32 and f64 rounds and a cast back is exact") {
  const std::vector<float> values{1.0f,   1.00390625f, 1.01171875f, -3.14159274f,
                                  1e-40f, 3.4e38f,     0.0f,        -65504.0f};
  const Tensor wide = Tensor::from(values, {8});
  const Tensor narrow = raw::cast(wide, Dtype::bf16);
  REQUIRE(narrow.dtype() == Dtype::bf16);
  CHECK(narrow.bytes() == 16);
  const std::vector<float> back = floats(narrow);
  for (std::size_t i = 0; i < values.size(); ++i) {
    CAPTURE(i);
    CHECK(static_cast<double>(back[i]) == nearest_bf16(static_cast<double>(values[i])));
  }
  CHECK(back[1] == 1.0f);       // a tie: down to the even one
  CHECK(back[2] == 1.015625f);  // a tie: up to the even one
  CHECK(floats(raw::cast(raw::cast(wide, Dtype::f64), Dtype::bf16)) == back);
  CHECK(raw::cast(narrow, Dtype::f64).to_vector<double>()[3] == -3.140625);
  CHECK(raw::cast(narrow, Dtype::i32).to_vector<std::int32_t>()[3] == -3);
  CHECK(raw::cast(Tensor::from(std::vector<std::int64_t>{257, -7}, {2}), Dtype::bf16).to_vector<bf16>()[0] ==
        256.0f);
  CHECK(static_cast<float>(Tensor::full({3}, 0.1, Dtype::bf16).to_vector<bf16>()[2]) == 0.10009765625f);
  CHECK(std::isnan(floats(raw::cast(Tensor::from(std::vector<float>{std::nanf("")}, {1}), Dtype::bf16))[0]));
  CHECK_FALSE(all_finite(bf16_tensor({1, std::nanf("")})));
  CHECK_FALSE(all_finite(bf16_tensor({-kInfinity})));
  CHECK(all_finite(bf16_tensor({3.3e38f, -1})));
}

TEST_CASE("bf16: an f64 rounds once where by way of f32 it would round twice") {
  // Just above the middle of 1 and the next bf16; the nearest f32 is the middle itself, which ties to 1.
  const double above = 1 + 0x1p-8 + 0x1p-40, below = 1 + 3 * 0x1p-8 - 0x1p-40;
  std::vector<double> values{above, -above, below,     -below,   1e-300,     -1e-300,
                             1e300, -1e300, 3.3961e38, 0x1p-133, 0x1.8p-133, 0x1.8000000001p-133};
  std::mt19937_64 random(11);
  for (int i = 0; i < 20000; ++i) {
    const double middle =
        std::ldexp(static_cast<double>(257 + 2 * (random() % 128)), static_cast<int>(random() % 260) - 140);
    values.push_back(middle * (1 + std::ldexp(static_cast<double>(random() % 5) - 2,
                                              -30 - static_cast<int>(random() % 20))));
  }
  const Tensor wide = Tensor::from(values, {static_cast<std::int64_t>(values.size())});
  const std::vector<float> got = floats(raw::cast(wide, Dtype::bf16));
  std::int64_t wrong = 0;
  for (std::size_t i = 0; i < values.size(); ++i)
    wrong += static_cast<double>(got[i]) != nearest_bf16(values[i]);
  CHECK(wrong == 0);
  CHECK(got[0] == 1.0078125f);
  CHECK(std::signbit(got[5]));
  CHECK(static_cast<float>(Tensor::full({1}, above, Dtype::bf16).to_vector<bf16>()[0]) == 1.0078125f);
  CHECK(
      static_cast<float>(raw::cast(Tensor::from(std::vector<std::int32_t>{(257 << 16) + 1}, {1}), Dtype::bf16)
                             .to_vector<bf16>()[0]) == 258.0f * 65536);
}

TEST_CASE("bf16: an i64 beyond the numbers of f64 is rounded once") {
  // Just above, at and just below the middle of two neighbours; the nearest f64 of all is the middle.
  const std::int64_t one = std::int64_t{1} << 62, half = std::int64_t{1} << 54;
  const std::vector<std::int64_t> values{one + half + 1, one + half,      one + half - 1, one + 3 * half - 1,
                                         one + 3 * half, -one - half - 1, -one - half,    -one - half + 1};
  const std::vector<bf16> got = raw::cast(Tensor::from(values, {8}), Dtype::bf16).to_vector<bf16>();
  const float low = 0x1p62f, next = 0x1p62f + 0x1p55f, last = 0x1p62f + 0x1p56f;
  const std::vector<float> want{next, low, low, next, last, -next, -low, -low};
  for (std::size_t i = 0; i < want.size(); ++i) CHECK(static_cast<float>(got[i]) == want[i]);
}

TEST_CASE("cast_into: overwrites a view in another dtype and refuses another shape") {
  const Tensor grid = Tensor::zeros({2, 3}, Dtype::bf16);
  raw::cast_into(raw::narrow(grid, 1, 1, 1), Tensor::from(std::vector<double>{1.5, 2.5}, {2, 1}));
  CHECK(floats(grid) == std::vector<float>{0, 1.5f, 0, 0, 2.5f, 0});
  CHECK_THROWS_AS(raw::cast_into(grid, Tensor::zeros({3, 2})), ShapeError);
}

TEST_CASE("add_into: bf16 sums are those of exact numbers rounded once") {
  std::mt19937 random(7);
  std::vector<bf16> a, b;
  while (a.size() < 40001) {  // an odd tail
    const std::uint32_t bits = static_cast<std::uint32_t>(random()), other = bits >> 16;
    // An exponent up to 15 above the other's, where the bits that are rounded off decide; now and then any
    // two numbers.
    const std::uint32_t exponent = (bits + ((bits >> 25 & 0xf) << 7)) & 0x7f80;
    const bf16 x = bf16_of(bits), y = bf16_of(a.size() % 8 == 0 ? other : (other & 0x807f) | exponent);
    if (!std::isfinite(static_cast<float>(x)) || !std::isfinite(static_cast<float>(y))) continue;
    a.push_back(x);
    b.push_back(y);
  }
  const auto count = static_cast<std::int64_t>(a.size());
  const Tensor total = Tensor::from(a, {count});
  raw::add_into(total, Tensor::from(b, {count}));
  const std::vector<bf16> got = total.to_vector<bf16>();
  std::int64_t wrong = 0, inexact = 0, ties = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double exact = static_cast<double>(a[i]) + static_cast<double>(b[i]),
                 expected = nearest_bf16(exact);
    wrong += static_cast<double>(got[i]) != expected;
    inexact += expected != exact;
    int exponent = 0;
    const double eighths = std::ldexp(std::frexp(exact, &exponent), 9);
    ties += eighths == std::trunc(eighths) && std::fmod(eighths, 2) != 0;
  }
  CHECK(wrong == 0);
  CHECK(inexact > 1000);
  CHECK(ties > 500);
}

TEST_CASE("add_into: bf16 views of any strides and empty ones are added in place") {
  const Tensor grid = Tensor::zeros({3, 4}, Dtype::bf16);
  const Tensor row = bf16_tensor({1, 2, 3, 4});
  raw::add_into(raw::select(grid, 0, 1), row);
  raw::add_into(raw::narrow(grid, 1, 2, 1), Tensor::full({3, 1}, 0.5, Dtype::bf16));
  raw::add_into(raw::transpose(grid, 0, 1), raw::expand(raw::reshape(row, {4, 1}), {4, 3}));
  raw::add_into(Tensor::zeros({0, 4}, Dtype::bf16), Tensor::zeros({0, 4}, Dtype::bf16));
  CHECK(floats(grid) == std::vector<float>{1, 2, 3.5, 4, 2, 4, 6.5, 8, 1, 2, 3.5, 4});
}

TEST_CASE("add_into: bf16 sums carry NaN and infinities and overflow") {
  const Tensor total = bf16_tensor({std::nanf(""), kInfinity, kInfinity, 3.3e38f, 1});
  raw::add_into(total, bf16_tensor({1, 1, -kInfinity, 3.3e38f, std::nanf("")}));
  const std::vector<float> values = floats(total);
  CHECK(std::isnan(values[0]));
  CHECK(values[1] == kInfinity);
  CHECK(std::isnan(values[2]));
  CHECK(values[3] == kInfinity);
  CHECK(std::isnan(values[4]));
}

TEST_CASE("add_into: integers and mixed types are refused") {
  const Tensor whole = Tensor::zeros({2}, Dtype::i32);
  CHECK(contains(error_of<DtypeError>([&] { raw::add_into(whole, whole); }),
                 "add_into: i32 (floating types only)"));
  CHECK(contains(error_of<ShapeError>([&] { raw::add_into(bf16_tensor({1}), Tensor::zeros({1})); }), "f32"));
}

TEST_CASE("backward: a bf16 tensor with two consumers gets the sum of both gradients in bf16") {
  for (const bool is_leaf : {true, false}) {
    CAPTURE(is_leaf);
    const Tensor leaf = require_grad(bf16_tensor({1, -2, 3}));
    const Tensor x = is_leaf ? leaf : scaled(leaf, 1);
    const Tensor y = scaled(x, 1.5f), z = scaled(x, -4);
    backward({y, z}, {bf16_tensor({1, 1, 2}), bf16_tensor({1, 0.5, 0})});
    REQUIRE(grad(leaf).dtype() == Dtype::bf16);
    CHECK(floats(grad(leaf)) == std::vector<float>{-2.5, -0.5, 3});
  }
}

TEST_CASE("backward: small bf16 gradients are lost in bf16 and kept in an f32 storage") {
  const float small = std::ldexp(1.0f, -9);  // a quarter of the spacing of bf16 at 1
  const auto run = [&](const Tensor& x) {
    const Tensor y = scaled(x, 1), z = scaled(x, small);
    backward({y, z}, {bf16_tensor({1}), bf16_tensor({1})});
    return raw::cast(grad(x), Dtype::f32).item();
  };
  CHECK(run(require_grad(bf16_tensor({2}))) == 1.0);
  const Tensor x = require_grad(bf16_tensor({2}));
  set_grad_storage(x, Tensor::zeros({1}));
  CHECK(run(x) == 1.0 + std::ldexp(1.0, -9));
}
