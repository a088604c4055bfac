// How a run goes on by the plain command: after a kill at any moment, with a file of it lost, damaged or in the
// wrong place, beside its readers, and when there is nothing left to do.
#include <doctest/doctest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "models/optimizer/adam.h"
#include "ops/core/warnings.h"
#include "tensor/base/error.h"
#include "tests/support/errors.h"
#include "tests/support/processes.h"
#include "tests/support/threads.h"
#include "tests/support/tiny_run.h"
#include "tests/train/run/runs.h"
#include "train/record/metrics.h"
#include "train/run/checkpoint.h"
#include "train/run/digests.h"
#include "train/run/run_folder.h"
#include "train/tasks/copy_data.h"

namespace {

using namespace eddy;
using namespace eddy::training;
using namespace eddy::test;
namespace fs = std::filesystem;

// A run with the checkpoints step-0, step-2, step-4 and step-6, with evaluations and samples.
TrainRequest whole_run(const TempFolder& folder, const std::string& name = "run") {
  TrainRequest request = tiny_run(folder, name);
  TrainConfig& t = request.config.train;
  t.checkpoint_every = t.eval_every = t.sample_every = 2;
  t.sample_tokens = 4;
  t.keep = 10;
  return request;
}

std::string warnings_of() {
  std::string text;
  for (const std::string& warning : take_warnings()) text += warning + "\n";
  return text;
}

void check_same_weights(const std::string& a, const std::string& b) {
  CHECK(bytes_of(latest_of(a), "model.safetensors") == bytes_of(latest_of(b), "model.safetensors"));
}

// Puts a copy of a checkpoint in the place of another.
void put(const fs::path& from, const fs::path& to) {
  fs::remove_all(to);
  fs::copy(from, to, fs::copy_options::recursive);
}

}  // namespace

TEST_CASE("recovery: a run killed between its first checkpoint and latest goes on by either command") {
  const OneThread one;
  const TempFolder folder;
  const TrainRequest whole = whole_run(folder, "whole"), request = whole_run(folder);
  CHECK(train_quietly(whole) == TrainEnd::finished);
  for (const bool resuming : {true, false}) {
    CAPTURE(resuming);
    fs::remove_all(request.run_dir);
    TrainRequest first = request;
    first.config.train.steps = 0;
    first.config.train.eval_every = first.config.train.sample_tokens = 0;
    CHECK(train_quietly(first) == TrainEnd::finished);
    fs::remove(request.run_dir + "/checkpoints/latest");
    fs::remove(request.run_dir + "/report.html");
    CHECK(ended_before_first_checkpoint(request.run_dir));
    static_cast<void>(take_warnings());
    CHECK(train_quietly(resuming ? resumed(request, 6) : request) == TrainEnd::finished);
    check_same_weights(request.run_dir, whole.run_dir);
    CHECK(take_warnings().empty());  // they are events
  }
}

TEST_CASE("recovery: a lost latest is written again and the newest whole checkpoint is taken") {
  const OneThread one;
  const TempFolder folder;
  const TrainRequest request = whole_run(folder);
  CHECK(train_quietly(request) == TrainEnd::finished);
  fs::remove(request.run_dir + "/checkpoints/latest");
  fs::remove(request.run_dir + "/checkpoints/step-6/model.safetensors");
  static_cast<void>(take_warnings());
  CHECK(load_run(request.run_dir).step == 4);
  CHECK(contains(warnings_of(), "latest is missing: step-4 is taken"));
  CHECK(train_quietly(resumed(request, 6)) == TrainEnd::finished);
  CHECK(read_text_file(request.run_dir + "/checkpoints/latest") == "step-6\n");
}

TEST_CASE("recovery: no training goes on from a checkpoint without digests and reading its model warns") {
  const OneThread one;
  const TempFolder folder;
  const TrainRequest request = whole_run(folder);
  CHECK(train_quietly(request) == TrainEnd::finished);
  fs::remove(latest_of(request.run_dir) + "/digests");
  CHECK(!is_whole(latest_of(request.run_dir)));
  const std::string error = error_of<FormatError>([&] { train_quietly(resumed(request, 8)); });
  CHECK_MESSAGE(contains(error, "step-6/digests is missing: the checkpoint is not whole without it; step-4 "),
                error);
  reset_warnings();
  CHECK(load_run(request.run_dir).step == 6);
  CHECK(contains(warnings_of(), "step-6/digests is missing, so the model is not checked"));
}

