// What a file is that holds no plain text, by its first bytes: PDFs, archives, office documents, pictures, tables and
// databases, arrays, and files of token numbers.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace eddy::training {

struct NoText {
  std::string kind, way_out;  // how to get at a text
};

// The bytes at the beginning of a file that show its kind.
inline constexpr std::size_t kKindBytes = 4096;

// What a file is that begins so, if it is no text; of an archive its name tells more. Other binary files have no kind.
std::optional<NoText> no_text(std::string_view head, std::string_view path);

}  // namespace eddy::training
