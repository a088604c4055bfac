// What a command prints while its reader is slow.
#include "train/app/terminal/output.h"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>

#include "tensor/base/error.h"
#include "train/app/terminal/interrupt.h"

using namespace eddy;

namespace {

// In a process of its own: standard output is a full pipe, Ctrl-C comes while a line waits for it, and then the reader
// reads. Returns the exit status: 0 where the next text is written, 1 where it fails.
int print_to_slow_reader() {
  int ends[2];
  if (::pipe(ends) != 0 || ::dup2(ends[1], STDOUT_FILENO) < 0) return 2;
  std::setvbuf(stdout, nullptr, _IOLBF, 4096);  // as on a terminal: a line is flushed where it ends
  const char bytes[4096] = {};
  ::fcntl(STDOUT_FILENO, F_SETFL, O_NONBLOCK);
  while (::write(STDOUT_FILENO, bytes, sizeof bytes) > 0) continue;
  ::fcntl(STDOUT_FILENO, F_SETFL, 0);

  const app::InterruptFlag interrupts;
  struct sigaction alarm {};
  alarm.sa_handler = [](int) { std::raise(SIGINT); };  // without SA_RESTART, as Ctrl-C: the write ends
  ::sigaction(SIGALRM, &alarm, nullptr);
  const itimerval soon{{0, 10'000},
                       {0, 10'000}};  // again and again, since the first may come before the write
  ::setitimer(ITIMER_REAL, &soon, nullptr);
  app::print("a line that waits\n");
  const itimerval never{};
  ::setitimer(ITIMER_REAL, &never, nullptr);
  if (!app::take_interrupt()) return 3;

  char read_bytes[1 << 16];
  if (::read(ends[0], read_bytes, sizeof read_bytes) <= 0) return 4;
  try {
    app::print_now("the next line\n");
  } catch (const Error&) {
    return 1;
  }
  return 0;
}

}  // namespace

TEST_CASE("output: Ctrl-C while a line waits for a slow reader does not fail what is printed next") {
  std::fflush(stdout);
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) ::_exit(print_to_slow_reader());
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  REQUIRE(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 0);
}
