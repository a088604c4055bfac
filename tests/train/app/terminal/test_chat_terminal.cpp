// `eddy chat` as a person uses it: keys, Ctrl-C, history. Each step waits for what the one before shows.
#include <doctest/doctest.h>
#include <signal.h>

#include <string>
#include <utility>

#include "tests/support/errors.h"
#include "tests/support/terminal.h"
#include "tests/train/app/terminal/trained_run.h"

using namespace eddy;
using namespace eddy::training;
using namespace eddy::test;

TEST_CASE("eddy chat: on a terminal Ctrl-C stops the text and not the program, and lines have a history") {
  if (!has_program()) return;
  const Trained& t = trained();
  OnTerminal chat(words_of("chat run --tokens 1000000000"), t.folder.path());
  REQUIRE(chat.see("Ctrl-D ends."));
  const bool edits = !contains(chat.unseen(), "no libedit");
  REQUIRE(chat.see("> "));
  chat.type("the lamp\r");
  CHECK(chat.see("lamp"));
  chat.type("\x03");
  CHECK(chat.see("> "));
  chat.type("unfinished\x03");  // at the prompt it drops the line
  CHECK(chat.see("> "));
  chat.type("/tokens 5\r");
  CHECK(chat.see("> "));
  if (edits) {
    chat.type("/stats\x1b[D\x1b[3~e\r");  // back by one, which is deleted, and corrected
    CHECK(chat.see("tokens seen: "));
    CHECK(chat.see("5 tokens after a line"));
    CHECK(chat.see("> "));
    chat.type("\x1b[A\r");  // the line before
    CHECK(chat.see("5 tokens after a line"));
  } else {
    MESSAGE("keys are not tried: this build has no libedit");
    chat.type("/state\r");
    CHECK(chat.see("5 tokens after a line"));
  }
  CHECK(chat.see("> "));
  chat.type("\x04");
  CHECK(chat.finish() == 0);
}

namespace {

// A chat that waits at its prompt.
struct AtPrompt : OnTerminal {
  const std::pair<tcflag_t, tcflag_t> found = modes();
  bool edits = false;
  AtPrompt() : OnTerminal(words_of("chat run --tokens 5"), trained().folder.path()) {
    REQUIRE(see("Ctrl-D ends."));
    edits = !contains(unseen(), "no libedit");
    REQUIRE(see("> "));
  }
};

}  // namespace

TEST_CASE("eddy chat: a text that is pasted into a terminal is one turn, and no command in it is obeyed") {
  if (!has_program()) return;
  AtPrompt chat;
  const std::string pasted = "the lamp\r/quit\rthe lamp";
  if (chat.edits) {
    chat.type("\x1b[200~" + pasted + "\x1b[201~");  // as a terminal marks it that was asked to
    CHECK(chat.see("/quit"));
    chat.type("\r");
    CHECK(chat.see("> "));
    chat.type("\x1b[200~/quit\x1b[201~");
    CHECK(chat.see("/quit"));
    chat.type("\r");
    CHECK(chat.see("> "));
    chat.type("/forget\r");
    CHECK(chat.see("a new text"));
    CHECK(chat.see("> "));
  }
  chat.type(pasted + "\r");
  CHECK(chat.see("/quit"));
  CHECK(chat.see("> "));
  chat.type("/state\r");
  CHECK(chat.see(
      "tokens seen: 29\r\n"));  // 23 letters and line ends of the text, its end, and an answer of five
  CHECK(chat.see("> "));
  chat.type("\x04");
  CHECK(chat.finish() == 0);
}

TEST_CASE("eddy chat: keys that libedit does not know move or do nothing, and put nothing into the line") {
  if (!has_program()) return;
  AtPrompt chat;
  if (!chat.edits) {
    MESSAGE("skipped: this build has no libedit");
    return;
  }
  // Home, a page up, F5, Ctrl and right, End
  chat.type("/nonsens\x1b[1~\x1b[5~\x1b[15~\x1b[1;5C\x1b[4~e\r");
  CHECK(chat.see("/nonsense: no such command"));
  CHECK(chat.see("> "));
  chat.type("\x04");
  CHECK(chat.finish() == 0);
}

TEST_CASE("eddy chat: signals at the prompt leave the terminal as it was found") {
  if (!has_program()) return;
  for (const int number : {SIGTERM, SIGHUP, SIGQUIT}) {
    CAPTURE(number);
    AtPrompt chat;
    chat.type("the la");
    CHECK(chat.see("the la"));
    if (chat.edits) CHECK(chat.modes() != chat.found);
    chat.signal(number);
    if (chat.edits) CHECK(chat.see("\x1b[?2004l"));
    CHECK(chat.finish() == -number);
    CHECK(chat.modes() == chat.found);
  }
}

TEST_CASE(
    "eddy chat: prompt and line are drawn again when it goes on and when the window has another width") {
  if (!has_program()) return;
  AtPrompt chat;
  if (!chat.edits) {
    MESSAGE("skipped: this build has no libedit");
    return;
  }
  const std::string typed(60, 'e');
  chat.type(typed);
  CHECK(chat.see(typed));
  chat.set_columns(30);
  CHECK(chat.see("\x1b[2A"));  // 62 columns are three rows of 30
  CHECK(chat.see("> e"));
  chat.set_columns(65535);
  CHECK(chat.see("> " + typed));
  // No shell waits for it, so it does not stop, but goes on at once.
  chat.signal(SIGTSTP);
  CHECK(chat.see("\x1b[?2004l"));
  CHECK(chat.see("> " + typed));
  chat.type("\r");
  CHECK(chat.see("> "));
  chat.type("\x04");
  CHECK(chat.finish() == 0);
  CHECK(chat.modes() == chat.found);
}
