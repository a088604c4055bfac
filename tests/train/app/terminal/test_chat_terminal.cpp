// `eddy chat` as a person uses it: keys, Ctrl-C, history. Each step waits for what the one before shows.
#include <doctest/doctest.h>

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
