// Until it becomes the program a child makes only calls that need no lock: it may run in the memory of this process.
#include "train/process/running_program.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>

#include "tensor/base/format.h"
#include "tensor/system/process.h"

namespace eddy::training {
namespace {

constexpr int kStatusNotFound = 127;

double now_in_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

std::vector<char*> pointers_to(std::vector<std::string>& words) {
  std::vector<char*> result;
  for (std::string& word : words) result.push_back(word.data());
  result.push_back(nullptr);
  return result;
}

// What the child needs, made before it is there.
struct Becoming {
  const ProgramStart& start;
  const char* file;
  char* const* arguments;
  char* const* environment;
  int pipe;  // for streams that are read
  pid_t parent;
};

// Makes one of the standard streams lead to where it shall. Returns whether it does.
bool redirect(int stream, int target, int pipe) {
  if (target == kShared) return true;
  int from = target;
  if (target == kRead) from = pipe;
  if (target == kNowhere) from = ::open("/dev/null", O_RDWR | O_CLOEXEC);
  if (from == stream) return ::fcntl(from, F_SETFD, 0) == 0;
  return from >= 0 && ::dup2(from, stream) >= 0;
}

// Becomes the program, in the child; or returns the error.
int become(void* what) {
  const Becoming& how = *static_cast<const Becoming*>(what);
  const ProgramStart& start = how.start;
  if (start.own_group) ::setpgid(0, 0);
  if (start.is_trial) {
    const rlimit no_core{0, 0};
    ::setrlimit(RLIMIT_CORE, &no_core);
    if (!end_with_parent(how.parent)) ::_exit(kStatusNotFound);
  }
  if (start.memory_bytes > 0) {
    const auto bytes = static_cast<rlim_t>(start.memory_bytes);
    const rlimit memory{bytes, bytes};
    ::setrlimit(RLIMIT_AS, &memory);
  }
  for (const int number : {SIGPIPE, SIGXFSZ}) std::signal(number, SIG_DFL);  // which `eddy` ignores
  if (!redirect(STDIN_FILENO, start.input, how.pipe) || !redirect(STDOUT_FILENO, start.output, how.pipe) ||
      !redirect(STDERR_FILENO, start.errors, how.pipe))
    return errno;
  return become_program(how.file, how.arguments, how.environment);
}

}  // namespace

bool ProgramEnd::found() const {
  return error != ENOENT && status != kStatusNotFound;
}

std::string ProgramEnd::why(std::string_view name) const {
  if (!found()) return fmt::format("{} is not installed", name);
  if (error == ECHILD) return fmt::format("{} was lost", name);
  if (error != 0) return fmt::format("{} could not be started: {}", name, std::strerror(error));
  if (killed) return fmt::format("{} did not end and was killed", name);
  if (signal != 0) return fmt::format("{} was ended by signal {} ({})", name, signal, ::strsignal(signal));
  return status == 0 ? "" : fmt::format("{} ended with status {}", name, status);
}

RunningProgram::RunningProgram(const ProgramStart& start) : own_group_(start.own_group) {
  Descriptor theirs;
  if (start.output == kRead || start.errors == kRead) {
    std::array<int, 2> ends{-1, -1};
    if (open_pipe(ends) != 0) {
      end_.error = errno;
      return;
    }
    from_.reset(ends[0]);
    theirs.reset(ends[1]);
  }
  std::vector<std::string> words = start.words, variables = start.environment;
  const std::vector<char*> arguments = pointers_to(words), environment = pointers_to(variables);
  const std::string& file = start.file.empty() ? start.words.front() : start.file;
  Becoming how{start,
               file.c_str(),
               arguments.data(),
               variables.empty() ? own_environment() : environment.data(),
               theirs.get(),
               ::getpid()};
  process_ = start_child(become, &how, end_.error);
}

RunningProgram::~RunningProgram() {
  kill();
}

std::optional<std::string> RunningProgram::read(double seconds) {
  constexpr double kLongest = 1e6;  // that poll takes
  const double end = now_in_seconds() + seconds;
  while (from_.get() >= 0) {
    const double left = std::min(end - now_in_seconds(), kLongest);
    pollfd waiting{from_.get(), POLLIN, 0};
    const int ready = left <= 0 ? 0 : ::poll(&waiting, 1, static_cast<int>(left * 1e3) + 1);
    if (ready == 0 && left < kLongest) return {};
    if (ready <= 0) continue;
    std::array<char, 4096> part{};
    const ssize_t got = ::read(from_.get(), part.data(), part.size());
    if (got > 0) return std::string(part.data(), static_cast<std::size_t>(got));
    if (got == 0 || errno != EINTR) from_.reset();
  }
  return "";
}

bool RunningProgram::wait(double seconds) {
  constexpr double kForever = 1e9;
  const double end = now_in_seconds() + seconds;
  while (process_ > 0) {
    int status = 0;
    const pid_t got = ::waitpid(process_, &status, seconds < kForever ? WNOHANG : 0);
    if (got < 0 && errno == EINTR) continue;
    if (got == 0) {
      if (now_in_seconds() >= end) return false;
      ::poll(nullptr, 0, 2);
      continue;
    }
    if (got < 0)
      end_.error = errno;
    else if (WIFSIGNALED(status))
      end_.signal = WTERMSIG(status);
    else
      end_.status = WEXITSTATUS(status);
    process_ = -1;
  }
  return true;
}

void RunningProgram::ask_to_stop() {
  if (process_ > 0) ::kill(own_group_ ? -process_ : process_, SIGTERM);
}

void RunningProgram::kill() {
  if (process_ <= 0) return;
  end_.killed = true;
  ::kill(own_group_ ? -process_ : process_, SIGKILL);
  if (!wait(10)) process_ = -1;
}

ProgramEnd run_to_end(const ProgramStart& start, double seconds, std::size_t output_bytes) {
  const double end = now_in_seconds() + seconds;
  RunningProgram program(start);
  std::string output, last;
  for (std::optional<std::string> part; (part = program.read(end - now_in_seconds())) && !part->empty();) {
    const std::size_t fits = std::min(part->size(), output_bytes - output.size());
    output.append(*part, 0, fits);
    last.append(*part, fits);
    if (last.size() > 2 * output_bytes) last.erase(0, last.size() - output_bytes);
  }
  if (last.size() > output_bytes) last.erase(0, last.size() - output_bytes);
  if (!program.wait(end - now_in_seconds())) program.kill();
  ProgramEnd ended = program.end();
  ended.output = std::move(output);
  ended.last = std::move(last);
  return ended;
}

}  // namespace eddy::training
