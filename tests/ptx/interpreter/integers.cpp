// Integer, logical and comparing instructions.
// source: PTX ISA 9.0, "Integer Arithmetic Instructions", "Logic and Shift Instructions", "Comparison and Select".
#include <bit>
#include <limits>
#include <type_traits>

#include "tests/ptx/interpreter/arithmetic.h"

#include <cstring>

namespace ptx {
namespace {

template <class T>
std::string suffix();
template <>
std::string suffix<std::uint16_t>() {
  return ".u16";
}
template <>
std::string suffix<std::int16_t>() {
  return ".s16";
}
template <>
std::string suffix<std::uint32_t>() {
  return ".u32";
}
template <>
std::string suffix<std::int32_t>() {
  return ".s32";
}
template <>
std::string suffix<std::uint64_t>() {
  return ".u64";
}
template <>
std::string suffix<std::int64_t>() {
  return ".s64";
}
template <>
std::string suffix<float>() {
  return ".f32";
}
template <>
std::string suffix<double>() {
  return ".f64";
}

// Wrapping arithmetic in the unsigned type, which is defined for all values.
template <class T>
using Unsigned = std::make_unsigned_t<T>;

// A division by 0 in a lane that runs is an error; the others' operands may be anything.
template <class T, bool kRemainder>
void divide(Warp& warp, const Instruction& instruction, Mask mask) {
  const T* const a = warp.at<T>(instruction.from[0]);
  const T* const b = warp.at<T>(instruction.from[1]);
  T results[kWarp] = {};
  each_lane(mask, [&](int lane) {
    if (b[lane] == 0) fail(warp, lane, "a division by 0");
    const bool overflows =
        std::is_signed_v<T> && a[lane] == std::numeric_limits<T>::min() && b[lane] == T(-1);
    if (overflows)
      results[lane] = kRemainder ? T{0} : a[lane];
    else
      results[lane] = static_cast<T>(kRemainder ? a[lane] % b[lane] : a[lane] / b[lane]);
  });
  put(warp, instruction.to[0], results, mask);
}

template <class T>
void add_divisions(Operations& all) {
  all["div" + suffix<T>()] = {&divide<T, false>, kTypeOf<T>, {kTypeOf<T>, kTypeOf<T>}, 2};
  all["rem" + suffix<T>()] = {&divide<T, true>, kTypeOf<T>, {kTypeOf<T>, kTypeOf<T>}, 2};
}

template <class T>
void add_arithmetic(Operations& all) {
  using U = Unsigned<T>;
  const std::string s = suffix<T>();
  // Small types are computed as int: the conversions back wrap.
  all["add" + s] =
      operation<T, T, T>([](T a, T b) { return static_cast<T>(static_cast<U>(a) + static_cast<U>(b)); });
  all["sub" + s] =
      operation<T, T, T>([](T a, T b) { return static_cast<T>(static_cast<U>(a) - static_cast<U>(b)); });
  constexpr auto product = [](T a, T b) {
    using Wide = std::conditional_t<sizeof(T) < 4, std::uint32_t, U>;
    return static_cast<T>(static_cast<Wide>(a) * static_cast<Wide>(b));
  };
  all["mul.lo" + s] = operation<T, T, T>(product);
  all["mad.lo" + s] = operation<T, T, T, T>([](T a, T b, T c) {
    using Wide = std::conditional_t<sizeof(T) < 4, std::uint32_t, U>;
    return static_cast<T>(static_cast<Wide>(a) * static_cast<Wide>(b) + static_cast<Wide>(c));
  });
  all["min" + s] = operation<T, T, T>([](T a, T b) { return a < b ? a : b; });
  all["max" + s] = operation<T, T, T>([](T a, T b) { return a < b ? b : a; });
  if constexpr (std::is_signed_v<T>) {
    all["neg" + s] = operation<T, T>([](T a) { return static_cast<T>(U{0} - static_cast<U>(a)); });
    all["abs" + s] =
        operation<T, T>([](T a) { return a < 0 ? static_cast<T>(U{0} - static_cast<U>(a)) : a; });
  }
  all["shr" + s] = operation<T, T, std::uint32_t>([](T a, std::uint32_t count) {
    constexpr std::uint32_t bits = sizeof(T) * 8;
    const T last = std::is_signed_v<T> && a < 0 ? static_cast<T>(-1) : T{0};
    return count >= bits ? last : static_cast<T>(a >> (count < bits ? count : bits - 1));
  });
  add_divisions<T>(all);
}

// Products of twice the width.
template <class T, class Wide>
void add_wide(Operations& all) {
  const std::string s = suffix<T>();
  using W = Unsigned<Wide>;
  all["mul.wide" + s] = operation<Wide, T, T>(
      [](T a, T b) { return static_cast<Wide>(static_cast<W>(Wide{a}) * static_cast<W>(Wide{b})); });
  all["mad.wide" + s] = operation<Wide, T, T, Wide>([](T a, T b, Wide c) {
    return static_cast<Wide>(static_cast<W>(Wide{a}) * static_cast<W>(Wide{b}) + static_cast<W>(c));
  });
  all["mul.hi" + s] = operation<T, T, T>([](T a, T b) {
    return static_cast<T>(static_cast<Wide>(static_cast<W>(Wide{a}) * static_cast<W>(Wide{b})) >>
                          8 * sizeof(T));
  });
}

template <class T>
void add_logic(Operations& all, const std::string& s) {
  all["and" + s] = operation<T, T, T>([](T a, T b) { return static_cast<T>(a & b); });
  all["or" + s] = operation<T, T, T>([](T a, T b) { return static_cast<T>(a | b); });
  all["xor" + s] = operation<T, T, T>([](T a, T b) { return static_cast<T>(a ^ b); });
  if constexpr (std::is_same_v<T, bool>) {
    all["not" + s] = operation<T, T>([](T a) { return !a; });
  } else {
    all["not" + s] = operation<T, T>([](T a) { return static_cast<T>(~a); });
    all["shl" + s] = operation<T, T, std::uint32_t>([](T a, std::uint32_t count) {
      constexpr std::uint32_t bits = sizeof(T) * 8;
      return count >= bits ? T{0} : static_cast<T>(a << (count < bits ? count : bits - 1));
    });
    all["shr" + s] = operation<T, T, std::uint32_t>([](T a, std::uint32_t count) {
      constexpr std::uint32_t bits = sizeof(T) * 8;
      return count >= bits ? T{0} : static_cast<T>(a >> (count < bits ? count : bits - 1));
    });
    all["selp" + s] = operation<T, T, T, bool>([](T a, T b, bool first) { return first ? a : b; });
  }
}

template <class T>
void add_comparisons(Operations& all, const std::string& s) {
  all["setp.eq" + s] = operation<bool, T, T>([](T a, T b) { return a == b; });
  // Of floats `ne` is false beside a NaN; `neu` is true.
  all["setp.ne" + s] = operation<bool, T, T>([](T a, T b) { return a < b || b < a; });
  all["setp.lt" + s] = operation<bool, T, T>([](T a, T b) { return a < b; });
  all["setp.le" + s] = operation<bool, T, T>([](T a, T b) { return a <= b; });
  all["setp.gt" + s] = operation<bool, T, T>([](T a, T b) { return a > b; });
  all["setp.ge" + s] = operation<bool, T, T>([](T a, T b) { return a >= b; });
  if constexpr (std::is_floating_point_v<T>) {
    all["setp.equ" + s] = operation<bool, T, T>([](T a, T b) { return !(a < b || b < a); });
    all["setp.neu" + s] = operation<bool, T, T>([](T a, T b) { return a != b; });
    all["setp.ltu" + s] = operation<bool, T, T>([](T a, T b) { return !(a >= b); });
    all["setp.leu" + s] = operation<bool, T, T>([](T a, T b) { return !(a > b); });
    all["setp.gtu" + s] = operation<bool, T, T>([](T a, T b) { return !(a <= b); });
    all["setp.geu" + s] = operation<bool, T, T>([](T a, T b) { return !(a < b); });
    all["setp.nan" + s] = operation<bool, T, T>([](T a, T b) { return a != a || b != b; });
    all["setp.num" + s] = operation<bool, T, T>([](T a, T b) { return a == a && b == b; });
  }
}

template <class T>
void add_selection(Operations& all) {
  all["selp" + suffix<T>()] = operation<T, T, T, bool>([](T a, T b, bool first) { return first ? a : b; });
  all["mov" + suffix<T>()] = operation<T, T>([](T a) { return a; });
  add_comparisons<T>(all, suffix<T>());
}

// Four of the eight bytes of two words; bit 3 of a selector spreads the byte's sign.
std::uint32_t permute(std::uint32_t a, std::uint32_t b, std::uint32_t selectors) {
  const std::uint64_t bytes = std::uint64_t{b} << 32 | a;
  std::uint32_t result = 0;
  for (int i = 0; i < 4; ++i) {
    const std::uint32_t selector = selectors >> 4 * i & 15;
    const auto byte = static_cast<std::uint32_t>(bytes >> 8 * (selector & 7) & 0xff);
    const std::uint32_t spread = (byte & 0x80) != 0 ? 0xff : 0;
    result |= ((selector & 8) != 0 ? spread : byte) << 8 * i;
  }
  return result;
}

template <class T>
T insert_bits(T from, T into, std::uint32_t at, std::uint32_t count) {
  constexpr std::uint32_t kBits = std::numeric_limits<T>::digits;
  at &= 0xff;
  count &= 0xff;
  if (at >= kBits || count == 0) return into;
  const T ones = (count >= kBits ? ~T{0} : (T{1} << count) - 1) << at;
  return (from << at & ones) | (into & ~ones);
}

}  // namespace

void add_integers(Operations& all) {
  using u16 = std::uint16_t;
  using s16 = std::int16_t;
  using u32 = std::uint32_t;
  using s32 = std::int32_t;
  using u64 = std::uint64_t;
  using s64 = std::int64_t;
  add_arithmetic<u16>(all), add_arithmetic<s16>(all), add_arithmetic<u32>(all);
  add_arithmetic<s32>(all), add_arithmetic<u64>(all), add_arithmetic<s64>(all);
  add_wide<u16, u32>(all), add_wide<s16, s32>(all), add_wide<u32, u64>(all), add_wide<s32, s64>(all);
  add_logic<u16>(all, ".b16"), add_logic<u32>(all, ".b32"), add_logic<u64>(all, ".b64");
  add_logic<bool>(all, ".pred");
  add_selection<u16>(all), add_selection<s16>(all), add_selection<u32>(all), add_selection<s32>(all);
  add_selection<u64>(all), add_selection<s64>(all), add_selection<float>(all), add_selection<double>(all);
  add_comparisons<u16>(all, ".b16"), add_comparisons<u32>(all, ".b32"), add_comparisons<u64>(all, ".b64");
  all["mov.b16"] = operation<u16, u16>([](u16 a) { return a; });
  all["mov.b32"] = operation<u32, u32>([](u32 a) { return a; });
  all["mov.b64"] = operation<u64, u64>([](u64 a) { return a; });
  all["mov.pred"] = operation<bool, bool>([](bool a) { return a; });
  all["popc.b32"] = operation<u32, u32>([](u32 a) { return std::popcount(a); });
  all["popc.b64"] = operation<u32, u64>([](u64 a) { return std::popcount(a); });
  all["clz.b32"] = operation<u32, u32>([](u32 a) { return std::countl_zero(a); });
  all["clz.b64"] = operation<u32, u64>([](u64 a) { return std::countl_zero(a); });
  all["prmt.b32"] = operation<u32, u32, u32, u32>([](u32 a, u32 b, u32 c) { return permute(a, b, c); });
  all["bfi.b32"] =
      operation<u32, u32, u32, u32, u32>([](u32 a, u32 b, u32 c, u32 d) { return insert_bits(a, b, c, d); });
  all["bfi.b64"] =
      operation<u64, u64, u64, u32, u32>([](u64 a, u64 b, u32 c, u32 d) { return insert_bits(a, b, c, d); });
  // The high word of the two shifted together: how compilers turn words around.
  all["shf.l.wrap.b32"] = operation<u32, u32, u32, u32>([](u32 low, u32 high, u32 count) {
    return static_cast<u32>((u64{high} << 32 | low) << (count & 31) >> 32);
  });
  all["shf.r.wrap.b32"] = operation<u32, u32, u32, u32>(
      [](u32 low, u32 high, u32 count) { return static_cast<u32>((u64{high} << 32 | low) >> (count & 31)); });
}

const Operations& operations() {
  static const Operations all = [] {
    Operations made;
    add_integers(made);
    add_floats(made);
    add_conversions(made);
    return made;
  }();
  return all;
}

void take_apart(Warp& warp, const Instruction& instruction, Mask mask) {
  const unsigned char* const from = warp.at<unsigned char>(instruction.from[0]);
  const int bytes = instruction.option, whole = static_cast<int>(instruction.offset);
  for (std::size_t piece = 0; piece < instruction.to.size(); ++piece) {
    if (instruction.to[piece] < 0) continue;
    unsigned char* const to = warp.at<unsigned char>(instruction.to[piece]);
    each_lane(mask, [&](int lane) {
      std::memcpy(to + lane * bytes, from + lane * whole + static_cast<int>(piece) * bytes,
                  static_cast<std::size_t>(bytes));
    });
  }
}

void put_together(Warp& warp, const Instruction& instruction, Mask mask) {
  unsigned char results[8 * kWarp];  // as the result may be one of the pieces
  const int bytes = instruction.option, whole = static_cast<int>(instruction.offset);
  for (std::size_t piece = 0; piece < instruction.from.size(); ++piece) {
    const unsigned char* const from = warp.at<unsigned char>(instruction.from[piece]);
    each_lane(mask, [&](int lane) {
      std::memcpy(results + lane * whole + static_cast<int>(piece) * bytes, from + lane * bytes,
                  static_cast<std::size_t>(bytes));
    });
  }
  unsigned char* const to = warp.at<unsigned char>(instruction.to[0]);
  each_lane(mask, [&](int lane) {
    std::memcpy(to + lane * whole, results + lane * whole, static_cast<std::size_t>(whole));
  });
}

}  // namespace ptx
