// The types of PTX's registers and memory, and the error of everything in this folder.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string_view>

namespace ptx {

constexpr int kWarp = 32;  // lanes
using Mask = std::uint32_t;
constexpr Mask kAllLanes = 0xffffffffu;

// What compiled code does wrong, or what this interpreter does not know. `what` names kernel and instruction.
struct Fault : std::runtime_error {
  using std::runtime_error::runtime_error;
};

enum class Type : std::uint8_t { pred, u8, s8, u16, s16, u32, s32, u64, s64, f32, f64 };

// Returns the type of a name as in `.b32`, without the point. An untyped word is unsigned.
// errors: Fault for a name that is no type.
Type type_of(std::string_view name);
int bytes_of(Type type);
constexpr bool is_float(Type type) {
  return type == Type::f32 || type == Type::f64;
}
constexpr bool is_signed(Type type) {
  return type == Type::s8 || type == Type::s16 || type == Type::s32 || type == Type::s64;
}

enum class Space : std::uint8_t { generic, global, shared, local, param };

// Generic addresses of other spaces than global lie in windows that no recorded address reaches.
constexpr std::uint64_t kSharedWindow = std::uint64_t{1} << 60;
constexpr std::uint64_t kLocalWindow = std::uint64_t{2} << 60;
constexpr std::uint64_t kParamWindow = std::uint64_t{3} << 60;
constexpr std::uint64_t kWindowMask = std::uint64_t{0xf} << 60;

}  // namespace ptx