TEST_CASE("recovery: a checkpoint whose state lacks a field is damaged and the error names the field") {
  const OneThread one;
  const TempFolder folder;
  const TrainRequest request = whole_run(folder);
  CHECK(train_quietly(request) == TrainEnd::finished);
  const std::string checkpoint = latest_of(request.run_dir), file = checkpoint + "/state.json";
  const nlohmann::json whole = nlohmann::json::parse(read_text_file(file));
  for (const char* key : {"loss", "run", "text_sha256", "text_phases", "baselines", "rollbacks", "task"}) {
    CAPTURE(key);
    nlohmann::json state = whole;
    CHECK(state.erase(key) == 1);
    replace_text_file(file, state.dump(1) + "\n");
    write_digests(checkpoint);
    const std::string error = error_of<FormatError>([&] { load_run(request.run_dir); });
    CHECK_MESSAGE(contains(error, "state.json is damaged: "), error);
    CHECK_MESSAGE(contains(error, std::string("'") + key + "'"), error);
  }
}

TEST_CASE("recovery: a checkpoint under the name of another step is refused") {
  const OneThread one;
  const TempFolder folder;
  const TrainRequest request = whole_run(folder);
  CHECK(train_quietly(request) == TrainEnd::finished);
  const fs::path checkpoints = request.run_dir + "/checkpoints";
  put(checkpoints / "step-4", checkpoints / "step-6");
  CHECK(!is_whole(checkpoints / "step-6"));
  CHECK(contains(error_of<FormatError>([&] { static_cast<void>(load_run(request.run_dir)); }),
                 "step-6 is not in its place: it is of step 4"));
  CHECK(find_checkpoint(request.run_dir, "newest-whole").filename() == "step-4");
  put(checkpoints / "step-4", folder.path("mine"));  // no name of a step: as the user calls it
  CHECK(load_run(folder.path("mine")).step == 4);
}

TEST_CASE("recovery: a checkpoint of another run is refused in this one") {
  const OneThread one;
  const TempFolder folder;
  TrainRequest mine = whole_run(folder, "mine"), other = whole_run(folder, "other");
  other.config.train.seed = 7;
  CHECK(train_quietly(mine) == TrainEnd::finished);
  CHECK(train_quietly(other) == TrainEnd::finished);
  const fs::path checkpoints = mine.run_dir + "/checkpoints", theirs = other.run_dir + "/checkpoints/step-6";
  CHECK(id_of_run(mine.run_dir) != id_of_run(other.run_dir));
  put(theirs, checkpoints / "step-6");
  for (const bool has_id : {true, false}) {
    CAPTURE(has_id);
    if (!has_id) fs::remove(fs::path(mine.run_dir) / kRunIdFile);
    CHECK(!is_whole(checkpoints / "step-6"));
    const std::string error = error_of<FormatError>([&] { train_quietly(resumed(mine, 8)); });
    CHECK_MESSAGE(contains(error, "it is of another run: id "), error);
    CHECK_MESSAGE(contains(error, "; step-4 is whole"), error);
    CHECK(find_checkpoint(mine.run_dir, "newest-whole").filename() == "step-4");
  }
  TrainRequest back = resumed(mine, 6);
  back.checkpoint = "newest-whole";
  CHECK(train_quietly(back) == TrainEnd::finished);
  CHECK(is_whole(checkpoints / "step-6"));
  CHECK(holds_run_id(mine.run_dir));
  // All checkpoints of another run are refused too, since the id lies beside them.
  fs::remove_all(checkpoints);
  fs::copy(other.run_dir + "/checkpoints", checkpoints, fs::copy_options::recursive);
  CHECK(contains(error_of<FormatError>([&] { train_quietly(resumed(mine, 8)); }), "it is of another run"));
  CHECK(fs::exists(theirs));
}

TEST_CASE("recovery: an id with a wrong digit is written anew from the checkpoints") {
  const OneThread one;
  const TempFolder folder;
  const TrainRequest request = whole_run(folder);
  CHECK(train_quietly(request) == TrainEnd::finished);
  const std::string file = request.run_dir + "/" + kRunIdFile, good = read_bytes(file),
                    id = id_of_run(request.run_dir);
  for (std::size_t i = 0; i < id.size(); ++i) {
    std::string wrong = good;
    wrong[i] = wrong[i] == '0' ? '1' : '0';
    write_bytes(file, wrong);
    CHECK(!holds_run_id(request.run_dir));
    CHECK(id_of_run(request.run_dir) == id);
  }
  CHECK(train_quietly(resumed(request, 8)) == TrainEnd::finished);
  CHECK(read_bytes(file) == good);
}

