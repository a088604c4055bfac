// Runs the program `eddy` as its users do: a process of its own, no shell, a time limit, and what it wrote.
#pragma once

#include <doctest/doctest.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <csignal>
#include <cstring>
#include <iterator>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "tensor/system/process.h"

namespace eddy::test {

inline const std::string kProgram = EDDY_BINARY_DIR "/eddy";

// Whether the program was built; says so when it was not.
inline bool has_program() {
  if (::access(kProgram.c_str(), X_OK) == 0) return true;
  MESSAGE("skipped: there is no program at " << kProgram << " (build the target eddy_program)");
  return false;
}

// How to start it.
struct Start {
  std::vector<std::string> arguments;
  std::string folder;                      // the working directory, and its home
  std::string input = "/dev/null";         // the file that is its standard input
  std::size_t file_size_limit = 0;         // in bytes; 0: none
  std::vector<std::string> environment{};  // further NAME=value
  std::string output{};                    // a file that takes standard output; empty: it is read here
  std::string name = kProgram;             // what the program is told that it is called
};

struct Ended {
  int status = 0;  // the exit status, or minus the number of the signal that ended it
  std::string out, err;
};

// A running program. It is killed with this object, or with its parent.
class Program {
 public:
  explicit Program(const Start& start) {
    std::vector<std::string> words{start.name}, environment = start.environment;
    words.insert(words.end(), start.arguments.begin(), start.arguments.end());
    environment.insert(environment.end(), {"HOME=" + start.folder, "EDDY_NUM_THREADS=1"});
    // No text of the user's, no download, no chosen kernels.
    for (char** variable = own_environment(); *variable != nullptr; ++variable) {
      const std::string text(*variable);
      if (!text.starts_with("EDDY_") && !text.starts_with("HOME=") && !text.starts_with("XDG_CACHE_HOME="))
        environment.push_back(text);
    }
    const std::vector<char*> argv = pointers(words), envp = pointers(environment);
    std::array<int, 2> out{}, err{};
    REQUIRE(open_pipe(out) == 0);
    REQUIRE(open_pipe(err) == 0);
    const pid_t parent = ::getpid();
    pid_ = ::fork();
    if (pid_ == 0) {  // between fork and exec only calls that need no lock
      if (!end_with_parent(parent)) ::_exit(125);
      const int input = ::open(start.input.c_str(), O_RDONLY);
      const int output = start.output.empty() ? out[1] : ::open(start.output.c_str(), O_WRONLY);
      const rlimit limit{start.file_size_limit, start.file_size_limit};
      if (input < 0 || ::dup2(input, 0) < 0 || output < 0 || ::dup2(output, 1) < 0 || ::dup2(err[1], 2) < 0 ||
          ::chdir(start.folder.c_str()) != 0 ||
          (start.file_size_limit > 0 && ::setrlimit(RLIMIT_FSIZE, &limit) != 0))
        ::_exit(125);
      ::execve(kProgram.c_str(), argv.data(), envp.data());
      ::_exit(126);
    }
    ::close(out[1]);
    ::close(err[1]);
    streams_ = {out[0], err[0]};
    REQUIRE(pid_ > 0);
  }
  ~Program() {
    close_output();
    close_stream(1);
    if (pid_ <= 0) return;
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  void signal(int number) const { ::kill(pid_, number); }
  // Stops reading standard output, as `head` does when it has enough.
  void close_output() { close_stream(0); }

  // Reads until standard output holds `bytes`, or for twenty seconds. Returns whether it does.
  bool read_output(std::size_t bytes) {
    return read_while([&] { return ended_.out.size() < bytes; }) && ended_.out.size() >= bytes;
  }
  const std::string& output() const { return ended_.out; }

  // Waits for the end; fails the test when that takes longer than twenty seconds.
  Ended finish() {
    REQUIRE_MESSAGE(read_while([] { return true; }), "the program did not end; it wrote: ", ended_.out,
                    ended_.err);
    int status = 0;
    REQUIRE(::waitpid(pid_, &status, 0) == pid_);
    pid_ = -1;
    ended_.status = WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
    return ended_;
  }

 private:
  static std::vector<char*> pointers(std::vector<std::string>& words) {
    std::vector<char*> result;
    for (std::string& word : words) result.push_back(word.data());
    result.push_back(nullptr);
    return result;
  }
  void close_stream(std::size_t stream) {
    if (streams_[stream] >= 0) ::close(std::exchange(streams_[stream], -1));
  }

  // Takes what comes while `go_on()` and a stream is open. Returns whether that was within twenty seconds.
  template <class GoOn>
  bool read_while(GoOn&& go_on) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (go_on() && (streams_[0] >= 0 || streams_[1] >= 0)) {
      const auto left =
          std::chrono::duration_cast<std::chrono::milliseconds>(end - std::chrono::steady_clock::now());
      if (left.count() <= 0) return false;
      std::array<pollfd, 2> waiting{pollfd{streams_[0], POLLIN, 0}, pollfd{streams_[1], POLLIN, 0}};
      if (::poll(waiting.data(), waiting.size(), static_cast<int>(left.count())) <= 0) continue;
      for (std::size_t i = 0; i < 2; ++i) {
        if (waiting[i].revents == 0) continue;
        char part[4096];
        const ssize_t got = ::read(streams_[i], part, sizeof part);
        if (got > 0)
          (i == 0 ? ended_.out : ended_.err).append(part, static_cast<std::size_t>(got));
        else
          close_stream(i);
      }
    }
    return true;
  }

  pid_t pid_ = -1;
  std::array<int, 2> streams_{-1, -1};  // standard output and error; -1 when at the end
  Ended ended_;
};

// Flags of a training run of milliseconds: a 16-wide model in a context of 16 tokens.
inline const std::string kTinyModel =
    "--model.dim 16 --model.heads 2 --model.context 16 --train.batch 4 --train.sample_tokens 0 ";

// Runs the program and waits for its end.
inline Ended run_program(const Start& start) {
  return Program(start).finish();
}

// The words of a line, apart at blanks, then `more` as they are.
inline std::vector<std::string> words_of(const std::string& line, const std::vector<std::string>& more = {}) {
  std::istringstream stream(line);
  std::vector<std::string> words{std::istream_iterator<std::string>(stream), {}};
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

}  // namespace eddy::test
