// Splitting a text into stories, cutting long ones, and joining them.
#include "train/text/stories/stories.h"

#include "tensor/base/format.h"
#include "train/words/utf8.h"

namespace eddy::training {
namespace {

constexpr std::string_view kMark = "<|endoftext|>";
constexpr std::string_view kRequest = "Repeat above.";
constexpr std::string_view kBlank = " \t\r\n";

std::string_view stripped(std::string_view text) {
  const std::size_t first = text.find_first_not_of(kBlank);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kBlank) - first + 1);
}

bool is_blank(char c) {
  return kBlank.find(c) != std::string_view::npos;
}

// Whether a sentence ends with the character at `at`: a stop, perhaps in quotes, and white space behind it.
bool sentence_ends(std::string_view text, std::size_t at) {
  if (at + 1 < text.size() && !is_blank(text[at + 1])) return false;
  const std::size_t stop = text[at] == '"' && at > 0 ? at - 1 : at;
  return text[stop] == '.' || text[stop] == '!' || text[stop] == '?';
}

// The length of the first piece of a text that is longer than `most`.
std::size_t piece_length(std::string_view text, std::size_t most) {
  for (std::size_t length = most; length > most / 2; --length)
    if (sentence_ends(text, length - 1)) return length;
  for (std::size_t length = most; length > 0; --length)
    if (is_blank(text[length])) return length;
  std::size_t length = most;  // inside a word: not inside a character, whose further bytes are 10xxxxxx
  while (length > 1 && is_continuation(text[length])) --length;
  return length;
}

}  // namespace

std::vector<std::string> split_stories(std::string_view text) {
  const std::string_view separator = text.find(kMark) != std::string_view::npos ? kMark : "\n\n";
  std::vector<std::string> stories;
  while (!text.empty()) {
    const std::size_t end = text.find(separator);
    if (const std::string_view story = stripped(text.substr(0, end)); !story.empty())
      stories.emplace_back(story);
    if (end == std::string_view::npos) break;
    text.remove_prefix(end + separator.size());
  }
  return stories;
}

std::vector<std::string> cut_stories(const std::vector<std::string>& stories, std::int64_t most_bytes) {
  if (most_bytes < 4) fail<ValueError>("cut_stories: pieces of {} bytes (at least 4)", most_bytes);
  const auto most = static_cast<std::size_t>(most_bytes);
  std::vector<std::string> pieces;
  for (const std::string& story : stories) {
    std::string_view rest = story;
    while (!rest.empty()) {
      const std::size_t length = rest.size() <= most ? rest.size() : piece_length(rest, most);
      pieces.emplace_back(stripped(rest.substr(0, length)));
      rest = stripped(rest.substr(length));
    }
  }
  return pieces;
}

std::string plain_text(const std::vector<std::string>& stories) {
  std::string text;
  for (const std::string& story : stories) {
    text += kStoryBegin;
    text += story;
  }
  return text;
}

std::string repeat_text(const std::vector<std::string>& stories) {
  std::string text;
  for (const std::string& story : stories) {
    text += kStoryBegin + story + kStoryEnd;
    text += kRequest;
    text += kStoryBegin + story + kStoryEnd;
  }
  return text;
}

}  // namespace eddy::training
