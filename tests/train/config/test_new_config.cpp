// The configuration of a new run: what a model's name implies, what follows for keys that nobody gave, and what is
// said of keys that nobody reads.
#include <doctest/doctest.h>

#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "models/eddy/registry.h"
#include "tensor/base/error.h"
#include "tests/support/errors.h"
#include "tests/support/files.h"
#include "train/config/config_file.h"
#include "train/config/new_config.h"
#include "train/config/task_entry.h"
#include "train/fetch/named_data.h"
#include "train/words/suggest.h"

namespace {

using namespace eddy;
using namespace eddy::training;
using namespace eddy::test;
using Flags = std::map<std::string, std::string>;

const std::string kSmall = "[model]\nmodel = \"unit_forget\"\ndim = 24\nheads = 2\ncontext = 64\n";

// The config of a file and flags.
NewConfig gathered(const std::string& toml, const Flags& flags = {}) {
  const TempFolder folder;
  NewConfig config;
  if (!toml.empty()) config.merge_file(folder.write("run.toml", toml));
  config.merge_flags(flags);
  return config;
}

std::string refusal(const std::string& toml, const Flags& flags) {
  return error_of<ConfigError>([&] { static_cast<void>(gathered(toml, flags).completed()); });
}

}  // namespace

TEST_CASE("new config: a model's name implies its family, in a file and as a flag") {
  for (const ModelEntry& entry : model_registry()) {
    CAPTURE(entry.model);
    const ModelConfig flag = gathered(kSmall, {{"model.model", entry.model}}).completed().model;
    CHECK(flag.family == entry.family);
    CHECK(flag.dim == 24);
    const std::string name = entry.model;
    CHECK(gathered("[model]\nmodel = \"" + name + "\"\n").completed().model.family == entry.family);
  }
}

TEST_CASE("new config: a family alone stands for its main model") {
  for (const std::string& family : family_list())
    CHECK(gathered("", {{"model.family", family}}).completed().model.model == main_model(family).model);
}

TEST_CASE("new config: a data set brings a task that reads it, and another task is refused") {
  for (const DataSet& set : data_sets()) {
    CAPTURE(set.name);
    const std::vector<std::string> tasks = tasks_of_data_set(set.name);
    REQUIRE(!tasks.empty());
    NewConfig named;
    named.merge_flags({{"data.path", set.name}});
    CHECK(named.completed().data.name == tasks.front());
    CHECK(contains(refusal("", {{"data.path", set.name}, {"data.name", "parity"}}),
                   set.name + ", which the task " + tasks.front() + " reads, and data.name is parity"));
  }
}

TEST_CASE("new config: a family and a model that contradict each other are refused") {
  const std::string text = refusal("[model]\nfamily = \"staircase\"\nmodel = \"slide\"\n", {});
  CHECK_MESSAGE(contains(text, "slide is of family block_recurrent: leave out model.family"), text);
  CHECK(!refusal("", {{"model.family", "staircase"}, {"model.model", "slide"}}).empty());
  CHECK(!refusal("[model]\nmodel = \"slide\"\n", {{"model.family", "staircase"}}).empty());
  // A flag changes the family that a file gives.
  CHECK(gathered("[model]\nfamily = \"staircase\"\n", {{"model.model", "slide"}}).completed().model.family ==
        "block_recurrent");
}