TEST_CASE("recovery: a damaged pointer names a way out that works and stops no command that needs it not") {
  const OneThread one;
  const TempFolder folder;
  const TrainRequest whole = whole_run(folder, "whole"), request = whole_run(folder);
  CHECK(train_quietly(whole) == TrainEnd::finished);
  for (const char* name : {"latest", "best"})
    for (const char* kind :
         {"folder", "full folder", "link to itself", "link to nothing", "pipe", "empty", "noise"}) {
      CAPTURE(name);
      CAPTURE(kind);
      fs::remove_all(request.run_dir);
      fs::copy(whole.run_dir, request.run_dir, fs::copy_options::recursive);
      const fs::path pointer = fs::path(request.run_dir) / "checkpoints" / name;
      const std::string how = kind;
      fs::remove(pointer);
      if (contains(how, "folder")) fs::create_directory(pointer);
      if (how == "full folder") folder.write("run/checkpoints/" + std::string(name) + "/mine", "mine");
      if (how == "link to itself") fs::create_symlink(pointer, pointer);
      if (how == "link to nothing") fs::create_symlink("nothing", pointer);
      if (how == "pipe") REQUIRE(::mkfifo(pointer.c_str(), 0600) == 0);
      if (how == "empty") replace_text_file(pointer, "");
      if (how == "noise") replace_text_file(pointer, std::string(500, 'x'));
      TrainRequest again = resumed(request, 7);
      if (name == std::string("latest")) {
        const std::string error = error_of<FormatError>([&] { train_quietly(again); });
        CHECK_MESSAGE(contains(error, "step-6 is whole (go on from it with --checkpoint step-6"), error);
        CHECK(load_run(request.run_dir, Dtype::f32, "step-4").step == 4);
        again.checkpoint = "newest-whole";
      } else {
        CHECK(load_run(request.run_dir).step == 6);
        CHECK(!error_of<Error>([&] {
                 static_cast<void>(load_run(request.run_dir, Dtype::f32, "best"));
               }).empty());
      }
      CHECK(train_quietly(again) == TrainEnd::finished);
      CHECK(load_run(request.run_dir).step == 7);
      CHECK(fs::is_regular_file(fs::symlink_status(pointer)));
      if (how == "full folder") CHECK(read_text_file(pointer.string() + ".aside/mine") == "mine");
    }
}

TEST_CASE("recovery: metrics and a report that cannot be read or written end no run") {
  const OneThread one;
  const TempFolder folder;
  const TrainRequest whole = whole_run(folder, "whole"), request = whole_run(folder);
  CHECK(train_quietly(whole) == TrainEnd::finished);
  for (const char* name : {"metrics.jsonl", "report.html"})
    for (const char* kind : {"folder", "link", "pipe", "removed"}) {
      CAPTURE(name);
      CAPTURE(kind);
      fs::remove_all(request.run_dir);
      fs::copy(whole.run_dir, request.run_dir, fs::copy_options::recursive);
      const fs::path file = fs::path(request.run_dir) / name;
      const std::string how = kind, elsewhere = folder.write("elsewhere", "mine");
      fs::remove(file);
      if (how == "folder") fs::create_directory(file);
      if (how == "link") fs::create_symlink(elsewhere, file);
      if (how == "pipe") REQUIRE(::mkfifo(file.c_str(), 0600) == 0);
      CHECK(train_quietly(resumed(request, 8)) == TrainEnd::finished);
      CHECK(load_run(request.run_dir).step == 8);
      CHECK(read_text_file(elsewhere) == "mine");
      CHECK(fs::is_regular_file(fs::symlink_status(file)));
    }
}

TEST_CASE("recovery: a resume leaves the metrics of a backup by hard links alone") {
  const OneThread one;
  const TempFolder folder;
  const TrainRequest request = whole_run(folder);
  CHECK(train_quietly(request) == TrainEnd::finished);
  const std::string file = request.run_dir + "/metrics.jsonl", before = read_text_file(file);
  fs::create_hard_link(file, folder.path("backup"));
  CHECK(train_quietly(resumed(request, 8)) == TrainEnd::finished);
  CHECK(read_text_file(folder.path("backup")) == before);
  CHECK(read_text_file(file).starts_with(before));
}

