// What the reader and the writer of safetensors files share: element types and the size of a tensor.
// Internal to tensor/.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "tensor/base/dtype.h"

namespace eddy {

inline constexpr std::string_view kSafetensorsMetadataKey = "__metadata__";
inline constexpr std::int64_t kSafetensorsMaxHeaderBytes =
    100'000'000;  // the bound of the format's own reader

// An element type that the format defines.
struct SafetensorsType {
  std::string_view name;       // "F32", "BF16", "BOOL", ...
  int bits;                    // of one element
  std::optional<Dtype> dtype;  // Eddy's dtype; nothing if it has none
};
// Returns the type of that name, or null when the format defines none.
const SafetensorsType* find_safetensors_type(std::string_view name);
const SafetensorsType& safetensors_type(Dtype dtype);

// Returns the bytes of a tensor, or nothing when a size is negative, the count overflows or the last element
// ends inside a byte. The overflow check skips sizes of 0, because strides are products of the other sizes.
std::optional<std::int64_t> safetensors_bytes(const std::vector<std::int64_t>& shape,
                                              const SafetensorsType& type);

}  // namespace eddy
