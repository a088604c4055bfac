// Runs that are stopped from outside: killed at any moment, interrupted, out of disk. Each runs in a process
// of its own.
#include <doctest/doctest.h>
#include <sys/resource.h>

#include <atomic>
#include <csignal>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "models/optimizer/adam.h"
#include "tensor/base/error.h"
#include "tensor/random/philox.h"
#include "tests/support/errors.h"
#include "tests/support/files.h"
#include "tests/support/processes.h"
#include "tests/support/threads.h"
#include "tests/support/tiny_run.h"
#include "tests/train/run/runs.h"
#include "train/config/run_config.h"
#include "train/process/stop_signal.h"
#include "train/record/metrics.h"
#include "train/run/checkpoint.h"

namespace {

using namespace eddy;
using namespace eddy::training;
using namespace eddy::test;
namespace fs = std::filesystem;

int code_of(TrainEnd end) {
  return static_cast<int>(end);
}

bool has_checkpoint(const std::string& run) {
  return fs::exists(run + "/checkpoints/latest");
}

// The run that stopped at `step` goes on, and two steps later has the bits of one that never stopped.
void check_resumes(const TempFolder& folder, const TrainRequest& request, std::int64_t step) {
  CHECK(train_quietly(resumed(request, step + 2)) == TrainEnd::finished);
  TrainRequest unbroken = request;
  unbroken.run_dir = folder.path("unbroken");
  unbroken.config.train.steps = step + 2;
  CHECK(train_quietly(unbroken) == TrainEnd::finished);
  for (const char* name : {"model.safetensors", "optimizer.safetensors"})
    CHECK_MESSAGE(bytes_of(latest_of(request.run_dir), name) == bytes_of(latest_of(unbroken.run_dir), name),
                  name);
}

}  // namespace

TEST_CASE("train: a run killed again and again goes on from a whole checkpoint and ends with the same bits") {
  const OneThread one;
  const TempFolder folder;
  TrainRequest request = tiny_run(folder, "run");
  TrainConfig& t = request.config.train;
  t.steps = 1'000'000;
  t.checkpoint_every = 1;
  t.eval_every = 1;  // the same step is saved again whenever it is the best so far
  t.eval_batches = 1;

  const RandomKey key = random_key(1, "test.kill", 0);
  std::int64_t step = -1;
  for (std::uint64_t round = 0; round < 8; ++round) {
    CAPTURE(round);
    const std::string before = round == 0 ? "" : latest_of(request.run_dir);
    Child child([&] { return code_of(train(round == 0 ? request : resumed(request, t.steps))); });
    // Until it has come further than the one before; then at any moment.
    REQUIRE(
        wait_until([&] { return has_checkpoint(request.run_dir) && latest_of(request.run_dir) != before; }));
    std::this_thread::sleep_for(std::chrono::microseconds(key.word(round) % 60'000));
    child.signal(SIGKILL);
    CHECK(child.wait() == -SIGKILL);

    const LoadedRun run = load_run(request.run_dir);
    Adam optimizer(run.model->params(), run.config.train);
    CHECK_NOTHROW(load_optimizer(run.checkpoint, optimizer));
    CHECK(optimizer.steps() == run.step);
    CHECK(run.step > step);
    step = run.step;
    CHECK_NOTHROW(static_cast<void>(metrics_of(request.run_dir)));
  }

  check_resumes(folder, request, step);
  for (const std::string& name : checkpoints_of(request.run_dir)) CHECK(!name.starts_with(".tmp-"));

  const Metrics metrics = metrics_of(request.run_dir);
  REQUIRE(static_cast<std::int64_t>(metrics.steps.size()) == step + 2);
  for (std::size_t i = 0; i < metrics.steps.size(); ++i)
    CHECK(metrics.steps[i].step == static_cast<std::int64_t>(i) + 1);
}

TEST_CASE("save_checkpoint: a step saved again is there at every moment") {
  const OneThread one;
  const TempFolder folder;
  const TrainRequest request = tiny_run(folder, "run");
  CHECK(train_quietly(request) == TrainEnd::finished);
  const LoadedRun run = load_run(request.run_dir);
  Adam optimizer(run.model->params(), run.config.train);
  std::atomic<bool> done{false};
  std::int64_t looks = 0, missing = 0;
  std::thread watcher([&] {
    while (!done.load()) {
      ++looks;
      if (!fs::exists(run.checkpoint / "state.json")) ++missing;
    }
  });
  for (int i = 0; i < 40; ++i)
    save_checkpoint(request.run_dir, run.config, run.tokenizer.get(), *run.model, optimizer.save(), {},
                    run.state, i % 2 == 0, 2);
  done = true;
  watcher.join();
  CHECK(looks > 100);
  CHECK(missing == 0);
  CHECK(checkpoints_of(request.run_dir) == std::vector<std::string>{"best", "latest", "step-0", "step-6"});
}

TEST_CASE("train: an interrupt saves and ends the run and it goes on to the bit") {
  const OneThread one;
  for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2, SIGXCPU}) {
    CAPTURE(number);
    const TempFolder folder;
    TrainRequest request = tiny_run(folder, "run");
    request.config.train.steps = 1'000'000;
    Child child([&] { return code_of(train(request)); });
    REQUIRE(wait_until([&] { return has_steps(request.run_dir, 3); }));
    child.signal(number);
    CHECK(child.wait() == code_of(TrainEnd::interrupted));

    const LoadedRun run = load_run(request.run_dir);
    CHECK(run.step > 3);
    const Metrics metrics = metrics_of(request.run_dir);
    CHECK(metrics.steps.back().step == run.step);
    REQUIRE(!metrics.events.empty());
    CHECK(contains(metrics.events.back().text, "interrupted at step " + std::to_string(run.step)));
    CHECK(contains(metrics.events.back().text, "--resume"));
    CHECK(fs::exists(request.run_dir + "/report.html"));

    check_resumes(folder, request, run.step);
  }
}

