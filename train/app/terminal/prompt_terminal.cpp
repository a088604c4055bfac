// Handlers only note their signal. What it asks for is done between two waits for keys, where every call is safe.
#include "train/app/terminal/prompt_terminal.h"

#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>

namespace eddy::app {
namespace {

std::atomic<int> leave_by{0};  // the signal that ends or stops the program; the first that came
std::atomic<bool> went_on{false}, got_resized{false};
static_assert(std::atomic<int>::is_always_lock_free && std::atomic<bool>::is_always_lock_free);

void note_signal(int number) {
  int none = 0;
  if (number == SIGCONT)
    went_on = true;
  else if (number == SIGWINCH)
    got_resized = true;
  else
    leave_by.compare_exchange_strong(none, number);
}

// Waits in the background, as the terminal is another program's there. A process that no shell waits for goes on.
void wait_for_foreground() {
  if (const pid_t owner = ::tcgetpgrp(STDIN_FILENO); owner > 0 && owner != ::getpgrp()) ::raise(SIGTTIN);
}

void write_now(std::string_view text) {
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fflush(stdout);
}

}  // namespace

TerminalModes::TerminalModes() : known_(::tcgetattr(STDIN_FILENO, &modes_) == 0) {}

void TerminalModes::restore() const {
  while (known_ && ::tcsetattr(STDIN_FILENO, TCSADRAIN, &modes_) != 0 && errno == EINTR) {
  }
}

PromptTerminal::PromptTerminal(std::string_view at_begin, std::string_view at_end)
    : at_begin_(at_begin), at_end_(at_end) {
  leave_by = 0;
  went_on = got_resized = false;
  for (std::size_t i = 0; i < kSignals.size(); ++i) ::sigaction(kSignals[i], nullptr, &before_[i]);
  catch_signals();
  write_now(at_begin_);
}

PromptTerminal::~PromptTerminal() {
  leave();
  release_signals();
  if (const int number = leave_by; number != 0) ::raise(number);
}

void PromptTerminal::catch_signals() {
  struct sigaction action {};
  action.sa_handler = note_signal;  // without SA_RESTART: a wait for keys returns
  for (std::size_t i = 0; i < kSignals.size(); ++i)
    if (before_[i].sa_handler != SIG_IGN) ::sigaction(kSignals[i], &action, nullptr);
}

void PromptTerminal::release_signals() const {
  for (std::size_t i = 0; i < kSignals.size(); ++i) ::sigaction(kSignals[i], &before_[i], nullptr);
}

void PromptTerminal::leave() const {
  write_now(at_end_);
  found_.restore();
}

PromptTerminal::Change PromptTerminal::answer_signals() {
  if (const int number = leave_by; number != 0) {
    leave();
    write_now("\n");  // the shell's prompt gets a line of its own
    release_signals();
    ::raise(number);
    // It was stopped and goes on. In the meantime someone may have set other modes.
    wait_for_foreground();
    found_ = TerminalModes();
    leave_by = 0;
    catch_signals();
    went_on = true;
  }
  if (went_on.exchange(false)) {
    wait_for_foreground();
    got_resized = false;
    write_now(at_begin_);
    return Change::resumed;
  }
  return got_resized.exchange(false) ? Change::resized : Change::none;
}

}  // namespace eddy::app
