// What a terminal sends, as keys that a person typed and texts that were pasted. It tells them apart in two ways:
//   - A terminal that was asked to marks a pasted text: ESC[200~ text ESC[201~ ("bracketed paste" of xterm's control
//     sequences).
//   - Without marks a pasted text arrives at once. So text behind a line end that came together with it is pasted: a
//     person waits for an answer.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace eddy::app {

// What asks a terminal to mark pasted texts, and what ends that.
inline constexpr std::string_view kMarkPastes = "\x1b[?2004h", kMarkNoPastes = "\x1b[?2004l";

class KeyDecoder {
 public:
  // Takes the next bytes from the terminal, cut anywhere.
  // errors: ValueError where more than 16 MiB wait for the end of a pasted text.
  void add(std::string_view bytes);

  struct Piece {
    bool pasted = false;
    std::string text;  // whole characters of UTF-8, where they arrive as such; each line end is '\n'
  };
  // Returns the next piece; nothing where there is none, or where what comes next decides what it is. `quiet`: for a
  // moment nothing came, so what arrived is all there is; only a text with a mark at its begin still waits for that at
  // its end. A pasted text without marks has no line end at its end: that follows as a typed one.
  std::optional<Piece> next(bool quiet);

  // Whether something waits to be told by what comes next.
  bool waits() const { return !waiting_.empty(); }

  void clear();

 private:
  std::optional<Piece> next_marked();
  // The piece of the text at the begin of what waits, of which so many bytes go.
  Piece take(bool pasted, std::string_view text, std::size_t bytes);

  std::string waiting_;
  std::size_t looked_ =
      0;  // bytes without a control character; in a marked text, without the mark of its end
};

}  // namespace eddy::app
