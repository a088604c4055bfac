// Lines of standard input, one after another: on a terminal with a prompt, edited and with a history of this process,
// where the build has libedit.
#pragma once

#include <memory>
#include <string>

namespace eddy::app {

// Whether lines are edited on a terminal; else the terminal's own editing is what there is.
bool edits_lines();

class LineInput {
 public:
  // `terminal`: whether a person types and reads; else no prompt is shown.
  LineInput(bool terminal, std::string prompt);
  ~LineInput();
  LineInput(const LineInput&) = delete;
  LineInput& operator=(const LineInput&) = delete;

  enum class End { line, end_of_input, interrupted };
  struct Line {
    End end = End::line;
    std::string text;  // without its newline
  };
  // Waits for the next line. SIGINT ends the wait (interrupt.h); what was typed is lost. A last line without a newline is
  // a line.
  // A byte order mark at the beginning is dropped, and UTF-16 behind one becomes UTF-8, as in a file.
  // errors: IoError where standard input cannot be read; ValueError for a line of more than 16 MiB.
  Line next();

 private:
  struct Editor;
  Line next_edited();
  Line next_plain();
  // Drops the mark at the beginning of what was read. Returns whether lines can be taken by now.
  bool begin();

  bool terminal_;
  std::string prompt_;
  std::unique_ptr<Editor> editor_;
  std::string read_;  // bytes behind the last line
  bool has_begun_;    // the mark is dropped; on a terminal there is none
  bool at_end_ = false;
};

}  // namespace eddy::app
