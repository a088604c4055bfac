// The program over damaged runs and sessions: what it refuses, which way out it names, and that this way
// leads out.
#include <doctest/doctest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "tensor/base/error.h"
#include "tests/support/errors.h"
#include "tests/support/program.h"
#include "tests/support/threads.h"
#include "tests/support/tiny_run.h"

namespace {

using namespace eddy;
using namespace eddy::training;
using namespace eddy::test;
namespace fs = std::filesystem;

Ended run_words(const TempFolder& folder, const std::string& line) {
  return run_program({words_of(line), folder.path()});
}

const std::string kTrainStaircase =
    "train " + kTinyModel +
    "--train.threads 1 --train.eval_every 0 --train.eval_batches 2 --train.checkpoint_every 2 "
    "--train.keep 9 --train.steps 4 --data.order stream --model.family staircase --model.model lstm "
    "--data text.txt --run a";

// The run `a` with the checkpoints step-0, step-2 and step-4, made once; each test takes a copy.
const TempFolder& trained_staircase() {
  static const TempFolder folder;
  if (!fs::exists(folder.path("a"))) {
    folder.write("text.txt", generate_stories(3, 4000));
    const Ended end = run_words(folder, kTrainStaircase);
    REQUIRE_MESSAGE(end.status == 0, end.err);
  }
  return folder;
}

struct Copy : TempFolder {
  Copy() { fs::copy(trained_staircase().path(), path(), fs::copy_options::recursive); }

  std::string bytes(const std::string& name) const { return read_text_file(path(name)); }
  void flip_bit(const std::string& name, std::size_t from_the_end) const {
    std::string text = bytes(name);
    text.at(text.size() - from_the_end) ^= 0x40;
    write(name, text);
  }
};

void check_damaged(const Ended& ended, const std::string& what) {
  CAPTURE(ended.out);
  CAPTURE(ended.err);
  CHECK(ended.status == 1);
  CHECK(ended.err.starts_with("error: "));
  CHECK_MESSAGE(contains(ended.err, what), what);
}

}  // namespace

TEST_CASE("program: a damaged checkpoint is refused with a way out that every command can go") {
  if (!has_program()) return;
  const Copy copy;
  copy.flip_bit("a/checkpoints/step-4/model.safetensors", 5);
  const auto before = content_of(copy.path());
  const std::vector<std::string> commands{"eval a", "generate a --tokens 3",
                                          "compare a --clear-state --data text.txt",
                                          "train --resume a --train.steps 5"};
  for (const std::string& command : commands)
    check_damaged(run_words(copy, command), "step-4/model.safetensors is damaged: its digest is ");
  for (const std::string& command : commands)
    check_damaged(
        run_words(copy, command),
        "; step-2 is whole (go on from it with --checkpoint step-2, or with --checkpoint newest-whole)");
  CHECK(content_of(copy.path()) == before);
  for (const char* which : {"step-2", "newest-whole"})
    for (const std::string& command : commands) {
      const Copy other;
      other.flip_bit("a/checkpoints/step-4/model.safetensors", 5);
      const Ended ended = run_words(other, command + " --checkpoint " + which);
      CHECK_MESSAGE(ended.status == 0, ended.err);
      CHECK(contains(ended.err, "warning: a/checkpoints/step-4 is not whole: step-2 is taken instead") ==
            (which == std::string("newest-whole") && !command.starts_with("train")));
    }
}

TEST_CASE("program: a run taken back to an older checkpoint ends with the bytes of one that was not") {
  if (!has_program()) return;
  const Copy copy;
  copy.flip_bit("a/checkpoints/step-4/optimizer.safetensors", 9);
  const Ended ended = run_words(copy, "train --resume a --checkpoint newest-whole");
  CHECK_MESSAGE(ended.status == 0, ended.err);
  CHECK(contains(ended.out, "resumed at step 2"));
  CHECK(contains(ended.out, "step-4 is not whole: step-2 is taken instead"));
  for (const char* file : {"model.safetensors", "optimizer.safetensors", "recurrent.safetensors"}) {
    const std::string name = std::string("a/checkpoints/step-4/") + file;
    CHECK_MESSAGE(copy.bytes(name) == read_text_file(trained_staircase().path(name)), name);
  }
  CHECK(run_words(copy, "check a --all").status == 0);
}

