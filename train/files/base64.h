// Base64 (RFC 4648, section 4): bytes as text, for files inside JSON and pictures inside pages.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace eddy::training {

// The bytes in base64, padded, without line breaks.
std::string to_base64(std::string_view bytes);

// The bytes that to_base64 encoded as `text`; nullopt when it is not such a text.
std::optional<std::string> from_base64(std::string_view text);

}  // namespace eddy::training
