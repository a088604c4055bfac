// Standard output that notices when it fails: a full disk is an error, and a reader that has gone (`eddy
// models | head`) ends the program without one.
#pragma once

#include <fmt/format.h>

#include <string>
#include <string_view>
#include <utility>

namespace eddy {

// Thrown when nobody reads the output any more. No eddy::Error: it is no failure.
struct OutputClosed {};

// Writes to standard output.
// errors: OutputClosed; IoError.
void print(std::string_view text);
template <class... Args>
void print_line(fmt::format_string<Args...> text, Args&&... args) {
  print(fmt::format(text, std::forward<Args>(args)...) + '\n');
}
// Hands on what is buffered, also of std::cout and stdio.
// errors: as print.
void flush_output();

// Whether standard output (1) or standard error (2) is a terminal.
bool is_terminal(int stream);

// Text that comes in pieces of any length, as whole characters that cannot steer a terminal (see printable).
// A character cut by the end of a piece waits for the next one.
class TerminalText {
 public:
  std::string take(std::string_view bytes);
  // What still waits.
  std::string finish();

 private:
  std::string waiting_;
};

}  // namespace eddy
