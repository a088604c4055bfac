// Floating-point instructions and conversions.
// source: PTX ISA 9.0, "Floating Point Instructions", "Data Movement and Conversion Instructions: cvt".
#include <cmath>
#include <limits>
#include <type_traits>

#include "tests/ptx/interpreter/arithmetic.h"
#include "tests/ptx/interpreter/rounded.h"

namespace ptx {
namespace {

// `.ftz`: a number too small for a normal float is a zero of its sign.
float flush(float x) {
  return std::fabs(x) < std::numeric_limits<float>::min() ? std::copysign(0.0f, x) : x;
}

// The largest float that is at most a * b + c. The product is exact in f64.
float fused_down(float a, float b, float c) {
  const double exact = double{a} * double{b} + double{c};
  const auto nearest = static_cast<float>(exact);
  return nearest > exact ? std::nextafter(nearest, -std::numeric_limits<float>::infinity()) : nearest;
}

// The sum without what lies behind its last bit. What rounding to nearest left out is exact in f32.
float sum_towards_zero(float a, float b) {
  const float nearest = a + b, part = nearest - a;
  if (!std::isfinite(part)) return nearest;
  const float rest = (a - (nearest - part)) + (b - part);
  return rest != 0 && std::signbit(rest) != std::signbit(nearest) ? std::nextafter(nearest, 0.0f) : nearest;
}

template <class T>
void add_arithmetic(Operations& all, const std::string& s) {
  for (const std::string mode : {"", ".rn"}) {
    all["add" + mode + s] = operation<T, T, T>([](T a, T b) { return a + b; });
    all["sub" + mode + s] = operation<T, T, T>([](T a, T b) { return a - b; });
    all["mul" + mode + s] = operation<T, T, T>([](T a, T b) { return a * b; });
  }
  all["fma.rn" + s] = operation<T, T, T, T>([](T a, T b, T c) { return std::fma(a, b, c); });
  all["div.rn" + s] = operation<T, T, T>([](T a, T b) { return a / b; });
  all["rcp.rn" + s] = operation<T, T>([](T a) { return T{1} / a; });
  all["sqrt.rn" + s] = operation<T, T>([](T a) { return std::sqrt(a); });
  all["neg" + s] = operation<T, T>([](T a) { return -a; });
  all["abs" + s] = operation<T, T>([](T a) { return std::fabs(a); });
  // The sign of the first, the size of the second.
  all["copysign" + s] = operation<T, T, T>([](T sign, T size) { return std::copysign(size, sign); });
  // Of a number and a NaN they return the number; -0 is less than 0.
  all["max" + s] = operation<T, T, T>([](T a, T b) {
    if (a != a) return b;
    if (b != b) return a;
    return a > b || (a == b && !std::signbit(a)) ? a : b;
  });
  all["min" + s] = operation<T, T, T>([](T a, T b) {
    if (a != a) return b;
    if (b != b) return a;
    return a < b || (a == b && std::signbit(a)) ? a : b;
  });
  all["max.NaN" + s] = operation<T, T, T>([](T a, T b) { return a != a || b != b ? a + b : a > b ? a : b; });
  all["min.NaN" + s] = operation<T, T, T>([](T a, T b) { return a != a || b != b ? a + b : a < b ? a : b; });
}

// To integers: rounded, NaN is 0, and what is too large or small is the largest or smallest.
template <class To, class From>
To to_integer(From rounded) {
  if (rounded != rounded) return 0;
  constexpr auto largest = static_cast<From>(std::numeric_limits<To>::max());
  if (rounded >= largest) return std::numeric_limits<To>::max();
  if (rounded <= static_cast<From>(std::numeric_limits<To>::min())) return std::numeric_limits<To>::min();
  return static_cast<To>(rounded);
}

template <class To, class From>
void add_to_integer(Operations& all, const std::string& types) {
  all["cvt.rni" + types] = operation<To, From>([](From a) { return to_integer<To>(std::nearbyint(a)); });
  all["cvt.rzi" + types] = operation<To, From>([](From a) { return to_integer<To>(std::trunc(a)); });
  all["cvt.rmi" + types] = operation<To, From>([](From a) { return to_integer<To>(std::floor(a)); });
  all["cvt.rpi" + types] = operation<To, From>([](From a) { return to_integer<To>(std::ceil(a)); });
}

template <class T>
void add_rounding(Operations& all, const std::string& types) {
  all["cvt.rni" + types] = operation<T, T>([](T a) { return std::nearbyint(a); });
  all["cvt.rzi" + types] = operation<T, T>([](T a) { return std::trunc(a); });
  all["cvt.rmi" + types] = operation<T, T>([](T a) { return std::floor(a); });
  all["cvt.rpi" + types] = operation<T, T>([](T a) { return std::ceil(a); });
  all["cvt.sat" + types] = operation<T, T>([](T a) { return a > T{0} ? (a < T{1} ? a : T{1}) : T{0}; });
}

template <class To, class From>
void add_conversion(Operations& all, const std::string& to, const std::string& from) {
  const std::string types = "." + to + "." + from;
  constexpr bool from_float = std::is_floating_point_v<From>, to_float = std::is_floating_point_v<To>;
  if constexpr (from_float && !to_float) {
    add_to_integer<To, From>(all, types);
  } else if constexpr (!from_float && to_float) {
    all["cvt.rn" + types] = operation<To, From>([](From a) { return static_cast<To>(a); });
  } else {
    all["cvt" + types] = operation<To, From>([](From a) { return static_cast<To>(a); });
    if constexpr (from_float && to_float) {
      all["cvt.rn" + types] = all["cvt" + types];
      if constexpr (std::is_same_v<To, From>) add_rounding<To>(all, types);
    }
  }
}

template <class To>
void add_conversions_to(Operations& all, const std::string& to) {
  add_conversion<To, std::uint8_t>(all, to, "u8");
  add_conversion<To, std::int8_t>(all, to, "s8");
  add_conversion<To, std::uint16_t>(all, to, "u16");
  add_conversion<To, std::int16_t>(all, to, "s16");
  add_conversion<To, std::uint32_t>(all, to, "u32");
  add_conversion<To, std::int32_t>(all, to, "s32");
  add_conversion<To, std::uint64_t>(all, to, "u64");
  add_conversion<To, std::int64_t>(all, to, "s64");
  add_conversion<To, float>(all, to, "f32");
  add_conversion<To, double>(all, to, "f64");
}

}  // namespace

void add_floats(Operations& all) {
  add_arithmetic<float>(all, ".f32");
  add_arithmetic<double>(all, ".f64");
  all["fma.rm.f32"] =
      operation<float, float, float, float>([](float a, float b, float c) { return fused_down(a, b, c); });
  all["add.rz.f32"] = operation<float, float, float>([](float a, float b) { return sum_towards_zero(a, b); });
  // Approximations: within 2 ulp of these (ex2) and 1 ulp (rcp), says the PTX ISA.
  all["ex2.approx.ftz.f32"] = operation<float, float>([](float a) { return flush(std::exp2(flush(a))); });
  all["ex2.approx.f32"] = operation<float, float>([](float a) { return std::exp2(a); });
  all["lg2.approx.ftz.f32"] = operation<float, float>([](float a) { return flush(std::log2(flush(a))); });
  all["lg2.approx.f32"] = operation<float, float>([](float a) { return std::log2(a); });
  all["rcp.approx.ftz.f32"] = operation<float, float>([](float a) { return flush(1.0f / flush(a)); });
  all["rsqrt.approx.f32"] = operation<float, float>([](float a) { return 1.0f / std::sqrt(a); });
  all["rsqrt.approx.ftz.f32"] =
      operation<float, float>([](float a) { return flush(1.0f / std::sqrt(flush(a))); });
  all["div.full.f32"] = operation<float, float, float>([](float a, float b) { return a / b; });
  all["div.approx.f32"] = all["div.full.f32"];
  // The high word of 1 / a, for the start of a division: no caller needs its last bits.
  all["rcp.approx.ftz.f64"] = operation<double, double>([](double a) { return 1.0 / a; });
}

void add_conversions(Operations& all) {
  add_conversions_to<std::uint8_t>(all, "u8");
  add_conversions_to<std::int8_t>(all, "s8");
  add_conversions_to<std::uint16_t>(all, "u16");
  add_conversions_to<std::int16_t>(all, "s16");
  add_conversions_to<std::uint32_t>(all, "u32");
  add_conversions_to<std::int32_t>(all, "s32");
  add_conversions_to<std::uint64_t>(all, "u64");
  add_conversions_to<std::int64_t>(all, "s64");
  add_conversions_to<float>(all, "f32");
  add_conversions_to<double>(all, "f64");
  all["cvt.f32.bf16"] = operation<float, std::uint16_t>([](std::uint16_t a) { return from_bf16(a); });
  all["cvt.rn.bf16.f32"] = operation<std::uint16_t, float>([](float a) { return to_bf16(a); });
  all["cvt.rna.tf32.f32"] = operation<std::uint32_t, float>([](float a) { return to_tf32(a); });
  // The first operand is the upper half.
  all["cvt.rn.bf16x2.f32"] = operation<std::uint32_t, float, float>(
      [](float upper, float lower) { return std::uint32_t{to_bf16(upper)} << 16 | to_bf16(lower); });
}

}  // namespace ptx
