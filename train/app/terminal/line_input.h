// Lines of standard input, one after another: on a terminal with a prompt, edited and with a history of this process,
// where the build has libedit. A text that is pasted into a terminal is one line, whatever it holds.
#pragma once

#include <memory>
#include <string>

#include "train/app/terminal/key_decoder.h"
#include "train/app/terminal/prompt_terminal.h"

namespace eddy::app {

// Whether lines are edited on a terminal; else the terminal's own editing is what there is.
bool edits_lines();

class LineInput {
 public:
  // `prompts`: whether a prompt is shown, as to a person who types and reads.
  LineInput(bool prompts, std::string prompt);
  ~LineInput();
  LineInput(const LineInput&) = delete;
  LineInput& operator=(const LineInput&) = delete;

  enum class End { line, end_of_input, interrupted };
  struct Line {
    End end = End::line;
    std::string text;     // without its newline; one that was pasted may hold others
    bool pasted = false;  // it begins with a text that was pasted into a terminal, or holds the end of a line
  };
  // Waits for the next line. SIGINT ends the wait (interrupt.h); what was typed is lost. A last line without a newline
  // is a line. Signals that end or stop the program leave the terminal as it was found (prompt_terminal.h); when it
  // goes on, prompt and line are shown again.
  // A byte order mark at the beginning is dropped, and UTF-16 behind one becomes UTF-8, as in a file.
  // errors: IoError where standard input cannot be read; ValueError for a line of more than 16 MiB.
  Line next();

 private:
  struct Editor;
  struct Arrival;
  Arrival wait_for_keys(PromptTerminal& terminal);
  Line next_edited();
  Line next_typed();
  Line next_plain();
  Line line_of(std::string text) const;
  // Drops the mark at the beginning of what was read. Returns whether lines can be taken by now.
  bool begin();

  bool prompts_, terminal_;  // the latter: standard input is one
  std::string prompt_;
  std::unique_ptr<Editor> editor_;
  KeyDecoder keys_;
  std::string read_;          // bytes behind the last line; of a terminal those that were typed
  std::string pasted_first_;  // the text that was pasted at the begin of the line
  bool at_end_ = false;
  bool has_begun_ = false;  // the mark of a file or a pipe is dropped
};

}  // namespace eddy::app
