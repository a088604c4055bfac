// Instructions that compute each lane's result from the lane's operands, by name.
#pragma once

#include <array>
#include <string>
#include <unordered_map>
#include <utility>

#include "tests/ptx/interpreter/machine.h"

namespace ptx {

struct Operation {
  Run run;
  Type to;
  std::array<Type, 4> from;
  int sources;
};
// By the name with all modifiers: "add.s32", "setp.lt.f32", "cvt.rn.f32.s32". A name without `.rn`, `.lo`,
// `.uni` and the like means what PTX means by it.
using Operations = std::unordered_map<std::string, Operation>;

const Operations& operations();
// Parts of it, from files of their own.
void add_integers(Operations& all);
void add_floats(Operations& all);
void add_conversions(Operations& all);

template <class T>
constexpr Type kTypeOf = Type::u32;
template <>
inline constexpr Type kTypeOf<bool> = Type::pred;
template <>
inline constexpr Type kTypeOf<std::uint8_t> = Type::u8;
template <>
inline constexpr Type kTypeOf<std::int8_t> = Type::s8;
template <>
inline constexpr Type kTypeOf<std::uint16_t> = Type::u16;
template <>
inline constexpr Type kTypeOf<std::int16_t> = Type::s16;
template <>
inline constexpr Type kTypeOf<std::int32_t> = Type::s32;
template <>
inline constexpr Type kTypeOf<std::uint64_t> = Type::u64;
template <>
inline constexpr Type kTypeOf<std::int64_t> = Type::s64;
template <>
inline constexpr Type kTypeOf<float> = Type::f32;
template <>
inline constexpr Type kTypeOf<double> = Type::f64;

// Writes the results of the lanes of a mask.
template <class To>
void put(Warp& warp, int place, const To* results, Mask mask) {
  To* const to = warp.at<To>(place);
  if (mask == kAllLanes) {
    __builtin_memcpy(to, results, sizeof(To) * kWarp);
  } else {
    for (int lane = 0; lane < kWarp; ++lane) to[lane] = (mask >> lane & 1) != 0 ? results[lane] : to[lane];
  }
}

// Computes all lanes, also those of no interest, so that the loop becomes vector instructions.
template <class F, class To, class... From, std::size_t... I>
void compute(Warp& warp, const Instruction& instruction, Mask mask, std::index_sequence<I...>) {
  To results[kWarp];
  const auto each = [&results](const From*... from) {
    for (int lane = 0; lane < kWarp; ++lane) results[lane] = static_cast<To>(F{}(from[lane]...));
  };
  each(warp.at<From>(instruction.from[I])...);
  put(warp, instruction.to[0], results, mask);
}
template <class F, class To, class... From>
void apply(Warp& warp, const Instruction& instruction, Mask mask) {
  compute<F, To, From...>(warp, instruction, mask, std::index_sequence_for<From...>{});
}

// The operation To f(From...), where f is a lambda without captures.
template <class To, class... From, class F>
Operation operation(F) {
  return {&apply<F, To, From...>, kTypeOf<To>, {kTypeOf<From>...}, static_cast<int>(sizeof...(From))};
}

// {a, b} = c and c = {a, b}: lanes' bytes in order; `option` bytes of each piece,
// `offset` of the whole. A place below 0 is nothing.
void take_apart(Warp& warp, const Instruction& instruction, Mask mask);
void put_together(Warp& warp, const Instruction& instruction, Mask mask);

}  // namespace ptx
