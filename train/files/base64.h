// Bytes as text: base64 (RFC 4648, section 4), for files inside JSON and pictures inside pages.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace eddy {

// The bytes in base64, padded, without line breaks.
std::string to_base64(std::string_view bytes);

// The bytes behind a text that to_base64 wrote; nullopt for any other text.
std::optional<std::string> from_base64(std::string_view text);

}  // namespace eddy