TEST_CASE("train: signals that follow the first one at once keep nothing from being saved") {
  const OneThread one;
  const TempFolder folder;
  TrainRequest request = tiny_run(folder, "run");
  request.config.train.steps = 1'000'000;
  Child child([&] { return code_of(train(request)); });
  REQUIRE(wait_until([&] { return has_steps(request.run_dir, 3); }));
  for (const int number : {SIGTERM, SIGHUP, SIGTERM, SIGINT, SIGINT, SIGUSR1, SIGXCPU}) child.signal(number);
  CHECK(child.wait() == code_of(TrainEnd::interrupted));
  CHECK(load_run(request.run_dir).step > 3);
}

TEST_CASE("StopOnSignal: of all later signals only a Ctrl-C after two seconds ends the program at once") {
  Child child([] {
    const StopOnSignal signals;
    for (const int number : {SIGTERM, SIGINT, SIGHUP}) std::raise(number);
    std::this_thread::sleep_for(std::chrono::milliseconds(2050));
    for (const int number : {SIGTERM, SIGHUP, SIGUSR1, SIGINT}) std::raise(number);
    return 0;
  });
  CHECK(child.wait() == -SIGINT);
}

TEST_CASE("StopOnSignal: what was ignored stays ignored and an inner object keeps what was requested") {
  Child child([] {
    for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2, SIGXCPU}) {
      std::signal(number, SIG_IGN);
      {
        const StopOnSignal signals;
        std::raise(number);
        if (stop_requested()) return 1;
      }
      std::signal(number, SIG_DFL);
    }
    const StopOnSignal outer;
    std::raise(SIGUSR2);
    { const StopOnSignal inner; }
    return stop_requested() ? 0 : 2;
  });
  CHECK(child.wait() == 0);
}

TEST_CASE("train: an interrupt during a long evaluation does not wait for its end") {
  const OneThread one;
  const TempFolder folder;
  TrainRequest request = tiny_run(folder, "run");
  request.config.train.eval_every = 2;
  request.config.train.eval_batches = 100'000'000;
  Child child([&] { return code_of(train(request)); });
  REQUIRE(wait_until([&] { return fs::exists(request.run_dir + "/metrics.jsonl"); }));
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  child.signal(SIGINT);
  CHECK(child.wait() == code_of(TrainEnd::interrupted));
  CHECK(load_run(request.run_dir).step == 0);
}