TEST_CASE("new config: sizes that nobody gave suit the model and given ones stay") {
  ModelConfig model = gathered(kSmall, {{"model.model", "block_recurrent"}}).completed().model;
  CHECK(model.window == 16);
  CHECK(model.states == 16);
  CHECK(model.layers == 2);
  CHECK(model.recurrent_layers == std::vector<std::int64_t>{1});
  model = gathered(kSmall, {{"model.model", "block_recurrent"},
                            {"model.window", "32"},
                            {"model.layers", "12"},
                            {"model.states", "5"}})
              .completed()
              .model;
  CHECK(model.window == 32);
  CHECK(model.states == 5);
  CHECK(model.recurrent_layers == std::vector<std::int64_t>{9});
  CHECK(gathered(kSmall, {{"model.model", "staircase"}}).completed().model.chunk == 16);
  // The rows of training are the segments.
  const ModelConfig rows =
      gathered(kSmall, {{"model.model", "staircase"}, {"train.sequence", "48"}}).completed().model;
  CHECK(rows.segment == 48);
  CHECK(rows.chunk == 12);
  // A length without divisors is cut into no parts.
  CHECK(gathered(kSmall, {{"model.model", "slide"}, {"model.context", "61"}}).completed().model.window == 61);
}

TEST_CASE("new config: heads that nobody gave divide the width that was given") {
  for (const auto& [dim, heads] :
       {std::pair{"384", 6}, {"32", 4}, {"128", 4}, {"100", 5}, {"64", 4}, {"18", 6}, {"14", 1}, {"33", 1}}) {
    CAPTURE(dim);
    CHECK(gathered("", {{"model.dim", dim}}).completed().model.heads == heads);
  }
  CHECK(contains(refusal("", {{"model.dim", "32"}, {"model.heads", "6"}}), "heads must divide model.dim"));
  CHECK(contains(refusal("[model]\nheads = 6\n", {{"model.dim", "32"}}), "heads must divide model.dim"));
}

TEST_CASE("new config: a file without a key is named") {
  const auto lines = [](const std::string& toml) { return gathered(toml, {{"train.steps", "7"}}).unread(); };
  for (const char* const empty : {"# nothing\n", "[model]\n[train]\n"}) {
    REQUIRE_MESSAGE(lines(empty).size() == 1, empty);
    CHECK(contains(lines(empty)[0], "run.toml sets no key: "));
    CHECK(contains(lines(empty)[0], "unit_forget"));
  }
  CHECK(lines("[train]\nbatch = 2\n").empty());
}

TEST_CASE("new config: the configurations of the examples leave nothing to be chosen") {
  for (const auto& entry : std::filesystem::directory_iterator(EDDY_SOURCE_DIR "/examples/configs")) {
    CAPTURE(entry.path().string());
    NewConfig config;
    config.merge_file(entry.path().string());
    CHECK(config.completed() == load_run_config(entry.path().string()));
    CHECK(config.unread().empty());
  }
}

TEST_CASE("new config: texts are a stream for models that carry a state, where the order is not given") {
  const auto order_of = [](const Flags& flags) { return gathered(kSmall, flags).completed().data.order; };
  CHECK(order_of({}) == "windows");
  for (const ModelEntry& entry : model_registry()) {
    CAPTURE(entry.model);
    const RunConfig config = gathered(kSmall, {{"model.model", entry.model}}).completed();
    CHECK((config.data.order == "stream") == carries_state(config.model));
  }
  CHECK(order_of({{"model.model", "staircase"}}) == "stream");
  CHECK(order_of({{"model.model", "staircase"}, {"data.order", "windows"}}) == "windows");
  CHECK(order_of({{"model.model", "staircase"}, {"train.carry_state", "never"}}) == "windows");
  CHECK(order_of({{"model.model", "llama"}}) == "windows");
}

TEST_CASE(
    "new config: whether a model of very many layers carries a state is known without a call of all of them") {
  const auto order_of = [](const std::string& model) {
    return gathered(kSmall, {{"model.model", model}, {"model.layers", "65536"}}).completed().data.order;
  };
  CHECK(order_of("lstm") == "stream");
  CHECK(order_of("block_recurrent") == "stream");
  CHECK(order_of("llama") == "windows");
}

