// By posix_spawn.
#include "train/fetch/program.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "tensor/base/format.h"

extern char** environ;

namespace eddy::training {

ProgramEnd run_program_quietly(const std::vector<std::string>& words, bool quiet) {
  std::vector<std::string> held = words;
  std::vector<char*> arguments;
  for (std::string& word : held) arguments.push_back(word.data());
  arguments.push_back(nullptr);

  ProgramEnd end;
  posix_spawn_file_actions_t actions;
  if (posix_spawn_file_actions_init(&actions) != 0) {
    end.problem = fmt::format("no memory to start {}", words.front());
    return end;
  }
  int error = 0;
  for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO})
    if (error == 0 && (stream != STDERR_FILENO || quiet))
      error = posix_spawn_file_actions_addopen(&actions, stream, "/dev/null", O_RDWR, 0);
  pid_t child = 0;
  if (error == 0) error = posix_spawnp(&child, arguments[0], &actions, nullptr, arguments.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  constexpr int kNotFound = 127;  // of a child that could not be replaced by the program
  if (error != 0) {
    end.found = error != ENOENT;
    end.problem = end.found ? fmt::format("{} could not be started: {}", words.front(), std::strerror(error))
                            : fmt::format("{} is not installed", words.front());
    return end;
  }
  int status = 0;
  while (waitpid(child, &status, 0) < 0)
    if (errno != EINTR) {
      end.problem = fmt::format("{} was lost: {}", words.front(), std::strerror(errno));
      return end;
    }
  if (!WIFEXITED(status)) {
    end.problem = fmt::format("{} was stopped by a signal", words.front());
    return end;
  }
  end.status = WEXITSTATUS(status);
  end.found = end.status != kNotFound;
  if (!end.found) end.problem = fmt::format("{} is not installed", words.front());
  return end;
}

}  // namespace eddy::training
