// By fork and exec, in a process group of its own.
#include "examples/learn/checker/limited_program.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>

#include "tensor/base/error.h"
#include "tensor/base/format.h"

namespace eddy::app {
namespace {

using Clock = std::chrono::steady_clock;
constexpr int kNotFound = 127;  // the exit status of a child that could not become the program

// Becomes the program. Between fork and exec only calls that need no lock.
[[noreturn]] void become(char* const* arguments, int output, const Limits& limits) {
  ::setpgid(0, 0);
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  const rlimit no_core{0, 0};
  ::setrlimit(RLIMIT_CORE, &no_core);
  if (limits.memory_bytes > 0) {
    const auto bytes = static_cast<rlim_t>(limits.memory_bytes);
    const rlimit memory{bytes, bytes};
    ::setrlimit(RLIMIT_AS, &memory);
  }
  for (const int number : {SIGPIPE, SIGXFSZ}) std::signal(number, SIG_DFL);  // which this program ignores
  const int input = ::open("/dev/null", O_RDONLY);
  if (input >= 0 && ::dup2(input, STDIN_FILENO) >= 0 && ::dup2(output, STDOUT_FILENO) >= 0 &&
      ::dup2(output, STDERR_FILENO) >= 0)
    ::execvp(arguments[0], arguments);
  ::_exit(kNotFound);
}

// Waits for `child`. Returns whether it ended before `deadline`.
bool wait_until(pid_t child, Clock::time_point deadline, int& status) {
  for (;;) {
    const pid_t ended = ::waitpid(child, &status, WNOHANG);
    if (ended == child || (ended < 0 && errno != EINTR)) return true;
    if (Clock::now() >= deadline) return false;
    ::poll(nullptr, 0, 5);
  }
}

}  // namespace

LimitedEnd run_limited(const std::vector<std::string>& words, const Limits& limits) {
  std::vector<std::string> held = words;
  std::vector<char*> arguments;
  for (std::string& word : held) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  std::array<int, 2> pipe{};
  if (::pipe2(pipe.data(), O_CLOEXEC) != 0)
    fail<IoError>("{}: no pipe for what it prints: {}", words.front(), std::strerror(errno));
  const auto deadline = Clock::now() + std::chrono::duration_cast<Clock::duration>(
                                           std::chrono::duration<double>(limits.seconds));
  const pid_t child = ::fork();
  if (child == 0) become(arguments.data(), pipe[1], limits);
  const int error = errno;
  ::close(pipe[1]);
  if (child < 0) {
    ::close(pipe[0]);
    fail<IoError>("{}: could not be started: {}", words.front(), std::strerror(error));
  }

  LimitedEnd end;
  std::array<char, 4096> part{};
  for (bool open = true; open && !end.timed_out;) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now());
    pollfd waiting{pipe[0], POLLIN, 0};
    const int ready = left.count() <= 0 ? 0 : ::poll(&waiting, 1, static_cast<int>(left.count()));
    if (ready < 0 && errno == EINTR) continue;
    end.timed_out = ready <= 0;
    if (end.timed_out) break;
    const ssize_t got = ::read(pipe[0], part.data(), part.size());
    open = got > 0;
    const std::size_t room = limits.output_bytes - end.output.size();
    if (got > 0) end.output.append(part.data(), std::min(room, static_cast<std::size_t>(got)));
  }
  ::close(pipe[0]);
  int status = 0;
  end.timed_out = end.timed_out || !wait_until(child, deadline, status);
  if (end.timed_out) {
    ::kill(-child, SIGKILL);
    ::kill(child, SIGKILL);  // should it have no group yet
    while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
    }
    return end;
  }
  if (WIFEXITED(status)) end.status = WEXITSTATUS(status);
  if (WIFSIGNALED(status)) end.signal = WTERMSIG(status);
  end.found = end.status != kNotFound;
  return end;
}

}  // namespace eddy::app
