// Texts written as JSON strings, for files and for error messages. Needs no JSON header.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace eddy {

// The text as a JSON string, quotes included; nothing when it is not UTF-8.
std::optional<std::string> json_string(std::string_view text);

// The text in quotes for an error message: control characters escaped, invalid UTF-8 replaced, long texts
// cut.
std::string quote_text(std::string_view text);

}  // namespace eddy