TEST_CASE("new config: a number of parameters stands in place of a width, and the later of both holds") {
  const ModelConfig flag = gathered(kSmall, {{"model.params", "50000"}}).completed().model;
  CHECK(flag.params == 50'000);
  const std::string fitted = kSmall + "params = 50000\n";
  CHECK(
      contains(refusal(fitted, {}), "model.params = 50000 finds model.dim, and model.dim = 24 is given too"));
  CHECK(contains(refusal("", {{"model.params", "50000"}, {"model.dim", "12"}}), "leave one out"));
  const std::string alone = "[model]\nheads = 5\nparams = 50000\n";
  CHECK(gathered(alone).completed().model.params == 50'000);
  const ModelConfig width = gathered(alone, {{"model.dim", "30"}}).completed().model;
  CHECK(width.params == 0);
  CHECK(width.dim == 30);
}

TEST_CASE("new config: a preset that is a model and another model are refused") {
  NewConfig config;
  config.merge_preset("xl", "train");
  config.merge_flags({{"model.model", "staircase"}});
  CHECK(contains(error_of<ConfigError>([&] { static_cast<void>(config.completed()); }),
                 "the preset is the model xl, and model.model is staircase"));
}

TEST_CASE("new config: a preset is a model or a configuration of a paper") {
  NewConfig config;
  config.merge_preset("enwik8_staircase", "train");
  const ModelConfig paper = config.completed().model;
  CHECK(paper.layers == 8);
  CHECK(paper.chunk == 64);
  CHECK(paper.vocab == 0);
  CHECK(config.unread().empty());
  for (const ModelEntry& entry : model_registry())
    for (const std::string& name :
         {std::string(entry.model), std::string(entry.family) + "/" + entry.model}) {
      CAPTURE(name);
      NewConfig of_model;
      of_model.merge_preset(name, "train");
      CHECK(of_model.completed().model.model == entry.model);
    }
  for (const NamedConfig& named : paper_configs()) {
    CAPTURE(named.name);
    NewConfig of_paper;
    of_paper.merge_preset(named.name, "train");
    CHECK(of_paper.completed().model.dim == named.config.dim);
  }
  const std::string text = error_of<ConfigError>([&] { config.merge_preset("enwik8_stairs", "train"); });
  CHECK_MESSAGE(contains(text, "train: there is no preset 'enwik8_stairs' (nearest: enwik8_staircase;"),
                text);
}

TEST_CASE("new config: what the model does not read is named with those that do") {
  const auto lines_of = [](const Flags& flags) { return gathered(kSmall, flags).unread(); };
  using Lines = std::vector<std::string>;
  CHECK(lines_of({}).empty());
  CHECK(lines_of({{"model.model", "slide"}, {"model.recurrent_layers", "0"}}) ==
        Lines{"slide does not read model.recurrent_layers; block_recurrent does"});
  CHECK(lines_of({{"model.model", "slide"}, {"model.states", "512"}}).empty());  // the default
  CHECK(lines_of({{"model.model", "slide"},
                  {"model.states", "7"},
                  {"model.recurrent_layers", "0"},
                  {"model.memory_size", "64"}}) ==
        Lines{"slide does not read model.recurrent_layers, model.states; block_recurrent does",
              "slide does not read model.memory_size; memorizing does"});
  CHECK(lines_of({{"model.model", "lstm"}, {"model.heads", "3"}}) ==
        Lines{"lstm does not read model.heads; all models but lstm do"});
  CHECK(lines_of({{"data.noise", "64"}}) ==
        Lines{"the task text does not read data.noise; copy, selective_copy, recall do"});
}

TEST_CASE("new config: the file of a configuration completes to the same") {
  const auto check_same = [](const NewConfig& given) {
    const RunConfig config = given.completed();
    const std::string file = config_file_of(config);
    CHECK_MESSAGE(gathered(file).completed() == config, file);
  };
  check_same(gathered(""));
  CHECK(config_file_of(RunConfig()).find("dim") == std::string::npos);
  for (const ModelEntry& entry : model_registry()) {
    CAPTURE(entry.model);
    check_same(gathered(kSmall, {{"model.model", entry.model}}));
    check_same(gathered("", {{"model.model", entry.model}, {"train.sequence", "64"}}));
  }
  for (const NamedConfig& named : paper_configs()) {
    CAPTURE(named.name);
    NewConfig preset;
    preset.merge_preset(named.name, "test");
    check_same(preset);
  }
  // A default that is given, where another value would be chosen.
  const std::string chunk = std::to_string(ModelConfig().chunk);
  check_same(gathered("", {{"model.model", "staircase"}, {"model.chunk", chunk}, {"model.context", "512"}}));
  check_same(gathered("", {{"model.model", "slide"}, {"data.order", "windows"}}));
  check_same(gathered("", {{"data.path", "a \"b\"\\c \xc3\xa9.txt"}, {"train.learning_rate", "1e-05"}}));
  CHECK(contains(config_file_of(gathered("", {{"train.steps", "7"}}).completed()), "[train]\nsteps = 7\n"));
}

TEST_CASE("a number with a unit, separators or a point is refused with the number that was meant") {
  const auto refused = [](const char* key, const std::string& text) {
    return error_of<ConfigError>([&] {
      RunConfig config;
      keys_of(config).read_texts({{key, text}});
    });
  };
  for (const auto& [key, text, meant] : {std::tuple{"train.steps", "1e3", "1000"},
                                         {"train.steps", "16.0", "16"},
                                         {"train.steps", "1,000", "1000"},
                                         {"model.params", "1_000_000", "1000000"},
                                         {"data.split", "0.9 ", "0.9"},
                                         {"data.split", "90%", "0.9"},
                                         {"data.split", "0,9", "0.9"}})
    CHECK_MESSAGE(contains(refused(key, text), std::string("wrong type: write ") + meant + " ("),
                  refused(key, text));
  for (const auto& [key, text] : {std::pair{"train.steps", "99999999999999999999"},
                                  {"train.learning_rate", "1e400"},
                                  {"train.steps", "-99999999999999999999"},
                                  {"train.steps", "-5k"}})
    CHECK_MESSAGE(contains(refused(key, text), "which is out of range"), refused(key, text));
  for (const auto& [key, text] : {std::pair{"train.minutes", "5min"},
                                  {"train.batch", "2.5"},
                                  {"train.steps", "1.5"},
                                  {"train.steps", ""},
                                  {"train.steps", "k"},
                                  {"data.split", "150%"}})
    CHECK_MESSAGE(contains(refused(key, text), "which has the wrong type ("), refused(key, text));
}

TEST_CASE("a whole number of a flag may have a unit, and a text in its place in a file is told the number") {
  RunConfig config;
  keys_of(config).read_texts({{"model.params", "2m"}, {"train.steps", "1.5K"}, {"train.batch", "7"}});
  CHECK(config.model.params == 2'000'000);
  CHECK(config.train.steps == 1500);
  CHECK(config.train.batch == 7);
  const std::string refused = error_of<ConfigError>(
      [&] { keys_of(config).read(config_from_toml("[model]\nparams = \"2m\"\n", "a.toml")); });
  CHECK_MESSAGE(
      contains(refused, "a.toml:2:1: model.params is \"2m\", which has the wrong type: write 2000000 ("),
      refused);
}

TEST_CASE("a value that is near none is refused without a guess") {
  CHECK(suggest_value("Staircase", {"lstm", "staircase"}) == "nearest: staircase; ");
  CHECK(suggest_value("trian", {"train", "eval"}) == "nearest: train; ");
  CHECK(suggest_value("gpt2", {"lstm", "copy", "xl"}) == "");
  CHECK(suggest_value("book.txt", {"char", "byte"}) == "");
  CHECK(suggest_value("x", {}) == "");
  CHECK(suggest_name("file", {"data.name", "data.path"}, "data") == "data.path");
}