TEST_CASE("program: checkpoints that are not there or named wrongly are refused with those that are") {
  if (!has_program()) return;
  const Copy copy;
  check_damaged(run_words(copy, "eval a --checkpoint step-3"),
                "a has no checkpoint step-3 (it has step-4, step-2, step-0)");
  check_damaged(run_words(copy, "train --resume a --checkpoint best"), "no best checkpoint");
  const Ended wrong = run_words(copy, "eval a --checkpoint newest");
  CHECK(wrong.status == 2);
  CHECK(contains(wrong.err, "newest is not latest, best, newest-whole or step-N"));
  check_damaged(run_words(copy, "train --data text.txt --run b --checkpoint best"), "no run to take it from");
  CHECK(!fs::exists(copy.path("b")));
  check_damaged(run_words(copy, "train --resume a/checkpoints/step-2"),
                "is a checkpoint (to continue from it: --resume " + copy.path("a") + " --checkpoint step-2;");
  copy.write("a/checkpoints/latest", "");
  check_damaged(run_words(copy, "train --resume a"),
                "a/checkpoints/latest is empty; step-4 is whole (go on from it");
  CHECK(run_words(copy, "train --resume a --checkpoint step-4 --train.steps 5").status == 0);
  CHECK(copy.bytes("a/checkpoints/latest") == "step-5\n");
}

TEST_CASE("program: a missing state of a run that carries one is an error and no cold start") {
  if (!has_program()) return;
  const Copy copy;
  fs::remove(copy.path("a/checkpoints/step-4/recurrent.safetensors"));
  check_damaged(run_words(copy, "train --resume a --train.steps 5"),
                "step-4/recurrent.safetensors is missing: it was saved with the checkpoint; step-2 is whole");
}

TEST_CASE("program: check prints a line for each file and what is wrong with it") {
  if (!has_program()) return;
  const Copy copy;
  const Ended whole = run_words(copy, "check a");
  CHECK_MESSAGE(whole.status == 0, whole.out);
  for (const char* file : {"a/config.json", "a/tokenizer.json", "a/metrics.jsonl", "a/checkpoints/latest",
                           "a/checkpoints/step-4/digests", "a/checkpoints/step-4/model.safetensors",
                           "a/checkpoints/step-4/recurrent.safetensors", "a/checkpoints/step-4/state.json"})
    CHECK_MESSAGE(contains(whole.out, file), file);
  CHECK(contains(whole.out, "nothing is wrong"));
  CHECK(!contains(whole.out, "step-2"));

  copy.flip_bit("a/checkpoints/step-2/state.json", 20);
  CHECK(run_words(copy, "check a").status == 0);
  const Ended all = run_words(copy, "check a --all");
  CHECK(all.status == 1);
  CHECK(contains(all.out, "a/checkpoints/step-2/state.json: its digest is "));
  CHECK(contains(all.out, "wrong: 1 file; the newest checkpoint that is whole is step-4"));
  CHECK(run_words(copy, "check a/checkpoints/step-2").status == 1);
  CHECK(run_words(copy, "check a/checkpoints/step-4").status == 0);

  fs::remove(copy.path("a/checkpoints/step-4/optimizer.safetensors"));
  copy.write("a/metrics.jsonl", "nonsense\n");
  copy.write("a/checkpoints/latest", "step-9\n");
  const Ended more = run_words(copy, "check a --all");
  CHECK(more.status == 1);
  CHECK(contains(more.out, "MISSING"));
  CHECK(contains(more.out, "metrics.jsonl: 1 line is no record, the first is line 1"));
  CHECK(contains(more.out, "latest: it names \"step-9\", which is no checkpoint"));
  CHECK(contains(more.out, "the newest checkpoint that is whole is step-0"));
  for (const char* step : {"step-0", "step-2", "step-4"})
    fs::remove(copy.path(std::string("a/checkpoints/") + step + "/digests"));
  CHECK(contains(run_words(copy, "check a/checkpoints/step-0").out, "digests is missing"));
  check_damaged(run_words(copy, "check nowhere"), "nowhere is not a folder");
}

