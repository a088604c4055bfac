// What the program says of a run before it begins: eddy plan, and train with --print-config and --dry-run.
#include <doctest/doctest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "tests/support/errors.h"
#include "tests/support/files.h"
#include "tests/support/program.h"
#include "train/text/stories/stories.h"

namespace {

using namespace eddy;
using namespace eddy::training;
using namespace eddy::test;
namespace fs = std::filesystem;

const std::string kRun =
    "--data text.txt --model.heads 2 --model.context 16 --train.steps 2 --train.sample_tokens 0 ";
const std::string kTinyPlanned = kRun + "--model.dim 16 --train.batch 4 ";

struct Place {
  TempFolder folder;
  Place() { folder.write("text.txt", generate_stories(3, 4000)); }
  Ended run(const std::string& line) const { return run_program({words_of(line), folder.path()}); }
};

// The names of all that lies in a folder.
std::vector<std::string> names_in(const std::string& folder) {
  std::vector<std::string> names;
  for (const auto& entry : fs::recursive_directory_iterator(folder)) names.push_back(entry.path().string());
  return names;
}

}  // namespace

TEST_CASE("program: plan counts the memory of a run and measures its speed and makes nothing") {
  if (!has_program()) return;
  const Place place;
  const std::vector<std::string> before = names_in(place.folder.path());
  for (const char* const model : {"unit_forget", "slide", "memory_llama", "staircase", "lstm"}) {
    const Ended end = place.run("plan " + kTinyPlanned + "--model " + model + " --seconds 0.001");
    REQUIRE_MESSAGE(end.status == 0, end.err);
    for (const char* const part : {"parameters", "gradients", "optimizer, adamw", "activations, 4 x", "state",
                                   "text", "peak", "operations a token", "tokens a second", "an epoch",
                                   "to the end", "train.recompute", "none, as now", "layer"})
      CHECK_MESSAGE(contains(end.out, part), model, ": ", part, "\n", end.out);
  }
  const Ended counted = place.run("plan " + kTinyPlanned + "--seconds 0");
  CHECK(contains(counted.out, "peak"));
  CHECK_FALSE(contains(counted.out, "tokens a second"));
  CHECK(names_in(place.folder.path()) == before);
}

TEST_CASE("program: a run that does not fit in memory is refused before it begins") {
  if (!has_program()) return;
  const Place place;
  const std::string huge = kRun + "--model.dim 1048576 --model.layers 1000 ";
  const Ended planned = place.run("plan " + huge);
  CHECK_MESSAGE(planned.status == 0, planned.err);
  CHECK_MESSAGE(contains(planned.out, "too much: the run takes more than "), planned.out);
  CHECK_MESSAGE(contains(planned.out, "the model alone is too large"), planned.out);
  const Ended trained = place.run("train --run run " + huge);
  CHECK(trained.status == 1);
  CHECK_MESSAGE(contains(trained.err, "the model alone is too large"), trained.err);
  CHECK_MESSAGE(!contains(trained.err, "train.batch"), trained.err);
  const Ended wide =
      place.run("train --run run " + kRun + "--train.batch 500000 --model.dim 16 --model.layers 64");
  CHECK(wide.status == 1);
  CHECK_MESSAGE(contains(wide.err, "train.accumulate"), wide.err);
  CHECK_MESSAGE(contains(wide.err, "train.memory_check warn overrules this"), wide.err);
  CHECK_FALSE(fs::exists(place.folder.path("run")));
}

TEST_CASE("program: a run that does not fit in memory begins where the check is overruled") {
  if (!has_program()) return;
  const Place place;
  const std::string wide =
      "train --dry-run --run run " + kRun + "--train.batch 500000 --model.dim 16 --model.layers 64 ";
  for (const char* const way : {"--train.memory_check warn", "--memory-check warn"}) {
    const Ended tried = place.run(wide + way);
    CHECK_MESSAGE(tried.status == 0, tried.err);
    CHECK_MESSAGE(contains(tried.err, "warning: the run takes "), tried.err);
    CHECK_MESSAGE(!contains(tried.err, "overrules"), tried.err);
  }
  CHECK(place.run("train --dry-run --run run " + kTinyPlanned + "--memory-check never").status == 2);
}

TEST_CASE("program: the printed configuration of a run gives the same run") {
  if (!has_program()) return;
  const Place place;
  const Ended first = place.run("train --print-config " + kTinyPlanned + "--model staircase");
  REQUIRE_MESSAGE(first.status == 0, first.err);
  CHECK_MESSAGE(contains(first.out, "model = \"staircase\""), first.out);
  CHECK_MESSAGE(!contains(first.out, "learning_rate"), first.out);
  place.folder.write("run.toml", first.out);
  const Ended again = place.run("train --print-config run.toml");
  CHECK(again.out == first.out);
  CHECK_FALSE(fs::exists(place.folder.path("run")));
}

TEST_CASE(
    "program: a timed run of a text without a file says what was chosen for it, and a file is complete") {
  if (!has_program()) return;
  const Place place;
  const Ended chosen = place.run("train --print-config --data text.txt --train.minutes 2 --model llama");
  REQUIRE_MESSAGE(chosen.status == 0, chosen.err);
  CHECK_MESSAGE(contains(chosen.err, "chosen for a text of 4000 bytes, 2 minutes and llama: "), chosen.err);
  CHECK_MESSAGE(contains(chosen.out, "schedule = \"cosine\""), chosen.out);
  place.folder.write("run.toml", chosen.out);
  const Ended again = place.run("train --print-config run.toml");
  CHECK(again.out == chosen.out);
  CHECK(again.err.empty());
  const Ended refused = place.run("train --run r --data text.txt --train.minutes 2 --model.heads 7");
  CHECK_MESSAGE(contains(refused.err, "heads 7 "), refused.err);
  CHECK_MESSAGE(contains(refused.err, "; chosen for a text of 4000 bytes, 2 minutes and "), refused.err);
}

TEST_CASE("program: a dry run checks everything and makes nothing") {
  if (!has_program()) return;
  const Place place;
  const std::vector<std::string> before = names_in(place.folder.path());
  const Ended good = place.run("train --dry-run --run new/run " + kTinyPlanned);
  CHECK_MESSAGE(good.status == 0, good.err);
  CHECK_MESSAGE(contains(good.out, "nothing was made"), good.out);
  CHECK(names_in(place.folder.path()) == before);
  for (const char* const wrong : {"--run new/run --data none.txt", "--run text.txt/run --data text.txt",
                                  "--run new/run --data text.txt --data.tokenizer none.model",
                                  "--run new/run --data text.txt --model.heads 7"})
    CHECK_MESSAGE(place.run("train --dry-run " + std::string(wrong)).status == 1, wrong);
  CHECK(names_in(place.folder.path()) == before);

  REQUIRE(place.run("train --run run " + kTinyPlanned).status == 0);
  const std::vector<std::string> trained = names_in(place.folder.path());
  CHECK(place.run("train --dry-run --run run " + kTinyPlanned).status == 1);
  CHECK(place.run("train --dry-run --resume run --train.steps 4").status == 0);
  CHECK(names_in(place.folder.path()) == trained);
}
