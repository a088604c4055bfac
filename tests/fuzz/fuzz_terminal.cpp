// Random keys and pasted texts, cut at random places: the line reader ends with a line, the end of the input or an
// eddy::Error, and what it takes for a line does not depend on where the bytes were cut. Fixed seed, so a failure
// repeats.
#include <doctest/doctest.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <optional>
#include <string>

#include "tests/fuzz/mutations.h"
#include "tests/support/pseudo_terminal.h"
#include "train/app/terminal/interrupt.h"
#include "train/app/terminal/key_decoder.h"
#include "train/app/terminal/line_input.h"

using namespace eddy;
using namespace eddy::app;
using namespace eddy::test;

namespace {

const std::string kKeys =
    "the lamp\r\x1b[200~/quit\nthe river\r\n\x1b[201~\r\x1b[A\x01\x05\r/state\rone\rtwo\r\x12la\r\xc3\xa9\xe2\x82\xac\r";

std::string mutate_keys(Random& random) {
  static const std::array<std::string, 20> kPieces = {"\x1b[200~",
                                                      "\x1b[201~",
                                                      "\x1b[20",
                                                      "\x1b",
                                                      "\r",
                                                      "\n",
                                                      "\r\n",
                                                      "\t",
                                                      "/quit\r",
                                                      "\x01",
                                                      "\x12",
                                                      "\x16",
                                                      "\x1b[A",
                                                      "\x1b[B",
                                                      "\x7f",
                                                      "\xc2\x9f",
                                                      "\xff",
                                                      "\xe2\x82",
                                                      std::string(1, '\0'),
                                                      std::string(300, 'w')};
  return mutate_text(kKeys, random, kPieces, {12, 8, 40});
}

// The lines that a reader without an editor makes of the bytes: text up to a typed line end.
std::string lines_of(const std::string& bytes, Random* cuts) {
  KeyDecoder keys;
  std::string text;
  const auto take = [&](bool quiet) {
    while (const std::optional<KeyDecoder::Piece> piece = keys.next(quiet)) {
      for (const char byte : piece->text)
        text += byte == '\n' && piece->pasted ? std::string("\\n") : std::string(1, byte);
    }
  };
  for (std::size_t at = 0; at < bytes.size();) {
    const std::size_t length = cuts == nullptr ? bytes.size() : 1 + below(*cuts, 9);
    keys.add(std::string_view(bytes).substr(at, length));
    at += length;
    take(false);
  }
  take(true);
  return text;
}

// In a process of its own, with a terminal as its standard streams: reads lines until the end of the input.
[[noreturn]] void read_lines() {
  ::setenv("TERM", "xterm", 1);
  int status = 0;
  try {
    const InterruptFlag interrupts;
    LineInput input(true, "> ");
    while (input.next().end != LineInput::End::end_of_input) {
    }
  } catch (const Error&) {
    status = 1;
  }
  ::_exit(status);
}

// Takes what the terminal shows until nothing comes for some milliseconds. Returns whether the program has it open.
bool drain(int terminal, int ms) {
  std::array<char, 4096> shown{};
  for (pollfd waiting{terminal, POLLIN, 0}; ::poll(&waiting, 1, ms) > 0;)
    if (::read(terminal, shown.data(), shown.size()) <= 0) return false;
  return true;
}

}  // namespace

TEST_CASE("keys are told from pasted texts in the same way wherever they are cut") {
  Random random(20261129);
  for (int i = 0; i < 2000; ++i) {
    const std::string bytes = mutate_keys(random);
    CAPTURE(i);
    const std::string whole = lines_of(bytes, nullptr);
    CHECK(lines_of(bytes, &random) == whole);
  }
}

TEST_CASE("no keys and no pasted text crash the line reader on a terminal") {
  Random random(20261130);
  for (int i = 0; i < 4; ++i) {
    CAPTURE(i);
    int terminal = -1;
    winsize size{24, static_cast<unsigned short>(1 + below(random, 100)), 0, 0};
    const pid_t process = ::forkpty(&terminal, nullptr, nullptr, &size);
    if (process == 0) read_lines();
    REQUIRE(process > 0);
    drain(terminal, 100);
    for (int round = 0; round < 6; ++round) {
      const std::string bytes = mutate_keys(random);
      for (std::size_t at = 0; at < bytes.size();) {
        const std::string part = bytes.substr(at, 1 + below(random, 200));
        at += part.size();
        REQUIRE(::write(terminal, part.data(), part.size()) == static_cast<ssize_t>(part.size()));
        drain(terminal, static_cast<int>(below(random, 3)));
      }
    }
    // Ctrl-C ends what is open, and Ctrl-D the input.
    bool is_open = true;
    for (int tries = 0; tries < 50 && is_open; ++tries) {
      is_open = drain(terminal, 40);
      if (is_open) static_cast<void>(::write(terminal, tries % 2 == 0 ? "\x03" : "\x04", 1) == 1);
    }
    CHECK(!is_open);
    if (is_open) ::kill(process, SIGKILL);
    int status = 0;
    REQUIRE(::waitpid(process, &status, 0) == process);
    ::close(terminal);
    CHECK(WIFEXITED(status));
  }
}
