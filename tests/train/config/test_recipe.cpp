// What is chosen for a new run of a text that has no configuration file: by its size, its minutes and its model.
#include <doctest/doctest.h>

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "models/eddy/registry.h"
#include "tests/support/errors.h"
#include "tests/support/files.h"
#include "train/config/new_config.h"
#include "train/config/recipe.h"
#include "train/text/dataset.h"

namespace {

using namespace eddy;
using namespace eddy::training;
using namespace eddy::test;
using Flags = std::map<std::string, std::string>;

struct Chosen {
  std::string line;
  RunConfig config;
};

Chosen chosen(const Flags& flags, std::int64_t bytes = 1'000'000, const std::string& preset = "") {
  NewConfig gathered;
  if (!preset.empty()) gathered.merge_preset(preset, "test");
  gathered.merge_flags(flags);
  std::string line = gathered.choose_recipe([&](const DataConfig&) { return bytes; });
  return {std::move(line), gathered.completed()};
}

}  // namespace

TEST_CASE("recipe: every model gets a configuration that is whole, for every size and every time") {
  for (const ModelEntry& entry : model_registry())
    for (const std::int64_t bytes : {0, 1'000, 1'000'000, 30'000'000, 2'000'000'000})
      for (const char* const minutes : {"0", "0.05", "2", "10", "600"}) {
        CAPTURE(entry.model);
        CAPTURE(bytes);
        CAPTURE(minutes);
        const RunConfig config =
            chosen({{"model.model", entry.model}, {"train.minutes", minutes}}, bytes).config;
        CHECK(config.model.model == entry.model);
        CHECK(config.model.family == entry.family);
        // The file that --print-config writes gives the same, and so does the command again.
        const TempFolder folder;
        NewConfig file;
        file.merge_file(folder.write("run.toml", config_file_of(config)));
        CHECK(file.completed() == config);
      }
}

TEST_CASE("recipe: what a flag gives stays, and what follows from it too") {
  const Flags timed{{"train.minutes", "2"}};
  const RunConfig plain = chosen(timed).config;
  const auto with = [&](Flags flags) {
    flags.merge(Flags(timed));
    return chosen(flags).config;
  };
  CHECK(with({{"train.batch", "3"}}).train.batch == 3);
  CHECK(with({{"train.schedule", "constant"}}).train.schedule == "constant");
  CHECK(with({{"model.params", "50000"}}).model.params == 50'000);
  const RunConfig narrow = with({{"model.dim", "32"}});
  CHECK(narrow.model.dim == 32);
  CHECK(narrow.model.heads == 4);
  CHECK(narrow.train.learning_rate == plain.train.learning_rate);
  // Warm-up is the same part of fewer steps, and the context holds the rows.
  const RunConfig few = with({{"train.steps", "50"}});
  CHECK(few.train.warmup * plain.train.steps == plain.train.warmup * 50);
  CHECK(with({{"train.steps", "1"}}).train.warmup == 0);
  CHECK(with({{"model.model", "regular"}, {"train.sequence", "512"}}).model.context == 512);
  CHECK(with({{"model.family", "staircase"}}).model.model == main_model("staircase").model);
}

TEST_CASE("recipe: attention alone has positions, however its run ends") {
  CHECK(chosen({{"model.model", "regular"}, {"train.minutes", "2"}}).config.model.positions);
  CHECK(chosen({{"model.model", "regular"}, {"train.steps", "7"}}).config.model.positions);
  CHECK(chosen({{"train.steps", "7"}}, 1'000'000, "regular").config.model.positions);
  for (const auto& [key, value] : {std::pair{"model.positions", "false"}, {"model.rotary", "true"}})
    CHECK_FALSE(
        chosen({{"model.model", "regular"}, {key, value}, {"train.minutes", "2"}}).config.model.positions);
}

TEST_CASE("recipe: a run without an end gets the usual minutes, and one by steps keeps the defaults") {
  const RunConfig plain = chosen({}).config;
  CHECK(plain.train.minutes == usual_minutes());
  CHECK(plain == chosen({{"train.minutes", std::to_string(usual_minutes())}}).config);
  const Chosen by_steps = chosen({{"train.steps", "7"}});
  NewConfig given;
  given.merge_flags({{"train.steps", "7"}});
  CHECK(by_steps.line.empty());
  CHECK(by_steps.config == given.completed());
}

TEST_CASE("recipe: the line names what was chosen, and for what") {
  const std::string line = chosen({{"train.minutes", "2"}, {"train.batch", "8"}}, 1'115'394).line;
  for (const char* const part :
       {"a text of 1.1 MB", "2 minutes", "unit_forget", "model.dim ", "train.schedule cosine"})
    CHECK_MESSAGE(contains(line, part), line);
  CHECK_FALSE(contains(line, "train.batch"));
  CHECK_FALSE(contains(line, "\n"));
  CHECK(contains(chosen({{"train.minutes", "1"}}, 0).line, "a text of unknown size, 1 minute and"));
}

TEST_CASE("recipe: files, presets of papers, other runs and other tasks do not take it") {
  const auto bytes = [](const DataConfig&) -> std::int64_t { return 1000; };
  const TempFolder folder;
  NewConfig file;
  file.merge_file(folder.write("run.toml", "[train]\nminutes = 2\n"));
  CHECK(file.choose_recipe(bytes).empty());
  NewConfig paper;
  paper.merge_preset("enwik8_staircase", "test");
  CHECK(paper.choose_recipe(bytes).empty());
  NewConfig other;
  other.merge_run(RunConfig());
  CHECK(other.choose_recipe(bytes).empty());
  NewConfig task;
  task.merge_flags({{"data.name", "parity"}, {"train.minutes", "2"}});
  CHECK(task.choose_recipe(bytes).empty());
  NewConfig images;
  images.merge_flags({{"data.path", "cifar10"}, {"train.minutes", "2"}});
  CHECK(images.choose_recipe(bytes).empty());
  // A data set with a name brings keys of its own.
  CHECK(chosen({{"data.path", "enwik8"}, {"train.minutes", "2"}}).config.data.tokenizer == "byte");
}

TEST_CASE("recipe: the size of a text is that of its files, and what cannot be known is 0") {
  const TempFolder folder;
  DataConfig data;
  data.path = DataPaths(folder.write("a.txt", std::string(1000, 'a')));
  CHECK(text_bytes(data) == 1000);
  folder.write("texts/b.txt", std::string(20, 'b'));
  folder.write("texts/deep/c.txt", std::string(3, 'c'));
  folder.write("texts/picture.png", std::string(5000, '\0'));
  data.path.push_back(folder.path("texts"));
  CHECK(text_bytes(data) == 1023);
  data.path.push_back(kStandardInput);
  CHECK(text_bytes(data) == 0);
  data.path = DataPaths(folder.path("missing.txt"));
  CHECK(text_bytes(data) == 0);
  data.path = DataPaths("enwik8");
  CHECK(text_bytes(data) > 10'000'000);
  data.path = {};
  CHECK(text_bytes(data) > 1'000'000);
}
