// Texts of short stories for the memory experiments of S. Liang, "Block-wise Recurrent Transformer": every
// story as it is, or told twice with the request to repeat it in between, which only a model that remembers
// what lies behind its window can predict.
//
//   plain    ^A story ^A story ...
//   repeat   ^A story ^B Repeat above. ^A story ^B  ^A next story ^B ...
//
// ^A (U+0001) begins a story and ^B (U+0002) ends one, as tokens of their own do in the paper: one byte each,
// so that every tokenizer has them as one token and the text stays a text file.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace eddy {

inline constexpr char kStoryBegin = '\x01';
inline constexpr char kStoryEnd = '\x02';

// The stories of a text, without white space at their ends and none of them empty: what stands between the
// marks <|endoftext|> or, where there is no such mark, between blank lines.
std::vector<std::string> split_stories(std::string_view text);

// The stories cut into pieces of at most `most_bytes` bytes, at the end of a sentence where one lies in the
// second half of what fits, else between words, else between characters.
// errors: ValueError when most_bytes is below 4, the longest character.
std::vector<std::string> cut_stories(const std::vector<std::string>& stories, std::int64_t most_bytes);

std::string plain_text(const std::vector<std::string>& stories);
std::string repeat_text(const std::vector<std::string>& stories);

}  // namespace eddy
