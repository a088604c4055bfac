// Going on with other texts: a run whose folder has grown, and a new run from the weights of another.
#include <doctest/doctest.h>

#include <cmath>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <regex>
#include <string>
#include <vector>

#include "models/weights.h"
#include "tensor/base/error.h"
#include "tensor/files/safetensors.h"
#include "tests/support/errors.h"
#include "tests/support/files.h"
#include "tests/support/threads.h"
#include "tests/support/tiny_run.h"
#include "tests/train/run/runs.h"
#include "train/files/sha256.h"
#include "train/record/metrics.h"
#include "train/run/checkpoint.h"

namespace {

using namespace eddy;
using namespace eddy::training;
using namespace eddy::test;
namespace fs = std::filesystem;

// 1500 bytes with every printable sign, so that all texts have one vocabulary.
std::string story(std::uint64_t seed) {
  std::string signs = "\n";
  for (char sign = ' '; sign <= '~'; ++sign) signs += sign;
  return generate_stories(seed, 1500 - std::ssize(signs)) + signs;
}

// A run on a folder of three texts.
TrainRequest run_on_folder(const TempFolder& folder, const std::string& name, const std::string& order) {
  for (int i = 1; i <= 3; ++i)
    folder.write("d/" + std::to_string(i) + ".txt", story(static_cast<std::uint64_t>(i)));
  TrainRequest request = tiny_run(folder, name);
  request.config.model.family = "block_recurrent";
  request.config.model.model = "slide";
  request.config.model.window = 8;
  request.config.model.segment = 16;
  request.config.model.layers = 1;
  request.config.data.path = folder.path("d");
  request.config.data.order = order;
  request.config.data.tokenizer = order == "documents" ? "byte260" : "char";
  request.config.data.split = 0.6;
  request.config.train.eval_every = 3;
  request.config.train.batch = 2;
  return request;
}

// The resumed run whose data were named again.
TrainRequest grown(const TrainRequest& request, std::int64_t steps) {
  TrainRequest result = resumed(request, steps);
  result.data_given = true;
  return result;
}

void copy_run(const std::string& from, const std::string& to) {
  fs::remove_all(to);
  fs::copy(from, to, fs::copy_options::recursive);
}

std::vector<std::string> files_of(const std::string& run) {
  std::vector<std::string> files;
  for (const char* name : {"model.safetensors", "optimizer.safetensors"})
    files.push_back(bytes_of(latest_of(run), name));
  files.push_back(load_run(run).state.task);
  return files;
}

}  // namespace

TEST_CASE("phases: a folder that has grown is a new phase from which a resume is exact to the bit") {
  const OneThread one;
  for (const std::string order : {"windows", "stream", "documents"}) {
    CAPTURE(order);
    const TempFolder folder;
    const TrainRequest begun = run_on_folder(folder, "run", order);
    CHECK(train_quietly(begun) == TrainEnd::finished);
    folder.write("d/0 new.txt", story(9));  // before the others by its name
    folder.write("d/sub/new.txt", story(10));
    CHECK(train_quietly(grown(begun, 9)) == TrainEnd::finished);
    const LoadedRun at_nine = load_run(begun.run_dir);
    REQUIRE(at_nine.state.text_phases.size() == 2);
    CHECK(at_nine.state.text_phases[0].parts.size() == 3);
    CHECK(at_nine.state.text_phases[1].parts.size() == 2);
    CHECK(at_nine.state.text_phases[1].step == 6);
    CHECK(contains(events_of(begun.run_dir),
                   "phase 2 of the texts begins at step 6: 2 texts (3000 bytes): 0 new.txt"));

    copy_run(begun.run_dir, folder.path("unbroken"));
    TrainRequest unbroken = begun;
    unbroken.run_dir = folder.path("unbroken");
    CHECK(train_quietly(resumed(unbroken, 14)) == TrainEnd::finished);
    // What comes later is left out, and names and order of the files say nothing.
    folder.write("d/later.txt", story(11));
    fs::rename(folder.path("d/1.txt"), folder.path("d/z.txt"));
    fs::rename(folder.path("d/sub/new.txt"), folder.path("d/2 moved.txt"));
    CHECK(train_quietly(resumed(begun, 11)) == TrainEnd::finished);
    CHECK(train_quietly(resumed(begun, 14)) == TrainEnd::finished);
    CHECK(files_of(begun.run_dir) == files_of(unbroken.run_dir));
    CHECK(load_run(begun.run_dir).state.text_phases == at_nine.state.text_phases);
    // A third phase.
    CHECK(train_quietly(grown(begun, 16)) == TrainEnd::finished);
    CHECK(load_run(begun.run_dir).state.text_phases.size() == 3);
  }
}

