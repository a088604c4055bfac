// What the reader and the writer of safetensors files share: names of element types and the size of a tensor.
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

// Returns the format's name of a dtype: "F32", "BF16", ...
std::string_view safetensors_dtype_name(Dtype dtype);
// Returns the dtype of such a name, or nothing.
std::optional<Dtype> safetensors_dtype(std::string_view name);
// Whether the format defines this name, known to Eddy or not.
bool is_safetensors_dtype(std::string_view name);

// Returns the bytes of a tensor, or nothing when a size is negative or the count overflows. The overflow
// check skips sizes of 0, because strides are products of the other sizes.
std::optional<std::int64_t> safetensors_bytes(const std::vector<std::int64_t>& shape, Dtype dtype);

}  // namespace eddy
