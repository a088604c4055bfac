// Tables and arithmetic of the safetensors format.
#include "tensor/files/safetensors_layout.h"

#include <algorithm>
#include <array>

namespace eddy {

std::string_view safetensors_dtype_name(Dtype dtype) {
  switch (dtype) {
    case Dtype::f32:
      return "F32";
    case Dtype::bf16:
      return "BF16";
    case Dtype::f64:
      return "F64";
    case Dtype::i32:
      return "I32";
    case Dtype::i64:
      return "I64";
    case Dtype::u8:
      return "U8";
  }
  return "?";
}

std::optional<Dtype> safetensors_dtype(std::string_view name) {
  for (int i = 0; i < kDtypeCount; ++i)
    if (const auto dtype = static_cast<Dtype>(i); safetensors_dtype_name(dtype) == name) return dtype;
  return std::nullopt;
}

bool is_safetensors_dtype(std::string_view name) {
  static constexpr std::array<std::string_view, 15> kOthers = {
      "BOOL", "F4",  "F6_E2M3", "F6_E3M2", "I8",  "F8_E5M2", "F8_E4M3",    "F8_E8M0",
      "I16",  "U16", "F16",     "U32",     "U64", "C64",     "F8_E4M3FNUZ"};
  return safetensors_dtype(name).has_value() ||
         std::find(kOthers.begin(), kOthers.end(), name) != kOthers.end();
}

std::optional<std::int64_t> safetensors_bytes(const std::vector<std::int64_t>& shape, Dtype dtype) {
  auto bytes = static_cast<std::int64_t>(dtype_bytes(dtype));
  bool empty = false;
  for (const std::int64_t size : shape) {
    if (size < 0) return std::nullopt;
    empty = empty || size == 0;
    if (size > 0 && __builtin_mul_overflow(bytes, size, &bytes)) return std::nullopt;
  }
  return empty ? 0 : bytes;
}

}  // namespace eddy
