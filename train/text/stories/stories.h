// Texts of short stories for the memory experiments of S. Liang, "Block-wise Recurrent Transformer": each
// story once, or twice with the request to repeat it in between. Only a model that remembers beyond its
// attention window can predict the repetition.
//
//   plain    ^A story ^A story ...
//   repeat   ^A story ^B Repeat above. ^A story ^B  ^A next story ^B ...
//
// ^A (U+0001) begins a story and ^B (U+0002) ends one, as special tokens do in the paper. They are one byte
// each, so every tokenizer has them as one token, and the text remains a text file.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace eddy::training {

inline constexpr char kStoryBegin = '\x01';
inline constexpr char kStoryEnd = '\x02';

// The stories of a text: the parts between the marks <|endoftext|> or, when there is no such mark, between
// blank lines. They are trimmed, and empty ones are left out.
std::vector<std::string> split_stories(std::string_view text);

// The stories cut into pieces of at most `most_bytes` bytes: at the end of a sentence, if one lies in the
// second half of the piece, else between words, else between characters.
// errors: ValueError when most_bytes is below 4, the longest character.
std::vector<std::string> cut_stories(const std::vector<std::string>& stories, std::int64_t most_bytes);

// The plain and the repeat text above.
std::string plain_text(const std::vector<std::string>& stories);
std::string repeat_text(const std::vector<std::string>& stories);

// Training text without a download: small English stories from a seeded grammar. Each story names a person, a
// home, a carried object and a few other facts early, digresses for many hundred characters, and then repeats
// them word for word. A model that remembers beyond its attention window predicts the repetitions better.
// Exactly `bytes` characters of stories, plain ASCII, separated by blank lines; the last story may be cut.
// The same on every platform; generate_stories(seed, n) is a prefix of generate_stories(seed, n + m).
// errors: ValueError when bytes < 0.
std::string generate_stories(std::uint64_t seed, std::int64_t bytes);

}  // namespace eddy::training