TEST_CASE("recovery: a resume of a finished run records nothing and saves nothing and names the key") {
  const OneThread one;
  const TempFolder folder;
  const TrainRequest request = whole_run(folder);
  CHECK(train_quietly(request) == TrainEnd::finished);
  fs::remove(request.run_dir + "/report.html");
  const std::string checkpoint = latest_of(request.run_dir), state = bytes_of(checkpoint, "state.json");
  const std::string metrics = read_text_file(request.run_dir + "/metrics.jsonl");
  CHECK(train_quietly(resumed(request, 6)) == TrainEnd::finished);
  CHECK(read_text_file(request.run_dir + "/metrics.jsonl") == metrics);
  CHECK(bytes_of(checkpoint, "state.json") == state);
  CHECK(fs::exists(request.run_dir + "/report.html"));
}

TEST_CASE("recovery: an evaluation and a sample that are recorded for the step are not made again") {
  const OneThread one;
  const TempFolder folder;
  const TrainRequest whole = whole_run(folder, "whole"), request = whole_run(folder);
  CHECK(train_quietly(whole) == TrainEnd::finished);
  CHECK(train_quietly(request) == TrainEnd::finished);
  for (const std::int64_t from : {4, 2, 0}) {
    TrainRequest again = resumed(request, 6);
    again.checkpoint = "step-" + std::to_string(from);
    CHECK(train_quietly(again) == TrainEnd::finished);
  }
  const Metrics mine = metrics_of(request.run_dir), theirs = metrics_of(whole.run_dir);
  check_same_evaluations(mine.evals, theirs.evals);
  REQUIRE(mine.samples.size() == theirs.samples.size());
  for (std::size_t i = 0; i < mine.samples.size(); ++i) CHECK(mine.samples[i].text == theirs.samples[i].text);
  for (const char* pointer : {"latest", "best"})
    CHECK(read_text_file(request.run_dir + "/checkpoints/" + pointer) ==
          read_text_file(whole.run_dir + "/checkpoints/" + pointer));
}

TEST_CASE("recovery: a run that its task ended stays ended until it may go on") {
  const OneThread one;
  const TempFolder folder;
  TrainRequest request = curriculum_run(folder, "run", 8);
  request.config.data.stop_loss = 100;  // reached at once
  CHECK(train_quietly(request) == TrainEnd::finished);
  CHECK(load_run(request.run_dir).step == 2);
  const std::string metrics = read_text_file(request.run_dir + "/metrics.jsonl");
  CHECK(train_quietly(resumed(request, 6)) == TrainEnd::finished);
  CHECK(load_run(request.run_dir).step == 2);
  CHECK(read_text_file(request.run_dir + "/metrics.jsonl") == metrics);
  TrainRequest on = resumed(request, 6);
  on.config.data.stop_loss = 0;
  CHECK(train_quietly(on) == TrainEnd::finished);
  CHECK(load_run(request.run_dir).step == 6);
}

TEST_CASE("recovery: a run folder that is moved ends the run and is gone on with where it is") {
  const OneThread one;
  const TempFolder folder;
  TrainRequest request = tiny_run(folder, "run");
  request.config.train.steps = 1'000'000;
  request.config.train.checkpoint_every = 200;
  Child child([&] {
    try {
      train(request);
    } catch (const IoError& error) {
      return contains(error.what(), "was moved while its run trained") &&
                     contains(error.what(), folder.path("moved"))
                 ? 42
                 : 97;
    }
    return 96;
  });
  REQUIRE(wait_until([&] { return has_steps(request.run_dir, 3); }));
  fs::rename(request.run_dir, folder.path("moved"));
  CHECK(child.wait() == 42);
  CHECK(!fs::exists(request.run_dir));
  request.run_dir = folder.path("moved");
  const std::int64_t step = load_run(request.run_dir).step;
  CHECK(step > 3);
  CHECK(train_quietly(resumed(request, step + 1)) == TrainEnd::finished);
}

TEST_CASE("recovery: a checkpoint that is read is not removed") {
  const OneThread one;
  const TempFolder folder;
  const TrainRequest request = whole_run(folder);
  CHECK(train_quietly(request) == TrainEnd::finished);
  const fs::path checkpoints = request.run_dir + "/checkpoints";
  {
    const CheckpointHold held(checkpoints / "step-2");
    prune_checkpoints(checkpoints, 6, {6}, 1, true, 0);
    CHECK(held.in_place());
    CHECK(checkpoints_of(request.run_dir) == std::vector<std::string>{"best", "latest", "step-2", "step-6"});
  }
  prune_checkpoints(checkpoints, 6, {6}, 1, true, 0);
  CHECK(checkpoints_of(request.run_dir) == std::vector<std::string>{"best", "latest", "step-6"});
}

