// Text as JSON strings, for files and for error messages. Needs no JSON header.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace eddy {

// Returns the text as a JSON string with its quotes; nothing if it is not UTF-8.
std::optional<std::string> json_string(std::string_view text);

// Returns what the JSON library says in an exception, without its own codes "[json.exception...] parse error at line 1,
// column 2: ". Texts of others stay as they are, but for control characters; long ones are cut.
std::string plain_message(std::string text);

// Returns the text in quotes for an error message: control characters are escaped, invalid UTF-8 is replaced,
// long texts are cut.
std::string quote_text(std::string_view text);

}  // namespace eddy
