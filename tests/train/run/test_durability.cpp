// What becomes of a checkpoint that is no longer what was saved, which checkpoints stay, and how a run begins
// again where it was killed.
#include <doctest/doctest.h>
#include <sys/stat.h>

#include <cerrno>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "models/optimizer/adam.h"
#include "ops/core/warnings.h"
#include "tensor/base/error.h"
#include "tests/support/errors.h"
#include "tests/support/threads.h"
#include "tests/support/tiny_run.h"
#include "tests/train/run/runs.h"
#include "train/files/digest.h"
#include "train/record/metrics.h"
#include "train/run/checkpoint.h"
#include "train/run/digests.h"
#include "train/run/run_folder.h"

namespace {

using namespace eddy;
using namespace eddy::training;
using namespace eddy::test;
namespace fs = std::filesystem;

// A run with a carried state and the checkpoints step-0, step-2, step-4 and step-6.
TrainRequest carried_run(const TempFolder& folder) {
  TrainRequest request = tiny_run(folder, "run");
  request.config.model.family = "staircase";
  request.config.model.model = "lstm";
  request.config.data.order = "stream";
  request.config.train.checkpoint_every = 2;
  request.config.train.keep = 10;
  return request;
}

void flip_bit(const fs::path& file, std::size_t byte, int bit) {
  std::string bytes = read_text_file(file);
  bytes.at(byte) = static_cast<char>(bytes.at(byte) ^ (1 << bit));
  replace_text_file(file, bytes);
}

// A checkpoint like that of `run`, at `step`, with these losses.
void save_with_loss(const LoadedRun& run, const std::string& to, std::int64_t step, double loss,
                    double lowest, bool best = false) {
  Adam optimizer(run.model->params(), run.config.train);
  TrainingState state = run.state;
  state.step = step;
  state.loss = loss;
  state.lowest_loss = lowest;
  fs::create_directory(to);
  save_checkpoint(to, run.config, run.tokenizer.get(), *run.model, optimizer.save(), {}, state, best, 2);
}

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

}  // namespace

