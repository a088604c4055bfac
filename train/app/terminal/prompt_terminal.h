// The terminal while a line is awaited. A line editor changes its modes; who ends or stops the program then finds the
// terminal as it was.
#pragma once

#include <termios.h>

#include <array>
#include <csignal>
#include <string_view>

namespace eddy::app {

// The modes of the terminal of standard input.
class TerminalModes {
 public:
  // Notes the modes as they are.
  TerminalModes();
  // Brings the terminal back to them.
  void restore() const;

 private:
  termios modes_{};
  bool known_;
};

// Brings the modes back at the end of a scope.
class KeptModes {
 public:
  KeptModes() = default;
  ~KeptModes() { modes_.restore(); }
  KeptModes(const KeptModes&) = delete;
  KeptModes& operator=(const KeptModes&) = delete;

 private:
  TerminalModes modes_;
};

// While it lives, signals that end or stop the program (SIGTERM, SIGHUP, Ctrl-\, Ctrl-Z) only ask for it, and the wait
// for keys asks what they want. One that was ignored before stays ignored. At most one lives at a time.
class PromptTerminal {
 public:
  // `at_begin` is written to standard output now, and whenever the program goes on; `at_end` when the terminal is left.
  PromptTerminal(std::string_view at_begin, std::string_view at_end);
  // Leaves the terminal as it was found, and does what a signal asked for since.
  ~PromptTerminal();
  PromptTerminal(const PromptTerminal&) = delete;
  PromptTerminal& operator=(const PromptTerminal&) = delete;

  enum class Change { none, resized, resumed };
  // Does what signals asked for since the last call: it ends the program, or stops it until it is told to go on.
  // Returns what has become of the terminal: its size is another, or the program goes on with modes that are not the
  // editor's.
  Change answer_signals();

 private:
  static constexpr std::array<int, 9> kSignals = {SIGTERM, SIGHUP,  SIGQUIT, SIGUSR1, SIGUSR2,
                                                  SIGXCPU, SIGTSTP, SIGCONT, SIGWINCH};
  void catch_signals();
  void release_signals() const;
  void leave() const;

  TerminalModes found_;
  std::string_view at_begin_, at_end_;
  std::array<struct sigaction, kSignals.size()> before_{};
};

}  // namespace eddy::app
