// What a file is that holds no plain text, by its first bytes: PDFs, archives, office documents, pictures, sound,
// tables and databases, arrays, weights, programs, and files of token numbers.
#pragma once

#include <filesystem>
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

// Returns the ending of a name in small letters: ".txt" of "A.TXT"; "" where it has none.
std::string lower_ending(const std::filesystem::path& path);

// Whether a byte is a control character that no text has, in whatever encoding: none of white space, of bells and
// escapes of terminals, and of the old end of a file.
bool is_binary_control(char c);

}  // namespace eddy::training
