// Element types. bf16 only stores numbers: it is the upper half of an f32, rounded to nearest even.
// Arithmetic on it is f32.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "tensor/base/host_device.h"

namespace eddy {

// The type of a tensor's elements, and how many types there are.
enum class Dtype : std::uint8_t { f32, bf16, f64, i32, i64, u8 };
inline constexpr int kDtypeCount = 6;

// A number with the range of f32 and 8 bits of precision.
struct bf16 {
  std::uint16_t bits;  // sign, 8 bits of exponent, 7 of mantissa

  bf16() = default;
  // From and to f32; the nearest, of two equally near the even one.
  EDDY_HD_INLINE explicit bf16(float value) : bits(from_float(value)) {}
  EDDY_HD_INLINE operator float() const {
    const std::uint32_t wide = static_cast<std::uint32_t>(bits) << 16;
    float value;
    std::memcpy(&value, &wide, sizeof value);
    return value;
  }
  // Returns the bf16 nearest to an f64, rounded once. Rounding to the nearest f32 first would round twice:
  // that f32 can be a tie between two bf16 when the f64 is not. So of the two f32 around the value the odd
  // one is rounded, which is never a tie (round to odd).
  // source: S. Boldo, G. Melquiond, "Emulation of FMA and correctly rounded sums" (2008), theorem 3.
  EDDY_HD_INLINE static bf16 nearest(double value) {
    const float close = static_cast<float>(value);
    std::uint32_t wide;
    std::memcpy(&wide, &close, sizeof wide);
    const double back = static_cast<double>(close);
    if (back != value && value == value && (wide & 1u) == 0) {
      // One step towards the value: away from zero when its magnitude is larger. A zero has the value's sign.
      const bool larger = value < 0 ? value < back : value > back;
      wide = larger ? wide + 1 : wide - 1;
    }
    float odd;
    std::memcpy(&odd, &wide, sizeof odd);
    return bf16(odd);
  }

 private:
  EDDY_HD_INLINE static std::uint16_t from_float(float value) {
    std::uint32_t wide;
    std::memcpy(&wide, &value, sizeof wide);
    if ((wide & 0x7fffffffu) > 0x7f800000u)
      return static_cast<std::uint16_t>((wide >> 16) | 0x40u);  // NaN stays NaN
    return static_cast<std::uint16_t>((wide + 0x7fffu + ((wide >> 16) & 1u)) >> 16);
  }
};
static_assert(sizeof(bf16) == 2);

// Bytes per element.
constexpr std::size_t dtype_bytes(Dtype dtype) {
  switch (dtype) {
    case Dtype::f32:
    case Dtype::i32:
      return 4;
    case Dtype::f64:
    case Dtype::i64:
      return 8;
    case Dtype::bf16:
      return 2;
    case Dtype::u8:
      return 1;
  }
  return 0;
}

// "f32", "bf16", … as the command line and error texts write it.
constexpr const char* dtype_name(Dtype dtype) {
  switch (dtype) {
    case Dtype::f32:
      return "f32";
    case Dtype::bf16:
      return "bf16";
    case Dtype::f64:
      return "f64";
    case Dtype::i32:
      return "i32";
    case Dtype::i64:
      return "i64";
    case Dtype::u8:
      return "u8";
  }
  return "?";
}

// Whether elements are real numbers.
constexpr bool is_floating(Dtype dtype) {
  return dtype == Dtype::f32 || dtype == Dtype::f64 || dtype == Dtype::bf16;
}

// The Dtype of a C++ type; dtype_of<float> is Dtype::f32.
template <class T>
struct DtypeOf;
// Of float.
template <>
struct DtypeOf<float> {
  // Its Dtype.
  static constexpr Dtype value = Dtype::f32;
};
// Of bf16.
template <>
struct DtypeOf<bf16> {
  // Its Dtype.
  static constexpr Dtype value = Dtype::bf16;
};
// Of double.
template <>
struct DtypeOf<double> {
  // Its Dtype.
  static constexpr Dtype value = Dtype::f64;
};
// Of std::int32_t.
template <>
struct DtypeOf<std::int32_t> {
  // Its Dtype.
  static constexpr Dtype value = Dtype::i32;
};
// Of std::int64_t.
template <>
struct DtypeOf<std::int64_t> {
  // Its Dtype.
  static constexpr Dtype value = Dtype::i64;
};
// Of std::uint8_t.
template <>
struct DtypeOf<std::uint8_t> {
  // Its Dtype.
  static constexpr Dtype value = Dtype::u8;
};
// The Dtype of T.
template <class T>
inline constexpr Dtype dtype_of = DtypeOf<T>::value;

}  // namespace eddy