TEST_CASE("train: a disk that is full leaves the last checkpoint whole") {
  const OneThread one;
  const TempFolder folder;
  TrainRequest request = tiny_run(folder, "run");
  CHECK(train_quietly(request) == TrainEnd::finished);
  const std::string checkpoint = latest_of(request.run_dir);
  const std::vector<std::string> names{"model.safetensors", "optimizer.safetensors", "state.json"};
  std::vector<std::string> before;
  for (const std::string& name : names) before.push_back(bytes_of(checkpoint, name.c_str()));
  REQUIRE(before[0].size() < before[1].size());

  // The first limit lets the parameters through and stops the moments; the second stops the parameters.
  for (const std::size_t limit : {before[1].size() - 1, before[0].size() - 1}) {
    CAPTURE(limit);
    REQUIRE(fs::file_size(request.run_dir + "/metrics.jsonl") + 4096 < limit);
    Child child([&] {
      std::signal(SIGXFSZ, SIG_IGN);  // writes fail with an error instead of a signal, as on a full disk
      const rlimit size{limit, limit};
      if (setrlimit(RLIMIT_FSIZE, &size) != 0) return 98;
      try {
        train(resumed(request, 8));
      } catch (const IoError& error) {
        return contains(error.what(),
                        limit + 1 == before[0].size() ? "model.safetensors" : "optimizer.safetensors")
                   ? 42
                   : 97;
      }
      return 96;
    });
    CHECK(child.wait() == 42);
    CHECK(latest_of(request.run_dir) == checkpoint);
    CHECK(checkpoints_of(request.run_dir) == std::vector<std::string>{"latest", "step-0", "step-6"});
    for (std::size_t i = 0; i < names.size(); ++i)
      CHECK_MESSAGE(bytes_of(checkpoint, names[i].c_str()) == before[i], names[i]);
  }
  CHECK(train_quietly(resumed(request, 8)) == TrainEnd::finished);
  CHECK(load_run(request.run_dir).step == 8);
}

TEST_CASE("train: an error between checkpoints saves the steps that were done") {
  const OneThread one;
  const TempFolder folder;
  TrainRequest request = tiny_run(folder, "run");
  request.config.train.steps = 1'000'000;
  Child child([&] {
    try {
      train(request);
    } catch (const IoError& error) {
      return contains(error.what(), "was moved") ? 42 : 97;
    }
    return 96;
  });
  REQUIRE(wait_until([&] { return has_steps(request.run_dir, 3); }));
  fs::rename(request.run_dir, folder.path("moved"));
  child.signal(SIGINT);
  CHECK(child.wait() == 42);
  request.run_dir = folder.path("moved");
  const std::int64_t step = load_run(request.run_dir).step;
  CHECK(step > 3);
  check_resumes(folder, request, step);
}

TEST_CASE("train: a full disk under the metrics ends no run") {
  const OneThread one;
  const TempFolder folder;
  TrainRequest request = tiny_run(folder, "run");
  request.config.train.steps = 800;
  Child child([&] {
    std::signal(SIGXFSZ, SIG_IGN);
    const rlimit size{100'000, 100'000};  // the checkpoint stays below, the metrics grow beyond
    if (setrlimit(RLIMIT_FSIZE, &size) != 0) return 98;
    return code_of(train(request));
  });
  CHECK(child.wait() == code_of(TrainEnd::finished));
  CHECK(load_run(request.run_dir).step == 800);
  CHECK(metrics_of(request.run_dir).foreign == 0);
}

TEST_CASE("train: a run that trains is left alone by a second process and can be gone on with afterwards") {
  const OneThread one;
  const TempFolder folder;
  TrainRequest request = tiny_run(folder, "run");
  request.config.train.steps = 1'000'000;
  Child child([&] { return code_of(train(request)); });
  REQUIRE(wait_until([&] { return has_checkpoint(request.run_dir); }));
  CHECK(
      contains(error_of<IoError>([&] { train_quietly(resumed(request, 3)); }), "another process trains in"));
  child.signal(SIGINT);
  CHECK(child.wait() == code_of(TrainEnd::interrupted));
  const std::int64_t step = load_run(request.run_dir).step;
  CHECK(train_quietly(resumed(request, step + 1)) == TrainEnd::finished);
}

TEST_CASE("train: a forked process trains with the bits of its parent") {
  const Threads two(2);
  const TempFolder folder;
  const TrainRequest first = tiny_run(folder, "first"), second = tiny_run(folder, "second");
  CHECK(train_quietly(first) ==
        TrainEnd::finished);  // the pool and OpenBLAS have threads now; the child has none of them
  Child child([&] { return code_of(train(second)); });
  CHECK(child.wait() == code_of(TrainEnd::finished));
  CHECK(bytes_of(latest_of(first.run_dir), "model.safetensors") ==
        bytes_of(latest_of(second.run_dir), "model.safetensors"));
}
