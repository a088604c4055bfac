// Standard output with checked errors: a full disk is an error, and a reader that closes the pipe (`eddy
// models | head`) ends the program without one.
#pragma once

#include <fmt/format.h>

#include <string>
#include <string_view>
#include <utility>

namespace eddy {

// Thrown when the reader has closed the output. It is not an eddy::Error, since it is no failure.
struct OutputClosed {};

// Writes to standard output.
// errors: OutputClosed; IoError.
void print(std::string_view text);
// The same, and flushes: training writes to standard output too, not through print().
void print_now(std::string_view text);
template <class... Args>
void print_line(fmt::format_string<Args...> text, Args&&... args) {
  print(fmt::format(text, std::forward<Args>(args)...) + '\n');
}
// Flushes what is buffered, also by std::cout and stdio.
// errors: as print.
void flush_output();

// Whether standard output (1) or standard error (2) is a terminal.
bool is_terminal(int stream);

// Makes text that arrives in pieces of any length safe for a terminal: it returns whole characters, through
// printable(). A character cut by the end of a piece waits for the next one.
class TerminalText {
 public:
  std::string take(std::string_view bytes);
  // Returns what still waits.
  std::string finish();

 private:
  std::string waiting_;
};

}  // namespace eddy
