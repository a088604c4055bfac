// `eddy chat` as a script uses it. test_chat_terminal.cpp is as a person does.
#include <doctest/doctest.h>

#include <filesystem>
#include <string>

#include "tests/support/errors.h"
#include "tests/support/files.h"
#include "tests/support/program.h"
#include "tests/train/app/terminal/trained_run.h"

namespace {

using namespace eddy;
using namespace eddy::training;
using namespace eddy::test;

}  // namespace

TEST_CASE("eddy chat: over a pipe each line gets its text, and the same lines the same texts") {
  if (!has_program()) return;
  const Trained& t = trained();
  const Ended first = t.lines("the lamp\nthe\n");
  CHECK_MESSAGE(first.status == 0, first.err);
  CHECK(first.err.empty());
  CHECK(!contains(first.out, "> "));
  CHECK(first.out.size() >= 2 * 13);
  CHECK(t.lines("the lamp\nthe\n").out == first.out);
  CHECK(t.lines("the lamp\nthe").out == first.out);  // a last line without a newline
  CHECK(t.lines("the lamp\n/seed 3\nthe\n").out != first.out);
  CHECK(t.lines("").out.empty());
}

TEST_CASE("eddy chat: over a pipe a byte order mark is dropped and UTF-16 behind one is read") {
  if (!has_program()) return;
  const Trained& t = trained();
  const std::string text = "the lamp\nthe\n";
  std::string wide = "\xff\xfe";
  for (const char c : text) wide += std::string{c, '\0'};
  const Ended plain = t.lines(text);
  for (const std::string& marked : {"\xef\xbb\xbf" + text, wide}) {
    const Ended ended = t.lines(marked);
    CHECK_MESSAGE(ended.err.empty(), ended.err);
    CHECK(ended.out == plain.out);
  }
}

TEST_CASE("eddy chat: over a pipe commands are carried out, and a wrong one is an error at the end") {
  if (!has_program()) return;
  const Trained& t = trained();
  const Ended saved = t.lines("the lamp\n/save s.session\nthe\n/state\n/help\n/quit\nnot read\n");
  CHECK_MESSAGE(saved.status == 0, saved.err);
  for (const char* part : {"saved in s.session: 21 tokens", "tokens seen: 37\n", "/forget", "gates: "})
    CHECK_MESSAGE(contains(saved.out, part), saved.out);
  const Ended loaded = t.lines("the\n", "--tokens 12 --load s.session");
  CHECK_MESSAGE(loaded.status == 0, loaded.err);
  CHECK(contains(saved.out, loaded.out));
  const Ended wrong = t.lines("/sav x\nthe\n");
  CHECK(wrong.status == 1);
  CHECK_MESSAGE(contains(wrong.err, "error: /sav: no such command (nearest: /save"), wrong.err);
  CHECK(wrong.out.size() >= 13);
  CHECK(run_program({words_of("chat nowhere"), t.folder.path()}).status == 1);
  CHECK(run_program({words_of("chat run --load nothing"), t.folder.path()}).status == 1);
}

TEST_CASE("eddy chat: a reader that leaves ends it without an error") {
  if (!has_program()) return;
  const Trained& t = trained();
  Program chat(
      {words_of("chat run --tokens 1000000000"), t.folder.path(), t.folder.write("one.txt", "the\n")});
  REQUIRE(chat.read_output(10));
  chat.close_output();
  CHECK(chat.finish().status == 0);
}

TEST_CASE("eddy chat: behind a reader that left a save is carried out, and a text is an error") {
  if (!has_program()) return;
  const Trained& t = trained();
  const auto left = [&](const std::string& lines) {
    Program chat(
        {words_of("chat run --tokens 1000000000"), t.folder.path(), t.folder.write("left.txt", lines)});
    REQUIRE(chat.read_output(10));
    chat.close_output();
    return chat.finish();
  };
  const Ended saved = left("the\n/save left.session\n");
  CHECK_MESSAGE(saved.status == 0, saved.err);
  CHECK_MESSAGE(contains(saved.err, "saved in left.session: "), saved.err);
  CHECK(t.lines("the\n", "--load left.session --tokens 3").status == 0);
  const Ended more = left("the\nthe lamp\n/save more.session\n");
  CHECK(more.status == 1);
  CHECK_MESSAGE(contains(more.err, "chat: standard output is closed, and line 2 asks for more text"),
                more.err);
  CHECK(!std::filesystem::exists(t.folder.path("more.session")));
}
