// The program under mpirun: the same bits for every number of ranks, a resume on another number, and what ends a run.
#include <doctest/doctest.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <span>
#include <sstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "ops/cpu/isa.h"
#include "tensor/system/process.h"
#include "tests/support/errors.h"
#include "tests/support/files.h"
#include "tests/support/processes.h"
#include "tests/support/program.h"
#include "train/app/launch/launcher.h"
#include "train/files/text_file.h"
#include "train/ranks/tree_collective.h"
#include "train/text/stories/stories.h"

namespace {

using namespace eddy;
using namespace eddy::training;
using namespace eddy::app;
using namespace eddy::test;
namespace fs = std::filesystem;

// Whether there is a launcher, and a program that knows it.
bool can_launch() {
  if (!has_program()) return false;
  if (!output_of("command -v mpirun").empty() && contains(output_of(kProgram + " info"), "ranks: MPI"))
    return true;
  MESSAGE("skipped: no mpirun, or a build without MPI (install libopenmpi-dev and openmpi-bin)");
  return false;
}

// A text, and a folder of texts of different lengths.
struct Texts : TempFolder {
  Texts() {
    write("text.txt", generate_stories(3, 4000));
    fs::create_directory(path("texts"));
    for (std::size_t i = 0; i < 12; ++i)
      write("texts/" + std::to_string(i) + ".txt",
            generate_stories(static_cast<std::uint64_t>(i), 300 + 40 * i));
  }
};

// `mpirun` refuses root, and more ranks than cores, unless it is told.
std::string launched(const TempFolder& folder, int ranks, const std::string& line) {
  const std::string launcher = ranks == 0 ? ""
                                          : "mpirun --allow-run-as-root --oversubscribe --bind-to none -n " +
                                                std::to_string(ranks) + " ";
  return "cd " + folder.path() + " && EDDY_NUM_THREADS=1 exec " + launcher + kProgram + " " + line;
}

// The exit status; what the command wrote stands in the file `log`.
int run_ranks(const TempFolder& folder, int ranks, const std::string& line,
              const std::string& streams = " > log 2>&1") {
  const int status = std::system((launched(folder, ranks, line) + streams).c_str());
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

const std::string kSizes =
    " --model.heads 2 --model.context 16 --train.batch 8 --train.micro_batches 4 --train.sample_tokens 0 ";
const std::string kSmall = kSizes + "--model.dim 16 --train.eval_every 0 ";

// The lines of a run's evaluations.
std::string evaluations_of(const TempFolder& folder, const std::string& run) {
  std::istringstream lines(read_text_file(folder.path(run) + "/metrics.jsonl"));
  std::string found;
  for (std::string line; std::getline(lines, line);)
    if (contains(line, "\"kind\":\"eval\"")) found += line + "\n";
  return found;
}

// The bytes of a checkpoint's numbers.
std::string numbers_of(const TempFolder& folder, const std::string& run, int step) {
  std::string bytes;
  for (const char* const file : {"model.safetensors", "optimizer.safetensors", "recurrent.safetensors"}) {
    const fs::path path = folder.path(run) + "/checkpoints/step-" + std::to_string(step) + "/" + file;
    if (fs::exists(path)) bytes += read_text_file(path);
  }
  return bytes;
}

}  // namespace

TEST_CASE(
    "ranks: one process and two and four give the same bytes and evaluations, whoever holds the optimizer's state") {
  if (!can_launch()) return;
  const std::string small = " --model.dim 16";
  const std::vector<std::string> kinds{
      "--data text.txt --model.model block_recurrent --data.order stream --model.dropout 0.1 --train.accumulate 2 " +
          small,
      "--data text.txt --model.model memory_llama --data.order stream --train.optimizer adafactor" + small,
      "--data texts --data.tokenizer byte260 --model.family staircase --model.model lstm --data.order documents "
      "--train.optimizer muon" +
          small,
      "--data text.txt --model.model unit_forget --model.dropout 0.1 --train.precision bf16 --train.recompute layer" +
          small,
      // Several buckets of gradients, and factored statistics.
      "--data text.txt --model.model staircase --data.order stream --model.dim 256 --train.optimizer adafactor",
  };
  struct Way {
    int ranks;
    const char* shard;
  };
  const Texts folder;
  for (std::size_t i = 0; i < kinds.size(); ++i) {
    CAPTURE(kinds[i]);
    std::string expected, evaluated;
    for (const Way way :
         {Way{0, "false"}, Way{2, i % 2 == 0 ? "true" : "false"}, Way{4, "false"}, Way{4, "true"}}) {
      CAPTURE(way.ranks);
      CAPTURE(way.shard);
      const std::string run = "run-" + std::to_string(i) + "-" + std::to_string(way.ranks) + way.shard;
      const int status =
          run_ranks(folder, way.ranks,
                    "train --train.steps 3 --train.eval_every 3 --train.eval_batches 2 --run " + run +
                        kSizes + kinds[i] + " --train.shard_optimizer " + way.shard);
      CAPTURE(read_text_file(folder.path("log")));
      REQUIRE(status == 0);
      const std::string numbers = numbers_of(folder, run, 3), evaluations = evaluations_of(folder, run);
      if (way.ranks == 0) expected = numbers;
      if (way.ranks == 0) evaluated = evaluations;
      REQUIRE(!numbers.empty());
      REQUIRE(contains(evaluations, "loss"));
      CHECK(numbers == expected);
      CHECK(evaluations == evaluated);
    }
  }
  CHECK(contains(read_text_file(folder.path("log")), "of the optimizer's state, its part"));
}

TEST_CASE("ranks: eval gives the same numbers for every number of them") {
  if (!can_launch()) return;
  const Texts folder;
  REQUIRE(run_ranks(folder, 0,
                    "train --train.steps 2 --run a" + kSmall +
                        "--data text.txt --model.model block_recurrent --data.order stream") == 0);
  std::string expected;
  for (const int ranks : {0, 2, 4}) {
    CAPTURE(ranks);
    // A launcher may warn, such as of a system without /sys: the numbers stand on standard output.
    REQUIRE(run_ranks(folder, ranks, "eval a --by-position page.html", " > log 2> warnings") == 0);
    std::string log = read_text_file(folder.path("log"));
    const std::size_t speed = log.find("tokens/s");
    REQUIRE(speed != std::string::npos);
    log.erase(speed, log.find('\n', speed) - speed);
    if (ranks == 0) expected = log;
    CHECK(log == expected);
  }
  CHECK(run_ranks(folder, 2, "eval a --micro-batches 1") == 1);
  CHECK(contains(read_text_file(folder.path("log")), "set --micro-batches, or start fewer"));
}

TEST_CASE("ranks: reproduce shares the training and the measuring of a row") {
  if (!can_launch()) return;
  const Texts folder;
  const std::string table =
      "reproduce staircase/table-1 --scale tiny --rows lstm --set train.steps=4 --set train.micro_batches=2 --runs ";
  std::string expected;
  for (const int ranks : {0, 2}) {
    CAPTURE(ranks);
    const std::string runs = "runs-" + std::to_string(ranks);
    const int status = run_ranks(folder, ranks, table + runs);
    CAPTURE(read_text_file(folder.path("log")));
    REQUIRE(status == 0);
    std::string values;
    for (const fs::directory_entry& entry : fs::recursive_directory_iterator(folder.path(runs))) {
      const std::string name = entry.path().filename().string();
      if (name == "model.safetensors") values += read_text_file(entry.path());
    }
    REQUIRE(!values.empty());
    if (ranks == 0) expected = values;
    CHECK(values == expected);
  }
  CHECK(run_ranks(folder, 4, table + "runs-4") == 1);
  CHECK(contains(read_text_file(folder.path("log")), "set train.micro_batches, or start fewer"));
}

TEST_CASE("ranks: a run that stopped on four ranks goes on on two and in one process to the bit") {
  if (!can_launch()) return;
  const Texts folder;
  const std::string kind =
      kSmall + "--data text.txt --model.model block_recurrent --data.order stream --model.dropout 0.1 ";
  REQUIRE(run_ranks(folder, 0, "train --run whole --train.steps 8" + kind) == 0);
  REQUIRE(run_ranks(folder, 4, "train --run parts --train.steps 2 --train.shard_optimizer true" + kind) == 0);
  REQUIRE(run_ranks(folder, 2, "train --resume parts --train.steps 4 --train.shard_optimizer false") == 0);
  REQUIRE(run_ranks(folder, 0, "train --resume parts --train.steps 6 --train.shard_optimizer true") == 0);
  REQUIRE(run_ranks(folder, 2, "train --resume parts --train.steps 8") == 0);
  CHECK(numbers_of(folder, "parts", 8) == numbers_of(folder, "whole", 8));
}

TEST_CASE("ranks: a run on two ranks goes back as one in one process does") {
  if (!can_launch()) return;
  const Texts folder;
  const std::string kind =
      kSizes +
      "--data text.txt --model.model block_recurrent --data.order stream --model.dropout 0.1 "
      "--train.rollback auto --train.max_bad_steps 2 --train.checkpoint_every 2 "
      "--train.schedule constant ";
  REQUIRE(run_ranks(folder, 0, "train --run whole --train.steps 4" + kind) == 0);
  for (const char* const copy : {"copied", "parts"})
    fs::copy(folder.path("whole"), folder.path(copy), fs::copy_options::recursive);
  const std::string worse = " --train.steps 40 --train.learning_rate 3e38 --train.clip 0";
  CHECK(run_ranks(folder, 0, "train --resume whole" + worse) == 3);
  const int last = 16;  // 5 breaks the weights, 6 and 7 are bad; so do three times three more
  const std::string expected = numbers_of(folder, "whole", last);
  CHECK(!expected.empty());
  for (const std::string run : {"copied", "parts"}) {
    const std::string shard = run == "parts" ? " --train.shard_optimizer true" : "";
    CHECK(run_ranks(folder, 2, "train --resume " + run + worse + shard) == 3);
    CAPTURE(read_text_file(folder.path("log")));
    CHECK(contains(read_text_file(folder.path("log")), "time 3 of 3"));
    CHECK(numbers_of(folder, run, last) == expected);
  }
}

TEST_CASE("ranks: a number of ranks that does not fit is refused before a folder is made") {
  if (!can_launch()) return;
  const Texts folder;
  for (const int ranks : {3, 8}) {
    CHECK(run_ranks(folder, ranks, "train --run no --data text.txt" + kSmall) == 1);
    CHECK(contains(read_text_file(folder.path("log")), "a power of two of processes"));
    CHECK(!fs::exists(folder.path("no")));
  }
  // Each rank says why it ends, rank 0 as an error. Where another ends first, mpirun may end rank 0 before it speaks.
  const std::pair<std::string, std::string> mistakes[] = {
      {"--data missing.txt", "no such file or folder: 'missing.txt'"},
      {"--data text.txt --unknown", "unknown flag '--unknown'"}};
  for (const auto& [mistake, reason] : mistakes) {
    CAPTURE(mistake);
    CHECK(run_ranks(folder, 2, "train --run no " + mistake + kSmall) != 0);
    const std::string log = read_text_file(folder.path("log"));
    CAPTURE(log);
    CHECK(contains(log, reason));
    const std::size_t first = log.find("error: ");
    CHECK((first == std::string::npos || log.find("error: ", first + 1) == std::string::npos));
  }
}

TEST_CASE("ranks: one with other CPU kernels is named before a folder is made") {
  const std::string lowest = isa_name(isa_levels().front());
  if (!can_launch() || lowest == isa_name(best_isa_level())) return;
  const Texts folder;
  const std::string train = kProgram + " train --run no --data text.txt" + kSmall;
  // One program for both: mpirun of Open MPI 5 crashes with two of them where there is no /sys.
  folder.write("train.sh", "[ \"$OMPI_COMM_WORLD_RANK\" = 1 ] && export EDDY_CPU_LEVEL=" + lowest +
                               "\nexec " + train + "\n");
  const std::string log = folder.path("log"),
                    command = "cd " + folder.path() +
                              " && mpirun --allow-run-as-root --oversubscribe -n 2 sh train.sh > log 2>&1";
  CHECK(std::system(command.c_str()) != 0);
  CHECK(contains(read_text_file(log), "ranks: rank 1 on "));
  CHECK(contains(read_text_file(log), "CPU kernels for " + lowest));
  CHECK(!fs::exists(folder.path("no")));
}

TEST_CASE("ranks: processes that a launcher started and that do not see each other refuse to train") {
  if (!has_program()) return;
  const Texts folder;
  for (const std::string variable : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS"}) {
    CAPTURE(variable);
    const Ended ended = run_program({.arguments = {"train", "--run", "no", "--data", "text.txt"},
                                     .folder = folder.path(),
                                     .environment = {variable + "=2"}});
    CHECK(ended.status == 1);
    CHECK(contains(ended.err, "2 processes"));
    CHECK(contains(ended.err, "EDDY_ALONE=1"));
    CHECK(!fs::exists(folder.path("no")));
  }
}

TEST_CASE(
    "ranks: each process that a launcher started says why it ends, and trains alone where it is told to") {
  if (!has_program()) return;
  const Texts folder;
  const std::vector<std::string> second{"PMI_SIZE=2", "PMI_RANK=1"};
  for (const std::string line : {"train --run no --data text.txt", "eval nowhere", "train --no-such-flag"}) {
    CAPTURE(line);
    const Ended ended = run_program({words_of(line), folder.path(), "/dev/null", 0, second});
    CHECK(ended.status != 0);
    CHECK_MESSAGE(contains(ended.err, "process 1 of 2 ends: "), ended.err);
  }
  std::vector<std::string> alone = second;
  alone.emplace_back("EDDY_ALONE=1");
  const Ended trained = run_program({words_of("train --run own --data text.txt --train.steps 1" + kSmall),
                                     folder.path(), "/dev/null", 0, alone});
  CHECK_MESSAGE(trained.status == 0, trained.err);
  CHECK(fs::exists(folder.path("own/checkpoints/latest")));
  alone.back() = "EDDY_ALONE=yes";
  const Ended wrong =
      run_program({words_of("train --run no --data text.txt"), folder.path(), "/dev/null", 0, alone});
  CHECK(wrong.status == 1);
  CHECK(contains(wrong.err, "EDDY_ALONE: 'yes'"));
}

namespace {

// The text of a file of /proc, whose size the system does not know.
std::string text_of(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

// A run on two ranks that trains until something ends it.
class LongRun {
 public:
  explicit LongRun(const TempFolder& folder) : folder_(folder) {
    const std::string line = launched(
        folder, 2,
        "train --run long --train.steps 1000000 --train.keep 2 --train.rank_timeout 2" + kSmall +
            "--data text.txt --model.model block_recurrent --data.order stream --train.checkpoint_every 5");
    const pid_t parent = ::getpid();
    launcher_ = ::fork();
    if (launcher_ == 0) {
      if (!end_with_parent(parent)) ::_exit(126);
      ::execl("/bin/sh", "sh", "-c", (line + " > log 2>&1").c_str(), nullptr);
      ::_exit(126);
    }
    // Then the one before is the latest, or a newer one.
    for (int tries = 0; tries < 3000 && !fs::exists(folder.path("long/checkpoints/step-10")); ++tries) nap();
    REQUIRE(fs::exists(folder.path("long/checkpoints")));
  }
  ~LongRun() {
    if (launcher_ <= 0) return;
    ::kill(launcher_, SIGTERM);
    ::waitpid(launcher_, nullptr, 0);
  }
  pid_t launcher() const { return launcher_; }
  // The process of a rank, a child of mpirun.
  pid_t rank(int number) const {
    const std::string children =
        text_of("/proc/" + std::to_string(launcher_) + "/task/" + std::to_string(launcher_) + "/children");
    std::istringstream list(children);
    for (pid_t child = 0; list >> child;)
      if (contains(text_of("/proc/" + std::to_string(child) + "/environ"),
                   std::string("OMPI_COMM_WORLD_RANK=") + std::to_string(number) + '\0'))
        return child;
    return -1;
  }
  // Waits for the end; returns the exit status.
  int end() {
    int status = 0;
    ::waitpid(std::exchange(launcher_, -1), &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  }
  std::string log() const { return read_text_file(folder_.path("log")); }

 private:
  static void nap() { std::this_thread::sleep_for(std::chrono::milliseconds(10)); }
  const TempFolder& folder_;
  pid_t launcher_ = -1;
};

void check_whole_and_resumable(const TempFolder& folder) {
  CHECK(run_ranks(folder, 0, "check long") == 0);
  const std::string latest = read_text_file(folder.path("long/checkpoints/latest"));
  const int step = std::stoi(latest.substr(5));
  CHECK(step >= 5);
  const std::string steps = std::to_string(step + 2);
  CHECK(run_ranks(folder, 2, "train --resume long --train.steps " + steps) == 0);
  REQUIRE(run_ranks(folder, 0,
                    "train --run unbroken --train.steps " + steps + kSmall +
                        "--data text.txt --model.model block_recurrent --data.order stream") == 0);
  CHECK(numbers_of(folder, "long", step + 2) == numbers_of(folder, "unbroken", step + 2));
}

}  // namespace

TEST_CASE(
    "ranks: when one is killed the run ends with its name, and goes on from the last checkpoint to the bit") {
  if (!can_launch()) return;
  for (const int victim : {0, 1}) {
    CAPTURE(victim);
    const Texts folder;
    LongRun run(folder);
    const pid_t process = run.rank(victim);
    REQUIRE(process > 0);
    ::kill(process, SIGKILL);
    CHECK(run.end() != 0);
    CHECK(contains(run.log(), "process rank " + std::to_string(victim)));
    check_whole_and_resumable(folder);
  }
}

TEST_CASE("ranks: when one hangs the others name it after train.rank_timeout and end") {
  if (!can_launch()) return;
  const Texts folder;
  LongRun run(folder);
  const pid_t process = run.rank(1);
  REQUIRE(process > 0);
  ::kill(process, SIGSTOP);
  CHECK(run.end() != 0);
  CHECK(contains(run.log(), "waited 2 s for rank 1 on "));
  check_whole_and_resumable(folder);
}

TEST_CASE("ranks: SIGUSR1 to the launcher saves and ends all of them") {
  if (!can_launch()) return;
  const Texts folder;
  LongRun run(folder);
  ::kill(run.launcher(), SIGUSR1);
  CHECK(run.end() == 130);
  CHECK(contains(run.log(), "interrupted at step"));
  check_whole_and_resumable(folder);
}

// The next two are one test: the first starts the second as two ranks.
TEST_CASE("ranks: what MPI still receives for a sum that ended early is not written any more") {
  if (!can_launch()) return;
  const TempFolder folder;
  const std::string self = fs::canonical(own_program());
  const int status =
      std::system(("cd " + folder.path() + " && mpirun --allow-run-as-root --oversubscribe -n 2 " + self +
                   " --test-case='under mpirun:*' > log 2>&1")
                      .c_str());
  CAPTURE(read_text_file(folder.path("log")));
  CHECK(status == 0);
  CHECK(contains(read_text_file(folder.path("log")), "1 passed"));
}

TEST_CASE("under mpirun: a sum that ends early takes back its exchange") {
  const std::unique_ptr<Ranks> ranks = ranks_of_launcher(false);
  if (ranks == nullptr) return;  // not under mpirun
  constexpr std::int64_t kCount = 512;
  const Tensor x = Tensor::full({2 * kCount}, 1, Dtype::f32);
  std::byte word{};
  if (ranks->rank() == 0) {
    std::make_unique<TreeCollective>(*ranks, x, BinaryTree({0, 2 * kCount}, 2), std::vector<bool>{true, true},
                                     7, TreeCollective::Work::reduce_scatter)
        .reset();
    // Has the memory in which the sum would have received.
    const Tensor next = Tensor::full({kCount}, 3, Dtype::f32);
    ranks->send(1, {&word, 1});
    ranks->receive(1, {&word, 1});  // comes after the numbers
    for (const float number : next.to_vector<float>()) CHECK(number == 3);
  } else {
    ranks->receive(0, {&word, 1});
    ranks->begin(0, std::as_bytes(std::span(x.data<float>(), kCount)), {}, 7)->wait(Patience::limited);
    ranks->send(0, {&word, 1});
  }
}