TEST_CASE("phases: without new files the data that are named again begin no phase") {
  const OneThread one;
  const TempFolder folder;
  const TrainRequest begun = run_on_folder(folder, "run", "stream");
  CHECK(train_quietly(begun) == TrainEnd::finished);
  copy_run(begun.run_dir, folder.path("other"));
  TrainRequest other = begun;
  other.run_dir = folder.path("other");
  CHECK(train_quietly(resumed(begun, 9)) == TrainEnd::finished);
  CHECK(train_quietly(grown(other, 9)) == TrainEnd::finished);
  CHECK(files_of(begun.run_dir) == files_of(other.run_dir));
  CHECK(load_run(other.run_dir).state.text_phases.size() == 1);
}

TEST_CASE("phases: one text becomes a folder with others and its rows go on in it") {
  const OneThread one;
  const TempFolder folder;
  for (const bool as_file : {true, false}) {
    CAPTURE(as_file);
    TrainRequest begun = run_on_folder(folder, as_file ? "file" : "folder", "stream");
    const std::string path = folder.path(as_file ? "one" : "single");
    folder.write(fs::path(path).filename().string() + "/a.txt", story(5));
    begun.config.data.path = as_file ? path + "/a.txt" : path;
    CHECK(train_quietly(begun) == TrainEnd::finished);
    const auto before = nlohmann::json::parse(load_run(begun.run_dir).state.task)["reading"]["rows"];
    folder.write(fs::path(path).filename().string() + "/0.txt", story(6));
    TrainRequest more = grown(begun, 7);
    more.config.data.path = path;
    CHECK(train_quietly(more) == TrainEnd::finished);
    const auto after = nlohmann::json::parse(load_run(begun.run_dir).state.task)["reading"]["rows"];
    for (std::size_t row = 0; row < 2; ++row) {
      CHECK(after[row]["sequence"] == before[row]["sequence"]);
      CHECK(after[row]["position"] == before[row]["position"].get<int>() + 16);
    }
    copy_run(begun.run_dir, folder.path("unbroken"));
    TrainRequest unbroken = more;
    unbroken.resume = folder.path("unbroken");
    unbroken.data_given = more.data_given = false;
    more.config.train.steps = 9;
    CHECK(train_quietly(more) == TrainEnd::finished);
    unbroken.config.train.steps = more.config.train.steps = 40;
    CHECK(train_quietly(more) == TrainEnd::finished);
    CHECK(train_quietly(unbroken) == TrainEnd::finished);
    CHECK(files_of(begun.run_dir) == files_of(unbroken.resume));
  }
}

TEST_CASE("phases: a folder with its own splits grows in each of them") {
  const OneThread one;
  const TempFolder folder;
  TrainRequest begun = run_on_folder(folder, "run", "stream");
  for (const char* name : {"s/train/a.txt", "s/train/b.txt", "s/valid/a.txt"}) folder.write(name, story(3));
  begun.config.data.path = folder.path("s");
  CHECK(train_quietly(begun) == TrainEnd::finished);
  folder.write("s/valid/0.txt", story(4));
  folder.write("s/train/c.txt", story(5));
  CHECK(train_quietly(grown(begun, 9)) == TrainEnd::finished);
  const TextPhase phase = load_run(begun.run_dir).state.text_phases.at(1);
  CHECK(phase.train == 1);
  CHECK(phase.valid == 1);
  CHECK(train_quietly(resumed(begun, 12)) == TrainEnd::finished);
  fs::rename(folder.path("s/train/c.txt"), folder.path("s/valid/c.txt"));  // it was trained on
  CHECK(contains(error_of<ConfigError>([&] { train_quietly(resumed(begun, 13)); }), "train/c.txt is gone"));
}

TEST_CASE("phases: texts that were trained on and are changed or gone are refused by name") {
  const OneThread one;
  const TempFolder folder;
  const TrainRequest begun = run_on_folder(folder, "run", "windows");
  CHECK(train_quietly(begun) == TrainEnd::finished);
  folder.write("d/new.txt", story(9));
  folder.write("d/1.txt", story(1) + "!");
  fs::remove(folder.path("d/3.txt"));
  for (const TrainRequest& request : {grown(begun, 9), resumed(begun, 9)}) {
    const std::string error = error_of<ConfigError>([&] { train_quietly(request); });
    CHECK_MESSAGE(contains(error, "1.txt is changed, 3.txt is gone (put back"), error);
  }
  CHECK(load_run(begun.run_dir).step == 6);
}