TEST_CASE("digest: the digits are those of xxh128sum however the bytes are cut") {
  // printf abc | xxh128sum, and the same of nothing.
  Digest whole, cut, none;
  whole.update("abc");
  for (const char* part : {"a", "", "bc"}) cut.update(part);
  CHECK(whole.hex() == "06b05ab6733a618578af5f94892f3950");
  CHECK(cut.hex() == whole.hex());
  CHECK(none.hex() == "99aa06d3014798d86001c324468d497f");
  const TempFolder folder;
  const std::string long_text = generate_stories(3, 600'000);
  Digest text;
  text.update(long_text);
  const FileDigest file = digest_of_file(InputFile(folder.write("text", long_text)));
  CHECK(file.bytes == static_cast<std::int64_t>(long_text.size()));
  CHECK(file.hex == text.hex());
  CHECK(contains(error_of<IoError>([&] { digest_of_file(InputFile(folder.path())); }), "not a regular file"));
  CHECK(contains(error_of<IoError>([&] { digest_of_file(InputFile(folder.path("none"))); }), "none"));
}

TEST_CASE("durability: a flipped bit anywhere in a checkpoint is refused and the whole one before is named") {
  const OneThread one;
  const TempFolder folder;
  const TrainRequest request = carried_run(folder);
  CHECK(train_quietly(request) == TrainEnd::finished);
  const fs::path checkpoint = latest_of(request.run_dir);
  const std::string latest = read_text_file(request.run_dir + "/checkpoints/latest");
  for (const char* name :
       {"model.safetensors", "optimizer.safetensors", "recurrent.safetensors", "state.json", "digests"}) {
    CAPTURE(name);
    const std::string whole = read_text_file(checkpoint / name);
    for (const std::size_t place : {std::size_t{3}, whole.size() / 2, whole.size() - 2}) {
      CAPTURE(place);
      flip_bit(checkpoint / name, place, 6);
      CHECK(!is_whole(checkpoint));
      const std::string error = error_of<FormatError>([&] { train_quietly(resumed(request, 8)); });
      CHECK_MESSAGE(contains(error, checkpoint.string()), error);
      CHECK_MESSAGE(contains(error, "; step-4 is whole (go on from it with --checkpoint step-4"), error);
      CHECK(read_text_file(request.run_dir + "/checkpoints/latest") == latest);
      replace_text_file(checkpoint / name, whole);
    }
    fs::remove(checkpoint / name);
    CHECK(contains(error_of<FormatError>([&] { train_quietly(resumed(request, 8)); }), name));
    replace_text_file(checkpoint / name, whole);
  }
  CHECK(is_whole(checkpoint));
  CHECK(train_quietly(resumed(request, 8)) == TrainEnd::finished);
}

TEST_CASE("durability: a run goes on from the checkpoint that is named to the bits of an unbroken one") {
  const OneThread one;
  const TempFolder folder;
  const TrainRequest request = carried_run(folder);
  CHECK(train_quietly(request) == TrainEnd::finished);
  const fs::path checkpoint = latest_of(request.run_dir);
  const std::string weights = read_text_file(checkpoint / "model.safetensors");
  for (const char* which : {"step-2", "newest-whole"}) {
    CAPTURE(which);
    flip_bit(checkpoint / "model.safetensors", weights.size() - 5, 3);
    TrainRequest again = resumed(request, 6);
    again.checkpoint = which;
    CHECK(train_quietly(again) == TrainEnd::finished);
    CHECK(read_text_file(checkpoint / "model.safetensors") == weights);
    CHECK(is_whole(checkpoint));
  }
  CHECK(contains(events_of(request.run_dir), "resumed at step 2"));
}

TEST_CASE("durability: a checkpoint of another format is refused with both numbers") {
  const OneThread one;
  const TempFolder folder;
  const TrainRequest request = carried_run(folder);
  CHECK(train_quietly(request) == TrainEnd::finished);
  const std::string checkpoint = latest_of(request.run_dir), file = checkpoint + "/state.json";
  for (const char* format : {"\"format\": 2", "\"later\": 1"}) {
    std::string state = read_text_file(file);
    state.replace(state.find("\"format\": 1"), 11, format);
    replace_text_file(file, state);
    write_digests(checkpoint);
    const std::string error = error_of<FormatError>([&] { load_run(request.run_dir); });
    CHECK_MESSAGE(contains(error, file + " has "), error);
    CHECK_MESSAGE(contains(error, ", and this program reads 1: take the program that wrote it"), error);
    state.replace(state.find(format), 11, "\"format\": 1");
    replace_text_file(file, state);
  }
}

TEST_CASE("durability: names of checkpoints find them or say which there are") {
  const OneThread one;
  const TempFolder folder;
  const TrainRequest request = carried_run(folder);
  CHECK(train_quietly(request) == TrainEnd::finished);
  const std::string run = request.run_dir;
  const auto found = [&](const char* which) { return find_checkpoint(run, which).filename(); };
  CHECK(found("latest") == "step-6");
  CHECK(found("newest-whole") == "step-6");
  CHECK(found("step-2") == "step-2");
  CHECK(find_checkpoint(run + "/checkpoints/step-6/", "latest").filename() == "step-6");
  CHECK(find_checkpoint(run + "/checkpoints/step-6", "step-4").filename() == "step-4");
  CHECK(contains(error_of<IoError>([&] { found("step-3"); }), "it has step-6, step-4, step-2, step-0"));
  CHECK(contains(error_of<IoError>([&] { found("best"); }), "no best checkpoint"));
  CHECK(contains(error_of<ValueError>([&] { found("step-"); }), "no checkpoint is called"));
  replace_text_file(run + "/checkpoints/latest", "");
  CHECK(contains(error_of<FormatError>([&] { found("latest"); }), "latest is empty; step-6 is whole"));
  CHECK(found("newest-whole") == "step-6");
  // What lies behind `latest` is left of a time from which the run was taken back.
  replace_text_file(run + "/checkpoints/latest", "step-2\n");
  CHECK(found("newest-whole") == "step-2");
  for (const char* name : {"step-0", "step-2", "step-4", "step-6"})
    fs::remove(fs::path(run) / "checkpoints" / name / "optimizer.safetensors");
  CHECK(contains(error_of<FormatError>([&] { found("newest-whole"); }), "is whole (step-6, step-4"));
  CHECK(contains(error_of<FormatError>([&] { train_quietly(resumed(request, 8)); }),
                 "the run has no checkpoint that is whole"));
  const TrainRequest inside = resumed(request, 8);
  TrainRequest wrong = inside;
  wrong.resume = run + "/checkpoints/step-4";
  const std::string error = error_of<ValueError>([&] { train_quietly(wrong); });
  CHECK_MESSAGE(contains(error, "--resume " + run + " --checkpoint step-4"), error);
}

TEST_CASE("durability: pruning keeps the last two checkpoints from before the loss was lost") {
  const OneThread one;
  const TempFolder folder;
  const TrainRequest request = tiny_run(folder, "made");
  CHECK(train_quietly(request) == TrainEnd::finished);
  const LoadedRun run = load_run(request.run_dir);
  CHECK(std::isfinite(run.state.loss));
  CHECK(run.state.lowest_loss <= run.state.loss);
  for (const double lost : {kNan, 5.5, std::numeric_limits<double>::infinity()}) {
    CAPTURE(lost);
    const TempFolder other;
    const std::string to = other.path("run");
    save_with_loss(run, to, 10, 3.5, 3.5, true);
    for (const std::int64_t step : {15, 20}) save_with_loss(run, to, step, 3.4, 3.4);
    for (const std::int64_t step : {30, 40, 50, 60}) save_with_loss(run, to, step, lost, 3.4);
    CHECK(checkpoints_of(to) ==
          std::vector<std::string>{"best", "latest", "step-10", "step-15", "step-20", "step-50", "step-60"});
    // Once the run goes well again they are old checkpoints like others.
    save_with_loss(run, to, 70, 5.3, 3.4);
    CHECK(checkpoints_of(to) == std::vector<std::string>{"best", "latest", "step-10", "step-60", "step-70"});
  }
}

TEST_CASE("durability: pruning leaves what is newer than the checkpoint that was saved") {
  const OneThread one;
  const TempFolder folder;
  const TrainRequest request = tiny_run(folder, "made");
  CHECK(train_quietly(request) == TrainEnd::finished);
  const LoadedRun run = load_run(request.run_dir);
  const std::string to = folder.path("run");
  for (const std::int64_t step : {10, 20, 30, 40}) save_with_loss(run, to, step, 3, 3);
  CHECK(checkpoints_of(to) == std::vector<std::string>{"latest", "step-30", "step-40"});
  for (const std::int64_t step : {31, 32}) save_with_loss(run, to, step, 3, 3);
  CHECK(checkpoints_of(to) == std::vector<std::string>{"latest", "step-31", "step-32", "step-40"});
  CHECK(find_checkpoint(to, "newest-whole").filename() == "step-32");
}

TEST_CASE("durability: a run that diverges and is resumed keeps its last good checkpoint") {
  const OneThread one;
  const TempFolder folder;
  TrainRequest request = tiny_run(folder, "run");
  TrainConfig& t = request.config.train;
  t.checkpoint_every = 1;
  t.keep = 2;
  t.max_bad_steps = 100;
  CHECK(train_quietly(request) == TrainEnd::finished);
  TrainRequest worse = resumed(request, 20);
  worse.config.train.learning_rate = 3e38;  // the weights after step 7 have no finite loss
  worse.config.train.clip = 0;
  CHECK(train_quietly(worse) == TrainEnd::finished);
  const std::vector<std::string> left = checkpoints_of(request.run_dir);
  CHECK(left == std::vector<std::string>{"latest", "step-19", "step-20", "step-6", "step-7"});
  TrainRequest back = resumed(request, 8);
  back.checkpoint = "step-6";
  CHECK(train_quietly(back) == TrainEnd::finished);
  CHECK(std::isfinite(load_run(request.run_dir).state.loss));
}

TEST_CASE("durability: a run killed before its first checkpoint begins again in its folder") {
  const OneThread one;
  const TempFolder folder;
  const TrainRequest whole = tiny_run(folder, "whole");
  CHECK(train_quietly(whole) == TrainEnd::finished);
  const TrainRequest request = tiny_run(folder, "run");
  // All that a kill at any moment can leave, one after the other.
  const std::vector<std::pair<std::string, std::string>> left{
      {"config.json.tmp-999999999-0", "{"},
      {"config.json", read_text_file(whole.run_dir + "/config.json")},
      {"tokenizer.json", read_text_file(whole.run_dir + "/tokenizer.json")},
      {"metrics.jsonl", "{\"kind\":\"event\",\"step\":0,\"text\":\"a\"}\n{\"ki"},
      {"report.html", read_text_file(whole.run_dir + "/report.html")},
      {"tensorboard/events.out.tfevents.1.eddy", "part"},
      {"checkpoints/.tmp-step-0/model.safetensors.tmp-999999999-1", "part"}};
  for (std::size_t count = 0; count <= left.size(); ++count) {
    CAPTURE(count);
    fs::remove_all(request.run_dir);
    fs::create_directories(request.run_dir);
    for (std::size_t i = 0; i < count; ++i) folder.write("run/" + left[i].first, left[i].second);
    CHECK(ended_before_first_checkpoint(request.run_dir));
    if (count > 0)
      CHECK(contains(error_of<IoError>([&] { train_quietly(resumed(request, 6)); }), "start it again"));
    CHECK(train_quietly(request) == TrainEnd::finished);
    CHECK(!fs::exists(request.run_dir + "/config.json.tmp-999999999-0"));
    CHECK(read_text_file(latest_of(request.run_dir) + "/model.safetensors") ==
          read_text_file(latest_of(whole.run_dir) + "/model.safetensors"));
    CHECK(metrics_of(request.run_dir).events.size() == metrics_of(whole.run_dir).events.size());
  }
  CHECK(!ended_before_first_checkpoint(request.run_dir));
  CHECK(contains(error_of<IoError>([&] { train_quietly(request); }), "continue it with --resume"));
}

TEST_CASE("durability: a folder with anything of worth is not begun again") {
  const TempFolder folder;
  const std::string step = "{\"kind\":\"step\",\"step\":5,\"loss\":1.5}\n";
  for (const auto& [name, bytes] :
       std::vector<std::pair<std::string, std::string>>{{"notes.txt", "mine"},
                                                        {"report.html", "<html>"},
                                                        {"tensorboard/notes.txt", "mine"},
                                                        {"metrics.jsonl", step},
                                                        {"metrics.jsonl", "mine\n"},
                                                        {"checkpoints/step-5/model.safetensors", "weights"},
                                                        {"checkpoints/latest", "step-5\n"},
                                                        {"checkpoints/.tmp-old-step-5/state.json", "{}"}}) {
    CAPTURE(name);
    const std::string run = folder.path("run");
    fs::remove_all(run);
    fs::create_directories(run);
    folder.write("run/config.json", "{}");
    CHECK(ended_before_first_checkpoint(run));
    folder.write("run/" + name, bytes);
    CHECK(!ended_before_first_checkpoint(run));
    TrainRequest request = tiny_run(folder, "run");
    CHECK(contains(error_of<IoError>([&] { train_quietly(request); }), "exists"));
    CHECK(read_text_file(run + "/" + name) == bytes);
  }
  CHECK(!ended_before_first_checkpoint(folder.path("text.txt")));
}

TEST_CASE("durability: what a new run would write otherwise stays as it is and the folder is refused") {
  const TempFolder folder;
  const TrainRequest request = tiny_run(folder, "run");
  for (const auto& [name, bytes] : std::vector<std::pair<std::string, std::string>>{
           {"config.json", "{\"model\":{\"dim\":16}}\n"}, {"config.json", ""}, {"tokenizer.json", "{}"}}) {
    CAPTURE(name);
    fs::remove_all(request.run_dir);
    folder.write("run/" + name, bytes);
    folder.write("run/metrics.jsonl", "{\"kind\":\"event\",\"step\":0,\"text\":\"a\"}\n");
    const auto before = content_of(request.run_dir);
    CHECK(contains(error_of<IoError>([&] { train_quietly(request); }),
                   name + " exists and is not what this run would write there"));
    CHECK(content_of(request.run_dir) == before);
  }
}

TEST_CASE("durability: no link or pipe leads a run out of its folder") {
  const OneThread one;
  const TempFolder folder;
  TrainRequest request = tiny_run(folder, "run");
  const std::string outside = folder.write("outside/.tmp-mine", "mine");
  for (const char* name : {"metrics.jsonl", "config.json", "tokenizer.json", "checkpoints"}) {
    CAPTURE(name);
    fs::remove_all(request.run_dir);
    fs::create_directories(request.run_dir);
    fs::create_symlink(folder.path("outside"), request.run_dir + "/" + name);
    CHECK(contains(error_of<IoError>([&] { train_quietly(request); }), "exists"));
    CHECK(fs::is_symlink(request.run_dir + "/" + name));
  }
  fs::remove_all(request.run_dir);
  fs::create_directories(request.run_dir);
  REQUIRE(::mkfifo((request.run_dir + "/metrics.jsonl").c_str(), 0600) == 0);
  CHECK(contains(error_of<IoError>([&] { train_quietly(request); }), "exists"));
  CHECK(fs::is_fifo(request.run_dir + "/metrics.jsonl"));
  fs::remove_all(request.run_dir);
  CHECK(train_quietly(request) == TrainEnd::finished);
  fs::rename(request.run_dir + "/checkpoints", folder.path("elsewhere"));
  folder.write("elsewhere/.tmp-mine", "mine");
  fs::create_directory_symlink(folder.path("elsewhere"), request.run_dir + "/checkpoints");
  CHECK(contains(error_of<IoError>([&] { train_quietly(resumed(request, 7)); }), "checkpoints is a link"));
  CHECK(fs::exists(folder.path("elsewhere/.tmp-mine")));
  CHECK(fs::exists(outside));
}

TEST_CASE("durability: what the user puts beside the files of a checkpoint stays") {
  const OneThread one;
  const TempFolder folder;
  TrainRequest request = tiny_run(folder, "run");
  request.config.train.checkpoint_every = 1;
  request.config.train.keep = 1;
  CHECK(train_quietly(request) == TrainEnd::finished);
  folder.write("run/checkpoints/step-6/notes.txt", "mine");
  folder.write("run/checkpoints/.tmp-mine", "mine");
  CHECK(train_quietly(resumed(request, 8)) == TrainEnd::finished);
  CHECK(read_text_file(request.run_dir + "/checkpoints/step-6/notes.txt") == "mine");
  TrainRequest back = resumed(request, 7);
  back.checkpoint = "step-6";
  folder.write("run/checkpoints/step-7/notes.txt", "mine too");
  CHECK(train_quietly(back) == TrainEnd::finished);
  CHECK(read_text_file(request.run_dir + "/checkpoints/step-7/notes.txt") == "mine too");
  CHECK(read_text_file(request.run_dir + "/checkpoints/.tmp-mine") == "mine");
}

TEST_CASE("durability: a report that is not Eddy's stays and the run goes on without") {
  const OneThread one;
  const TempFolder folder;
  const TrainRequest request = tiny_run(folder, "run");
  CHECK(train_quietly(request) == TrainEnd::finished);
  folder.write("run/report.html", "<!DOCTYPE html><html>mine</html>");
  CHECK(train_quietly(resumed(request, 7)) == TrainEnd::finished);
  CHECK(read_text_file(request.run_dir + "/report.html") == "<!DOCTYPE html><html>mine</html>");
  int said = 0;
  for (const EventRecord& event : metrics_of(request.run_dir).events)
    if (contains(event.text, "report.html exists and is not a page of Eddy's")) ++said;
  CHECK(said == 1);
}

TEST_CASE("durability: a folder in which another process begins is left to it") {
  const TempFolder folder;
  const TrainRequest request = tiny_run(folder, "run");
  fs::create_directories(request.run_dir);
  const RunLock other(request.run_dir);
  CHECK(contains(error_of<IoError>([&] { train_quietly(request); }), "another process trains"));
  CHECK(fs::exists(request.run_dir));
}

TEST_CASE("durability: where a folder cannot be locked a file in it is") {
  const RunLock::Lock files_alone = [](int descriptor, int operation) {
    struct stat about {};
    if (::fstat(descriptor, &about) == 0 && !S_ISDIR(about.st_mode)) return ::flock(descriptor, operation);
    errno = EBADF;  // as NFS answers
    return -1;
  };
  const TempFolder folder;
  fs::create_directories(folder.path("run"));
  const std::string run = folder.path("run");
  reset_warnings();
  {
    const RunLock one(run, files_alone);
    CHECK(contains(error_of<IoError>([&] { const RunLock other(run, files_alone); }),
                   "another process trains"));
  }
  const RunLock again(run, files_alone);
  CHECK(take_warnings().empty());
  CHECK(ended_before_first_checkpoint(run));  // the file is nobody's work
}

TEST_CASE("durability: a folder that cannot be locked at all is trained in with a warning") {
  const RunLock::Lock never = [](int, int) {
    errno = ENOLCK;
    return -1;
  };
  const TempFolder folder;
  reset_warnings();
  const RunLock one(folder.path(), never), other(folder.path(), never);
  const std::vector<std::string> warnings = take_warnings();
  REQUIRE(warnings.size() == 1);
  CHECK(contains(warnings[0], folder.path() + " cannot be locked"));
}

TEST_CASE("durability: what killed processes left goes when a run is resumed and what others write stays") {
  const OneThread one;
  const TempFolder folder;
  const TrainRequest request = tiny_run(folder, "run");
  CHECK(train_quietly(request) == TrainEnd::finished);
  const std::string living = std::to_string(::getppid());
  const std::vector<std::string> goes{
      "run/report.html.tmp-999999999-3", "run/checkpoints/latest.tmp-999999999-0",
      "run/checkpoints/.tmp-step-9/state.json", "run/config.json.tmp-" + std::to_string(::getpid()) + "-77"};
  const std::vector<std::string> stays{"run/page.html.tmp-" + living + "-0", "run/notes.tmp-mine",
                                       "run/a.tmp-5", "run/copy.tmp-999999999-0/notes.txt",
                                       "run/checkpoints/.tmp-step-mine"};
  for (const std::string& name : goes) folder.write(name, "part");
  for (const std::string& name : stays) folder.write(name, "part");
  // Of a file system that cannot exchange folders: set aside to be replaced, when the kill came.
  fs::rename(latest_of(request.run_dir), folder.path("run/checkpoints/.tmp-old-step-6"));
  TrainRequest again = resumed(request, 6);
  again.checkpoint = "step-0";
  again.config.train.steps = 1;
  CHECK(train_quietly(again) == TrainEnd::finished);
  for (const std::string& name : goes) CHECK_MESSAGE(!fs::exists(folder.path(name)), name);
  for (const std::string& name : stays) CHECK_MESSAGE(fs::exists(folder.path(name)), name);
  CHECK(!fs::exists(folder.path("run/checkpoints/.tmp-step-9")));
  CHECK(is_whole(folder.path("run/checkpoints/step-6")));
}

TEST_CASE("durability: a foreign line in the metrics does not stop a resume") {
  const OneThread one;
  const TempFolder folder;
  const TrainRequest request = tiny_run(folder, "run");
  CHECK(train_quietly(request) == TrainEnd::finished);
  const std::string file = request.run_dir + "/metrics.jsonl", before = read_text_file(file);
  replace_text_file(file, before + std::string(40, '\0') + "\n");
  CHECK(train_quietly(resumed(request, 8)) == TrainEnd::finished);
  const Metrics metrics = read_metrics(file);
  CHECK(metrics.steps.size() == 8);
  CHECK(metrics.foreign == 1);
  std::string events;
  for (const EventRecord& event : metrics.events) events += event.text + "\n";
  CHECK(contains(events, "1 line that is no record, the first is line "));
}
