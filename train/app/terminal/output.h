// What a command prints, and what it reads from standard input, with errors checked.
//
// Writes to standard output are checked. A full disk is an error. A reader that closes the pipe, as `head` does in
// `eddy models | head`, ends the program without one. A command whose results are files goes on without output.
#pragma once

#include <fmt/format.h>

#include <string>
#include <string_view>
#include <utility>

namespace eddy::app {

// Thrown when the reader has closed the output. It is not an eddy::Error, since it is no failure.
struct OutputClosed {};

// Returns what standard input gives until its end: a text that the flag of `where` is to give, as that of a file:
// without a byte order mark, as UTF-8.
// errors: ValueError for more than 16 MiB, since an endless text (`yes |`) must not fill the memory; IoError;
// FormatError for UTF-16 without a mark.
std::string read_standard_input(const std::string& where);

// From here on a failed write to standard output throws nothing, and what is printed is lost.
void keep_on_without_output();
// Whether something that was printed has been lost.
bool output_is_lost();
// Says at the end of a command why something was lost, unless the reader left. Where what is printed is a result
// too, that is an error.
// errors: IoError.
void report_lost_output(bool is_result);

// Writes to standard output, made safe for a terminal whatever names and texts hold (printable() in
// train/words/human_text.h).
// errors: OutputClosed; IoError; none with keep_on_without_output.
void print(std::string_view text);
// Writes the bytes as they are.
// errors: as print.
void print_bytes(std::string_view bytes);
// The same, and flushes: training writes to standard output too, not through print().
void print_now(std::string_view text);
template <class... Args>
void print_line(fmt::format_string<Args...> text, Args&&... args) {
  print(fmt::format(text, std::forward<Args>(args)...) + '\n');
}
// Writes a line to standard error, made safe too; errors are ignored.
void say(std::string_view text);
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

}  // namespace eddy::app
