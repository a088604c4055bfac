// Runs the program `eddy` on a terminal of its own, as a person does.
#pragma once

#include <doctest/doctest.h>
#include <poll.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/program.h"
#include "tests/support/pseudo_terminal.h"

namespace eddy::test {

// The program on a terminal of its own.
class OnTerminal {
 public:
  explicit OnTerminal(const std::vector<std::string>& arguments, const std::string& folder) {
    std::vector<std::string> words{kProgram};
    words.insert(words.end(), arguments.begin(), arguments.end());
    std::vector<char*> argv;
    for (std::string& word : words) argv.push_back(word.data());
    argv.push_back(nullptr);
    winsize size{24, 80, 0, 0};
    pid_ = ::forkpty(&terminal_, nullptr, nullptr, &size);
    if (pid_ == 0) {
      ::setenv("TERM", "xterm", 1);
      ::setenv("LC_ALL", "C.UTF-8", 1);
      ::setenv("EDDY_NUM_THREADS", "1", 1);
      if (::chdir(folder.c_str()) == 0) ::execv(kProgram.c_str(), argv.data());
      ::_exit(126);
    }
    REQUIRE(pid_ > 0);
  }
  ~OnTerminal() {
    ::close(terminal_);
    if (pid_ <= 0) return;
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  OnTerminal(const OnTerminal&) = delete;
  OnTerminal& operator=(const OnTerminal&) = delete;

  void type(const std::string& keys) const { REQUIRE(::write(terminal_, keys.data(), keys.size()) > 0); }
  // Reads until `part` has come since the last call, or for twenty seconds. Returns whether it has; if not, the test's
  // log has what came.
  bool see(const std::string& part) {
    const bool came = wait_for(part);
    if (!came) MESSAGE("not seen: \"" << part << "\" in \"" << unseen_.substr(0, 2000) << "\"");
    return came;
  }
  const std::string& unseen() const { return unseen_; }
  void signal(int number) const { ::kill(pid_, number); }
  // Gives the terminal another width, of which the program hears.
  void set_columns(unsigned short columns) const {
    const winsize size{24, columns, 0, 0};
    REQUIRE(::ioctl(terminal_, TIOCSWINSZ, &size) == 0);
  }
  // How the terminal takes keys: the flags of input and of the local modes.
  std::pair<tcflag_t, tcflag_t> modes() const {
    termios all{};
    REQUIRE(::tcgetattr(terminal_, &all) == 0);
    return {all.c_iflag, all.c_lflag};
  }
  // The exit status. A program that goes on for twenty seconds is killed.
  int finish() {
    wait_for("(never written)");
    int status = 0;
    for (int tenths = 0; ::waitpid(pid_, &status, WNOHANG) == 0; ++tenths) {
      if (tenths == 20) ::kill(pid_, SIGKILL);
      ::poll(nullptr, 0, 100);
    }
    pid_ = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  }

 private:
  bool wait_for(const std::string& part) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (std::chrono::steady_clock::now() < end) {
      if (const std::size_t at = unseen_.find(part); at != std::string::npos) {
        unseen_.erase(0, at + part.size());
        return true;
      }
      pollfd waiting{terminal_, POLLIN, 0};
      char bytes[4096];
      if (::poll(&waiting, 1, 200) <= 0) continue;
      const ssize_t got = ::read(terminal_, bytes, sizeof bytes);
      if (got <= 0) return unseen_.find(part) != std::string::npos;
      unseen_.append(bytes, static_cast<std::size_t>(got));
    }
    return false;
  }

  int terminal_ = -1;
  pid_t pid_ = -1;
  std::string unseen_;
};

}  // namespace eddy::test