TEST_CASE("recovery: readers beside a run that saves at every step meet no error") {
  const OneThread one;
  const TempFolder folder;
  TrainRequest request = tiny_run(folder, "run");
  TrainConfig& t = request.config.train;
  t.steps = 1'000'000;
  t.checkpoint_every = t.eval_every = t.eval_batches = 1;
  t.keep = 1;
  Child child([&] { return static_cast<int>(train(request)); });
  REQUIRE(wait_until([&] { return fs::exists(request.run_dir + "/checkpoints/latest"); }));
  for (int i = 0; i < 30; ++i)
    for (const char* which : {"latest", "newest-whole"})
      CHECK_NOTHROW(static_cast<void>(load_run(request.run_dir, Dtype::f32, which)));
  child.signal(SIGINT);
  CHECK(child.wait() == static_cast<int>(TrainEnd::interrupted));
}

TEST_CASE("recovery: a run whose checkpoints cannot be written is refused before it trains") {
  const OneThread one;
  const TempFolder folder;
  const TrainRequest request = whole_run(folder);
  CHECK(train_quietly(request) == TrainEnd::finished);
  const std::string before = read_text_file(request.run_dir + "/metrics.jsonl");
  fs::permissions(folder.path(), fs::perms::owner_all | fs::perms::group_all | fs::perms::others_all);
  fs::permissions(request.run_dir, fs::perms::owner_all | fs::perms::group_all | fs::perms::others_all);
  fs::permissions(request.run_dir + "/checkpoints", fs::perms(0555));
  Child reader([&] {
    if (::geteuid() == 0 && ::setuid(65534) != 0) return 2;  // root may write everywhere
    try {
      train_quietly(resumed(request, 8));
    } catch (const IoError& error) {
      return contains(error.what(), "nothing that is learned could be saved") ? 0 : 3;
    }
    return 4;
  });
  CHECK(reader.wait() == 0);
  CHECK(read_text_file(request.run_dir + "/metrics.jsonl") == before);
  fs::permissions(request.run_dir, fs::perms::none);
  Child stranger([&] {
    if (::geteuid() == 0 && ::setuid(65534) != 0) return 2;
    return contains(error_of<IoError>([&] { find_checkpoint(request.run_dir, "latest"); }),
                    "cannot be listed")
               ? 0
               : 3;
  });
  CHECK(stranger.wait() == 0);
  fs::permissions(request.run_dir, fs::perms::owner_all);
  fs::permissions(request.run_dir + "/checkpoints", fs::perms::owner_all);
}

TEST_CASE("recovery: a new run that cannot be made says why") {
  const OneThread one;
  const TempFolder folder;
  TrainRequest request = whole_run(folder);
  fs::create_symlink("nowhere", folder.path("link"));
  request.run_dir = folder.path("link");
  CHECK(contains(error_of<IoError>([&] { train_quietly(request); }), "it is a link to nothing"));
  request.run_dir = folder.path("text.txt/below/run");
  CHECK(
      contains(error_of<IoError>([&] { train_quietly(request); }), "text.txt is no folder (choose another)"));
}

TEST_CASE("recovery: the moments of another optimizer are not taken for those of this one") {
  const OneThread one;
  const TempFolder folder;
  const TrainRequest request = whole_run(folder);
  CHECK(train_quietly(request) == TrainEnd::finished);
  TrainRequest other = resumed(request, 8);
  other.config.train.optimizer = "adafactor";
  CHECK(contains(
      error_of<ConfigError>([&] { train_quietly(other); }),
      "train.optimizer is adafactor, and " + latest_of(request.run_dir) + " holds the moments of adamw"));
  other.config.train.optimizer = "adam";  // the same moments
  CHECK(train_quietly(other) == TrainEnd::finished);
}

TEST_CASE("recovery: a run that diverged names the checkpoint from before that") {
  const OneThread one;
  const TempFolder folder;
  TrainRequest request = whole_run(folder);
  request.config.train.steps = 4;
  CHECK(train_quietly(request) == TrainEnd::finished);
  const std::string best = read_pointer(fs::path(request.run_dir) / "checkpoints/best").name;
  REQUIRE(!best.empty());
  request = resumed(request, 60);
  request.config.train.learning_rate = 1e30;
  CHECK(train_quietly(request) == TrainEnd::too_many_bad_steps);
  const std::string page = read_text_file(request.resume + "/report.html");
  CHECK(contains(page, "to go back to before that: "));
  CHECK_MESSAGE(contains(page, "--checkpoint</span> " + best + " "), best);
  request.checkpoint = best;
  request.config.train.learning_rate = 1e-3;
  CHECK(train_quietly(request) == TrainEnd::finished);
}