TEST_CASE("program: check and the commands that load a run judge a pointer by the same rule") {
  if (!has_program()) return;
  for (const char* latest : {"step-4\n", "../checkpoints/step-4\n", "step-3\n", "", "step-4/\n"}) {
    CAPTURE(latest);
    const Copy copy;
    copy.write("a/checkpoints/latest", latest);
    const Ended checked = run_words(copy, "check a"), read = run_words(copy, "generate a --tokens 1");
    CHECK(checked.status == read.status);
    CHECK((checked.status == 0) == (latest == std::string("step-4\n")));
  }
  const Copy copy;
  fs::remove(copy.path("a/checkpoints/latest"));
  CHECK(run_words(copy, "check a").status == 0);
  CHECK(contains(run_words(copy, "generate a --tokens 1").err, "latest is missing: step-4 is taken"));
}

TEST_CASE("program: a finished run that is resumed says so and names the key that goes on") {
  if (!has_program()) return;
  const Copy copy;
  const Ended ended = run_words(copy, "train --resume a");
  CHECK(ended.status == 0);
  CHECK(contains(ended.out,
                 "all 4 steps are done: nothing is left to train (go on with --train.steps N, N above 4)"));
  CHECK(copy.bytes("a/metrics.jsonl") == read_text_file(trained_staircase().path("a/metrics.jsonl")));
}

TEST_CASE("program: another batch for a run that reads streams is refused by its key") {
  if (!has_program()) return;
  const Copy copy;
  check_damaged(run_words(copy, "train --resume a --train.batch 5 --train.steps 9"), "train.batch is 5");
}

TEST_CASE("program: a flipped byte anywhere in a session is found and none is blamed on the weights") {
  if (!has_program()) return;
  const Copy copy;
  CHECK(run_words(copy, "generate a --tokens 5 --save-session s").status == 0);
  CHECK(run_words(copy, "check s").status == 0);
  const std::string whole = copy.bytes("s");
  for (std::size_t place = 0; place < whole.size(); place += whole.size() / 60 + 1) {
    CAPTURE(place);
    copy.write("s", whole);
    copy.flip_bit("s", whole.size() - place);
    const Ended ended = run_words(copy, "generate a --tokens 1 --session s");
    CHECK(ended.status == 1);
    CHECK_MESSAGE(!contains(ended.err, "weights"), ended.err);
    CHECK(run_words(copy, "check s").status == 1);
  }
}

TEST_CASE("program: a run killed before its first checkpoint is begun again by the same command") {
  if (!has_program()) return;
  const Copy copy;
  fs::remove_all(copy.path("a/checkpoints"));
  for (const char* file : {"metrics.jsonl", "report.html"}) fs::remove(copy.path(std::string("a/") + file));
  copy.write("a/config.json.tmp-999999999-0", "{");
  check_damaged(run_words(copy, "train --resume a"),
                "a holds no checkpoint (it ended before its first one: start it again");
  const Ended again = run_words(copy, kTrainStaircase);
  CHECK_MESSAGE(again.status == 0, again.err);
  CHECK(!fs::exists(copy.path("a/config.json.tmp-999999999-0")));
  const std::string model = "a/checkpoints/step-4/model.safetensors";
  CHECK(copy.bytes(model) == read_text_file(trained_staircase().path(model)));
}
