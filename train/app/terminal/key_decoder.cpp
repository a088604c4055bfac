// A stretch without control characters that holds a line end is judged as a whole: as pasted, if text follows it.
#include "train/app/terminal/key_decoder.h"

#include <algorithm>

#include "tensor/base/error.h"
#include "tensor/base/format.h"
#include "train/words/utf8.h"

namespace eddy::app {
using namespace training;
namespace {

constexpr std::string_view kPasteBegin = "\x1b[200~", kPasteEnd = "\x1b[201~";
constexpr std::string_view kLineEnds = "\r\n";
constexpr std::size_t kMostWaiting = std::size_t{1} << 24;

// Whether a byte is that of a key that writes nothing: Ctrl-A, ESC, backspace.
bool is_control(char byte) {
  const auto code = static_cast<unsigned char>(byte);
  return (code < 0x20 && byte != '\t' && byte != '\r' && byte != '\n') || code == 0x7f;
}

// The text with '\n' for the line ends "\r\n" and '\r'.
std::string with_newlines(std::string_view text) {
  std::string result;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\r' && i + 1 < text.size() && text[i + 1] == '\n') continue;
    result += text[i] == '\r' ? '\n' : text[i];
  }
  return result;
}

// How many bytes at the end of a text may be the begin of a mark, or of a character.
std::size_t unfinished(std::string_view text) {
  for (std::size_t length = std::min(kPasteBegin.size() - 1, text.size()); length > 0; --length)
    if (text.ends_with(kPasteBegin.substr(0, length))) return length;
  return cut_utf8_bytes(text);
}

}  // namespace

void KeyDecoder::add(std::string_view bytes) {
  if (waiting_.size() + bytes.size() > kMostWaiting)
    fail<ValueError>("chat: a pasted text is longer than {} bytes (paste it in parts)", kMostWaiting);
  waiting_ += bytes;
}

void KeyDecoder::clear() {
  waiting_.clear();
  looked_ = 0;
}

KeyDecoder::Piece KeyDecoder::take(bool pasted, std::string_view text, std::size_t bytes) {
  Piece piece{pasted, with_newlines(text)};
  waiting_.erase(0, bytes);
  looked_ = 0;
  return piece;
}

std::optional<KeyDecoder::Piece> KeyDecoder::next_marked() {
  const std::size_t end = waiting_.find(kPasteEnd, std::max(looked_, kPasteBegin.size()));
  if (end == std::string::npos) {
    looked_ = waiting_.size() - std::min(waiting_.size(), kPasteEnd.size() - 1);
    return {};
  }
  return take(true, std::string_view(waiting_).substr(0, end).substr(kPasteBegin.size()),
              end + kPasteEnd.size());
}

std::optional<KeyDecoder::Piece> KeyDecoder::next(bool quiet) {
  if (waiting_.starts_with(kPasteBegin)) return next_marked();
  const std::string_view all = waiting_;
  const std::size_t mark = all.find(kPasteBegin, looked_);
  const bool at_mark = mark != std::string_view::npos;
  const std::string_view known = all.substr(0, at_mark ? mark : all.size() - (quiet ? 0 : unfinished(all)));
  const std::size_t line_end = known.find_first_of(kLineEnds);
  if (known.empty()) return {};
  if (line_end == std::string_view::npos) return take(false, known, known.size());
  std::size_t keys = line_end;  // up to the last control character before the line end
  while (keys > 0 && !is_control(known[keys - 1])) --keys;
  if (keys > 0) return take(false, known.substr(0, keys), keys);

  const auto looked = known.begin() + static_cast<std::ptrdiff_t>(std::min(looked_, known.size()));
  const std::string_view stretch(known.begin(), std::find_if(looked, known.end(), is_control));
  if (stretch.size() == known.size() && !at_mark && !quiet) {
    looked_ = known.size();
    return {};
  }
  const std::size_t text_end = stretch.find_last_not_of(kLineEnds) + 1;
  if (text_end <= line_end) return take(false, stretch, stretch.size());
  // Of the line ends behind a pasted text one is left, as the key that ends the line.
  const bool has_end = text_end < stretch.size();
  Piece piece = take(true, stretch.substr(0, text_end), stretch.size());
  if (has_end) waiting_.insert(0, 1, '\n');
  return piece;
}

}  // namespace eddy::app
