// POSIX alone, and what macOS tells of processes and libraries.
#include "tensor/system/process.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#if defined(__APPLE__)
#include <crt_externs.h>
#include <mach-o/dyld.h>
#include <sys/sysctl.h>
#endif

#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <mutex>
#include <sstream>
#include <system_error>

#if !defined(__APPLE__)
extern char** environ;
#endif

namespace eddy {
namespace {

// The file that the loader made this program of, found by the name by which it was called: a shell looks it up
// likewise. A link is followed, since what belongs to the program lies beside the file.
std::string find_own_program() {
  namespace fs = std::filesystem;
  Dl_info about{};
  if (::dladdr(reinterpret_cast<const void*>(&own_program), &about) == 0 || about.dli_fname == nullptr)
    return "";
  const std::string name = about.dli_fname;
  std::error_code error;
  if (name.find('/') != std::string::npos)
    return fs::weakly_canonical(fs::absolute(name, error), error).string();
  const char* const path = std::getenv("PATH");
  std::istringstream folders(path != nullptr ? path : "");
  for (std::string folder; std::getline(folders, folder, ':');) {
    const fs::path file = fs::absolute(folder.empty() ? "." : folder, error) / name;
    if (fs::is_regular_file(file, error) && ::access(file.c_str(), X_OK) == 0)
      return fs::weakly_canonical(file, error).string();
  }
  return "";
}

// Looked up before main, in whose time the folder that a name begins in may be another. Kept to the end; null without
// memory for it.
const std::string* const found_program = []() -> const std::string* {
  try {
    return new std::string(find_own_program());
  } catch (...) {
    return nullptr;
  }
}();

// Held while a pipe is made and while a child starts: a child of another thread would inherit a pipe that is not yet
// closed to programs, and keep it open.
std::mutex starting;

}  // namespace

std::string own_program() {
  return found_program == nullptr ? "" : *found_program;
}

char** own_environment() {
#if defined(__APPLE__)
  return *_NSGetEnviron();
#else
  return environ;
#endif
}

std::vector<std::string> loaded_libraries() {
  std::vector<std::string> paths;
#if defined(__APPLE__)
  for (std::uint32_t i = 1; i < _dyld_image_count(); ++i)  // the first is the program
    if (const char* const path = _dyld_get_image_name(i); path != nullptr) paths.emplace_back(path);
#endif
  return paths;
}

bool has_ended(pid_t process) {
  if (::kill(process, 0) != 0) return errno == ESRCH;
#if defined(__APPLE__)
  int about[] = {CTL_KERN, KERN_PROC, KERN_PROC_PID, process};
  kinfo_proc found{};
  std::size_t bytes = sizeof found;
  return ::sysctl(about, 4, &found, &bytes, nullptr, 0) == 0 && bytes > 0 && found.kp_proc.p_stat == SZOMB;
#else
  // Of other zombies than its own children a process does not hear.
  siginfo_t ended{};
  return ::waitid(P_PID, static_cast<id_t>(process), &ended, WEXITED | WNOHANG | WNOWAIT) == 0 &&
         ended.si_pid == process;
#endif
}

// One thread at a time: a signal to the process waits for all of them, and only one gets it.
void take_pending_signal(const sigset_t& signal) {
  static std::mutex mutex;
  const std::lock_guard<std::mutex> lock(mutex);
  sigset_t pending;
  sigemptyset(&pending);
  ::sigpending(&pending);
  for (int number = 1; number < 32; ++number)
    if (sigismember(&pending, number) == 1 && sigismember(&signal, number) == 1) {
      int taken = 0;
      ::sigwait(&signal, &taken);
      return;
    }
}

int open_pipe(std::array<int, 2>& ends) {
  const std::lock_guard<std::mutex> lock(starting);
  if (::pipe(ends.data()) != 0) return -1;
  for (const int end : ends) ::fcntl(end, F_SETFD, FD_CLOEXEC);
  return 0;
}

// By fork. The error comes through a pipe, which a program that begins closes.
pid_t start_child(int (*become)(void* what), void* what, int& error) {
  std::array<int, 2> ends{-1, -1};
  error = 0;
  if (open_pipe(ends) != 0) {
    error = errno;
    return -1;
  }
  std::unique_lock<std::mutex> lock(starting);
  const pid_t child = ::fork();
  if (child == 0) {
    const int told = become(what);
    ::_exit(::write(ends[1], &told, sizeof told) == static_cast<ssize_t>(sizeof told) ? 127 : 126);
  }
  if (child < 0) error = errno;
  lock.unlock();
  ::close(ends[1]);
  int told = 0;
  ssize_t got = 0;
  while (child > 0 && (got = ::read(ends[0], &told, sizeof told)) < 0 && errno == EINTR) {
  }
  ::close(ends[0]);
  if (got == static_cast<ssize_t>(sizeof told)) error = told;
  if (error == 0) return child;
  while (child > 0 && ::waitpid(child, nullptr, 0) < 0 && errno == EINTR) {
  }
  return -1;
}

int become_program(const char* file, char* const* arguments, char* const* environment) {
  char** const variables = const_cast<char**>(environment);
#if defined(__APPLE__)
  *_NSGetEnviron() = variables;
#else
  environ = variables;
#endif
  ::execvp(file, arguments);
  return errno;
}

bool hangup_was_ignored = false;

bool end_with_parent(pid_t parent) {
  return ::getppid() == parent;
}

}  // namespace eddy
