// `eddy chat` as a person and as a script use it.
#include <doctest/doctest.h>
#include <fcntl.h>
#include <poll.h>
#include <pty.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <string>
#include <vector>

#include "tests/support/errors.h"
#include "tests/support/files.h"
#include "tests/support/program.h"
#include "train/text/stories/stories.h"

namespace {

using namespace eddy;
using namespace eddy::test;

// A small run, trained once.
struct Trained {
  TempFolder folder;
  Trained() {
    folder.write("book.txt", generate_stories(1, 20000));
    const Ended made =
        run_program({words_of("train --run run --data book.txt --model.dim 16 --model.heads 2 "
                              "--model.layers 1 --model.context 32 --train.steps 3 --train.batch 2 "
                              "--train.eval_every 0 --train.sample_tokens 0 --train.threads 1"),
                     folder.path()});
    REQUIRE_MESSAGE(made.status == 0, made.err);
  }
  // What a chat writes that reads these lines from a file.
  Ended lines(const std::string& text, const std::string& flags = "--tokens 12") const {
    const std::string file = folder.write("lines.txt", text);
    return run_program({words_of("chat run " + flags), folder.path(), file});
  }
};
const Trained& trained() {
  static const Trained once;
  return once;
}

// The program on a terminal of its own.
class OnTerminal {
 public:
  explicit OnTerminal(const std::vector<std::string>& arguments, const std::string& folder) {
    std::vector<std::string> words{kProgram};
    words.insert(words.end(), arguments.begin(), arguments.end());
    std::vector<char*> argv;
    for (std::string& word : words) argv.push_back(word.data());
    argv.push_back(nullptr);
    pid_ = ::forkpty(&terminal_, nullptr, nullptr, nullptr);
    if (pid_ == 0) {
      ::setenv("TERM", "xterm", 1);
      ::setenv("LC_ALL", "C.UTF-8", 1);
      ::setenv("EDDY_NUM_THREADS", "1", 1);
      if (::chdir(folder.c_str()) == 0) ::execv(kProgram.c_str(), argv.data());
      ::_exit(126);
    }
    REQUIRE(pid_ > 0);
  }
  ~OnTerminal() {
    ::close(terminal_);
    if (pid_ <= 0) return;
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  OnTerminal(const OnTerminal&) = delete;
  OnTerminal& operator=(const OnTerminal&) = delete;

  void type(const std::string& keys) const { REQUIRE(::write(terminal_, keys.data(), keys.size()) > 0); }
  // Reads until `part` has come since the last call, or for twenty seconds. Returns whether it has.
  bool see(const std::string& part) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (std::chrono::steady_clock::now() < end) {
      if (const std::size_t at = unseen_.find(part); at != std::string::npos) {
        unseen_.erase(0, at + part.size());
        return true;
      }
      pollfd waiting{terminal_, POLLIN, 0};
      char bytes[4096];
      if (::poll(&waiting, 1, 200) <= 0) continue;
      const ssize_t got = ::read(terminal_, bytes, sizeof bytes);
      if (got <= 0) return unseen_.find(part) != std::string::npos;
      unseen_.append(bytes, static_cast<std::size_t>(got));
    }
    return false;
  }
  const std::string& unseen() const { return unseen_; }
  // The exit status.
  int finish() {
    see("(never written)");
    int status = 0;
    REQUIRE(::waitpid(pid_, &status, 0) == pid_);
    pid_ = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  }

 private:
  int terminal_ = -1;
  pid_t pid_ = -1;
  std::string unseen_;
};

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

TEST_CASE("eddy chat: a reader that leaves ends it without an error") {
  if (!has_program()) return;
  const Trained& t = trained();
  Program chat(
      {words_of("chat run --tokens 1000000000"), t.folder.path(), t.folder.write("one.txt", "the\n")});
  REQUIRE(chat.read_output(10));
  chat.close_output();
  CHECK(chat.finish().status == 0);
}
