// What the tests of whole training runs share: a run small enough to train in milliseconds, silence on
// stdout, and child processes that may be killed.
#pragma once

#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <iostream>
#include <string>
#include <thread>
#include <vector>

#include "tensor/base/error.h"
#include "tensor/threads/thread_pool.h"
#include "tests/train/text_test.h"
#include "train/files/text_file.h"
#include "train/run/trainer.h"
#include "train/text/stories/story_generator.h"

namespace eddy::test {

// While alive, stdout goes nowhere.
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

// One thread unless a test asks for more: the models are so small that a second one only waits.
class OneThread {
 public:
  OneThread() : before_(thread_count()) { set_thread_count(1); }
  ~OneThread() { set_thread_count(before_); }
  OneThread(const OneThread&) = delete;
  OneThread& operator=(const OneThread&) = delete;

 private:
  int before_;
};

// A run of a 16-wide model on stories in `folder`.
inline TrainRequest tiny_run(const TempFolder& folder, const std::string& name) {
  const std::string text = folder.path("text.txt");
  if (!std::filesystem::exists(text)) folder.write("text.txt", generate_stories(3, 4000));
  TrainRequest request;
  request.run_dir = folder.path(name);
  request.command_line = "eddy train tiny.toml";
  RunConfig& config = request.config;
  config.model.dim = 16;
  config.model.heads = 2;
  config.model.context = 16;
  config.model.dropout = 0.1;
  config.data.path = text;
  TrainConfig& train = config.train;
  train.steps = 6;
  train.batch = 4;
  train.eval_every = 0;
  train.eval_batches = 2;
  train.checkpoint_every = 0;
  train.sample_tokens = 0;
  train.log_every = 1;
  return request;
}

inline TrainEnd train_quietly(const TrainRequest& request) {
  const Quiet quiet;
  return train(request);
}

// The names of checkpoints in a run, sorted as text; what is hidden is named too.
inline std::vector<std::string> checkpoints_of(const std::string& run) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(run + "/checkpoints"))
    names.push_back(entry.path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

inline std::string latest_of(const std::string& run) {
  std::string name = read_text_file(run + "/checkpoints/latest");
  while (!name.empty() && name.back() == '\n') name.pop_back();
  return run + "/checkpoints/" + name;
}

// Waits until `done()`, at most twenty seconds.
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
    pid_ = ::fork();
    if (pid_ != 0) return;
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
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
