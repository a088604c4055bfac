// Processes of a test: what a command prints, a child that may be killed, and silence on standard output.
#pragma once

#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <iostream>
#include <string>
#include <thread>

#include "tensor/system/process.h"

namespace eddy::test {

// What a shell command prints on standard output; "" when it fails.
inline std::string output_of(const std::string& command) {
  std::FILE* pipe = ::popen((command + " 2>/dev/null").c_str(), "r");
  if (pipe == nullptr) return "";
  std::string text;
  std::array<char, 4096> part{};
  for (std::size_t n = 0; (n = std::fread(part.data(), 1, part.size(), pipe)) > 0;)
    text.append(part.data(), n);
  return ::pclose(pipe) == 0 ? text : "";
}

// Runs `work`, which should end its process, in a child. Returns what it prints on standard error, or "ended
// well" when it ends like any function.
template <class Work>
std::string report_of(Work&& work) {
  std::array<int, 2> ends{};
  REQUIRE(::pipe(ends.data()) == 0);
  const pid_t child = ::fork();
  if (child == 0) {
    ::dup2(ends[1], STDERR_FILENO);
    for (const int fault : {SIGABRT, SIGSEGV, SIGBUS})
      ::signal(fault, SIG_DFL);  // doctest's report is the parent's
    work();
    ::_exit(0);
  }
  ::close(ends[1]);
  std::string text;
  std::array<char, 256> part{};
  for (ssize_t n = 0; (n = ::read(ends[0], part.data(), part.size())) > 0;)
    text.append(part.data(), static_cast<std::size_t>(n));
  ::close(ends[0]);
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) && WEXITSTATUS(status) == 0 ? "ended well" : text;
}

// While alive, standard output goes nowhere.
class Quiet {
 public:
  Quiet() : saved_(::dup(1)) {
    flush();
    const int nowhere = ::open("/dev/null", O_WRONLY | O_CLOEXEC);
    ::dup2(nowhere, 1);
    ::close(nowhere);
  }
  ~Quiet() {
    flush();
    ::dup2(saved_, 1);
    ::close(saved_);
  }
  Quiet(const Quiet&) = delete;
  Quiet& operator=(const Quiet&) = delete;

 private:
  static void flush() {
    std::cout.flush();
    std::fflush(stdout);
  }
  int saved_;
};

// Waits until `done()`, at most twenty seconds. Returns whether it was.
template <class Done>
bool wait_until(Done&& done) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (std::chrono::steady_clock::now() < end) {
    if (done()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return false;
}

// A forked process that runs `body` and exits with the number it returns, 99 on an exception. It goes when
// its parent goes.
class Child {
 public:
  template <class Body>
  explicit Child(Body&& body) {
    std::cout.flush();
    std::fflush(stdout);
    const pid_t parent = ::getpid();
    pid_ = ::fork();
    if (pid_ != 0) return;
    if (!end_with_parent(parent)) ::_exit(99);
    int code = 99;
    try {
      const Quiet quiet;
      code = body();
    } catch (...) {
      code = 99;
    }
    ::_exit(code);
  }
  ~Child() {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  void signal(int number) const { ::kill(pid_, number); }
  // The exit code, or minus the number of the signal that ended it; -999 when it has not ended after twenty
  // seconds.
  int wait() {
    int status = 0;
    if (!wait_until([&] { return ::waitpid(pid_, &status, WNOHANG) == pid_; })) return -999;
    pid_ = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  }

 private:
  pid_t pid_ = -1;
};

}  // namespace eddy::test