TEST_CASE(
    "phases: new characters are refused with the command that takes them in and so are steps that are done") {
  const OneThread one;
  const TempFolder folder;
  const TrainRequest begun = run_on_folder(folder, "run", "windows");
  CHECK(train_quietly(begun) == TrainEnd::finished);
  folder.write("d/new.txt", story(9));
  CHECK(contains(
      error_of<ConfigError>([&] { train_quietly(grown(begun, 6)); }),
      "has done all its 6 steps and would not read the new texts (give --train.steps N too, N above 6)"));
  folder.write("d/neu.txt", story(9) + "\u00e4\u00df");
  const std::string error = error_of<ConfigError>([&] { train_quietly(grown(begun, 9)); });
  for (const char* part :
       {"lacks 2 characters of the new texts, the first of them in neu.txt: '\u00df' (U+00DF), '\u00e4'",
        "eddy train --init-from ", " --run NEW"})
    CHECK_MESSAGE(contains(error, part), error);
  CHECK(load_run(begun.run_dir).state.text_phases.size() == 1);
}

TEST_CASE("phases: a run from the weights of another gives new characters rows and keeps the others") {
  const OneThread one;
  for (const bool tied : {false, true}) {
    CAPTURE(tied);
    const TempFolder folder;
    TrainRequest teacher = tiny_run(folder, "teacher");
    teacher.config.model.tied = tied;
    CHECK(train_quietly(teacher) == TrainEnd::finished);
    const LoadedRun known = load_run(teacher.run_dir);
    TrainRequest request = teacher;
    request.run_dir = folder.path("run");
    request.init_from = teacher.run_dir;
    request.config.train.learning_rate = 0;
    request.config.train.steps = 2;
    const std::string text = generate_stories(3, 800) + "\u20ac ~ \u00e9";
    request.config.data.path = folder.write("new.txt", text);
    CHECK(train_quietly(request) == TrainEnd::finished);
    const LoadedRun run = load_run(request.run_dir);
    const std::int64_t had = known.tokenizer->vocab_size(), has = run.tokenizer->vocab_size();
    CHECK(has == had + 3);
    CHECK(run.config.model.vocab == has);
    CHECK(run.tokenizer->decode(run.tokenizer->encode(text)) == text);
    CHECK(run.tokenizer->encode("Once") == known.tokenizer->encode("Once"));
    CHECK(contains(events_of(request.run_dir), "the text has 3 characters that " + teacher.run_dir +
                                                   " does not know: '~' (U+007E), '\u00e9' (U+00E9)"));
    int grew = 0;
    for (const auto& [name, value] : parameter_map(run.model->params())) {
      CAPTURE(name);
      const Tensor old = parameter_map(known.model->params()).at(name);
      if (old.shape() == value.shape()) {
        CHECK(old.to_vector<float>() == value.to_vector<float>());
        continue;
      }
      ++grew;
      Tensor corner = value, added = value;
      for (int axis = 0; axis < value.shape().rank(); ++axis) {
        if (old.shape()[axis] != value.shape()[axis]) added = raw::narrow(added, axis, had, has - had);
        corner = raw::narrow(corner, axis, 0, old.shape()[axis]);
      }
      CHECK(corner.to_vector<float>() == old.to_vector<float>());
      for (const float one_value : added.to_vector<float>()) CHECK(std::isfinite(one_value));
    }
    CHECK(grew >= 1);
    // It goes on, and its vocabulary grows again.
    CHECK(train_quietly(resumed(request, 3)) == TrainEnd::finished);
    TrainRequest third = request;
    third.run_dir = folder.path("third");
    third.init_from = request.run_dir;
    third.config.data.path = folder.write("third.txt", generate_stories(3, 800) + "\u00e0");
    CHECK(train_quietly(third) == TrainEnd::finished);
    CHECK(load_run(third.run_dir).tokenizer->vocab_size() == has + 1);
  }
}

TEST_CASE("phases: the report shows the command of a run and those that resumed it") {
  const OneThread one;
  const TempFolder folder;
  const TrainRequest begun = tiny_run(folder, "run");
  CHECK(train_quietly(begun) == TrainEnd::finished);
  TrainRequest more = resumed(begun, 8);
  more.command_line = "eddy train --resume run --train.steps 8";
  CHECK(train_quietly(more) == TrainEnd::finished);
  // As a reader sees it: marks keep a flag and its value on one line.
  const std::string page =
      std::regex_replace(read_text_file(begun.run_dir + "/report.html"), std::regex("</?span[^>]*>"), "");
  CHECK(contains(page, "eddy train tiny.toml"));
  CHECK(contains(page, "eddy train --resume run --train.steps 8"));
  CHECK(contains(page, "command at step 6"));
}
