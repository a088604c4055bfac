// /proc, the loader's list, and calls of Linux alone.
#include "tensor/system/process.h"

#include <fcntl.h>
#include <link.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <ctime>
#include <fstream>

extern char** environ;

namespace eddy {

std::string own_program() {
  return "/proc/self/exe";
}

char** own_environment() {
  return environ;
}

std::vector<std::string> loaded_libraries() {
  std::vector<std::string> paths;
  const auto add = [](dl_phdr_info* loaded, std::size_t, void* all) {
    // Without a path: the program itself, and the kernel's part.
    if (loaded->dlpi_name[0] == '/')
      static_cast<std::vector<std::string>*>(all)->push_back(loaded->dlpi_name);
    return 0;
  };
  ::dl_iterate_phdr(add, &paths);
  return paths;
}

bool has_ended(pid_t process) {
  if (::kill(process, 0) != 0) return errno == ESRCH;
  std::ifstream file("/proc/" + std::to_string(process) + "/stat");
  std::string text;
  std::getline(file, text, '\0');
  const auto state = text.rfind(") ");  // behind the name, which may hold anything
  return state != std::string::npos && state + 2 < text.size() && text[state + 2] == 'Z';
}

void take_pending_signal(const sigset_t& signal) {
  const timespec now{0, 0};
  while (::sigtimedwait(&signal, nullptr, &now) < 0 && errno == EINTR) {
  }
}

int open_pipe(std::array<int, 2>& ends) {
  return ::pipe2(ends.data(), O_CLOEXEC);
}

// By vfork, which copies nothing of this process, however large it is: until it becomes another program the child runs
// in the memory of this one. So the error comes back, and no variable of the caller lives across vfork.
[[gnu::noinline]] pid_t start_child(int (*become)(void* what), void* what, int& error) {
  volatile int& told = error;
  told = 0;
  const pid_t child = ::vfork();
  if (child == 0) {
    told = become(what);
    ::_exit(127);
  }
  if (child < 0) {
    told = errno;
    return -1;
  }
  if (told == 0) return child;
  while (::waitpid(child, nullptr, 0) < 0 && errno == EINTR) {
  }
  return -1;
}

int become_program(const char* file, char* const* arguments, char* const* environment) {
  ::execvpe(file, arguments, environment);
  return errno;
}

bool hangup_was_ignored = false;

bool end_with_parent(pid_t parent) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  return ::getppid() == parent;
}

}  // namespace eddy
