// Tables and arithmetic of the safetensors format.
#include "tensor/files/safetensors_layout.h"

#include <algorithm>
#include <iterator>

namespace eddy {
namespace {

// The first of a Dtype is what is written for it.
constexpr SafetensorsType kTypes[] = {
    {"F32", 32, Dtype::f32}, {"BF16", 16, Dtype::bf16}, {"F64", 64, Dtype::f64}, {"I32", 32, Dtype::i32},
    {"I64", 64, Dtype::i64}, {"U8", 8, Dtype::u8},      {"F16", 16, {}},         {"BOOL", 8, Dtype::u8},
    {"I8", 8, {}},           {"I16", 16, {}},           {"U16", 16, {}},         {"U32", 32, {}},
    {"U64", 64, {}},         {"C64", 64, {}},           {"F4", 4, {}},           {"F6_E2M3", 6, {}},
    {"F6_E3M2", 6, {}},      {"F8_E5M2", 8, {}},        {"F8_E4M3", 8, {}},      {"F8_E8M0", 8, {}},
    {"F8_E4M3FNUZ", 8, {}},
};

template <class Match>
const SafetensorsType* find_type(Match&& match) {
  const SafetensorsType* const found = std::find_if(std::begin(kTypes), std::end(kTypes), match);
  return found == std::end(kTypes) ? nullptr : found;
}

}  // namespace

const SafetensorsType* find_safetensors_type(std::string_view name) {
  return find_type([&](const SafetensorsType& type) { return type.name == name; });
}

const SafetensorsType& safetensors_type(Dtype dtype) {
  return *find_type([&](const SafetensorsType& type) { return type.dtype == dtype; });
}

std::optional<std::int64_t> safetensors_bytes(const std::vector<std::int64_t>& shape,
                                              const SafetensorsType& type) {
  const bool whole_bytes = type.bits % 8 == 0;
  std::int64_t size_of_all = whole_bytes ? type.bits / 8 : type.bits;
  bool empty = false;
  for (const std::int64_t size : shape) {
    if (size < 0) return std::nullopt;
    empty = empty || size == 0;
    if (size > 0 && __builtin_mul_overflow(size_of_all, size, &size_of_all)) return std::nullopt;
  }
  if (empty) return 0;
  if (whole_bytes) return size_of_all;
  return size_of_all % 8 == 0 ? std::optional(size_of_all / 8) : std::nullopt;
}

}  // namespace eddy
