// This process, and children by calls that differ between systems.
#include "tensor/system/process.h"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <filesystem>
#include <string>

#include "tensor/files/descriptor.h"

using namespace eddy;

namespace {

struct Program {
  const char* file;
  char* const* arguments;
};

int become(void* what) {
  const Program& program = *static_cast<const Program*>(what);
  return become_program(program.file, program.arguments, own_environment());
}

}  // namespace

TEST_CASE("process: this program's file is there and is not the folder it was started in") {
  const std::filesystem::path file = std::filesystem::canonical(own_program());
  CHECK(std::filesystem::is_regular_file(file));
  CHECK(file.filename().string().starts_with("test_"));
}

TEST_CASE("process: a child becomes a program or says why it does not") {
  std::string name = "sh", flag = "-c", line = "exit 7";
  char* const arguments[] = {name.data(), flag.data(), line.data(), nullptr};
  Program program{"sh", arguments};
  int error = -1;
  const pid_t child = start_child(become, &program, error);
  REQUIRE(child > 0);
  CHECK(error == 0);
  int status = 0;
  CHECK(::waitpid(child, &status, 0) == child);
  CHECK(WEXITSTATUS(status) == 7);
  program.file = "no-such-program";
  CHECK(start_child(become, &program, error) == -1);
  CHECK(error == ENOENT);
}

TEST_CASE("process: a zombie has ended and this process has not") {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(0);
  siginfo_t ended{};
  REQUIRE(::waitid(P_PID, static_cast<id_t>(child), &ended, WEXITED | WNOWAIT) == 0);
  CHECK(has_ended(child));
  ::waitpid(child, nullptr, 0);
  CHECK(has_ended(child));
  CHECK_FALSE(has_ended(::getpid()));
}

TEST_CASE("process: a pending signal is taken and none is waited for") {
  sigset_t blocked, before;
  sigemptyset(&blocked);
  sigaddset(&blocked, SIGXFSZ);
  pthread_sigmask(SIG_BLOCK, &blocked, &before);
  take_pending_signal(blocked);
  ::raise(SIGXFSZ);
  take_pending_signal(blocked);
  sigset_t pending;
  sigemptyset(&pending);
  sigpending(&pending);
  CHECK(sigismember(&pending, SIGXFSZ) == 0);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

TEST_CASE("process: both ends of a pipe close when a program begins") {
  std::array<int, 2> ends{-1, -1};
  REQUIRE(open_pipe(ends) == 0);
  const Descriptor read(ends[0]), write(ends[1]);
  for (const int end : ends) CHECK((::fcntl(end, F_GETFD) & FD_CLOEXEC) != 0);
}
