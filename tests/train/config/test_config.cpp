// Described structs: where values come from, what is refused and how the error reads, and the two forms of
// model configs.
#include <doctest/doctest.h>

#include <CLI/CLI.hpp>
#include <filesystem>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "models/eddy/config.h"
#include "models/eddy/registry.h"
#include "tensor/base/error.h"
#include "tests/support/errors.h"
#include "tests/support/files.h"
#include "train/config/config.h"
#include "train/config/config_file.h"
#include "train/config/config_flags.h"
#include "train/config/run_config.h"
#include "train/tasks/task.h"

using namespace eddy;
using namespace eddy::training;
using namespace eddy::test;
using nlohmann::json;

namespace {

// A struct with a key of every type.
struct Sample {
  bool flag = false;
  std::int64_t count = 3;
  double rate = 0.5;
  std::string kind = "round";
  std::vector<std::int64_t> sizes = {1, 2};
};
void describe(ConfigKeys& keys, Sample& c) {
  keys.section("sample");
  keys.add("flag", c.flag, "a switch");
  keys.add("count", c.count, "how many", {1, 10});
  keys.add("rate", c.rate, "how fast", kBelowOne);
  keys.add("kind", c.kind, "which", {"round", "square"});
  keys.add("sizes", c.sizes, "how large", {.low = 0});
  keys.ignore({"elsewhere"});
}

Sample read_sample(const std::string& toml) {
  Sample sample;
  keys_of(sample).read(config_from_toml(toml, "run.toml"));
  return sample;
}

std::string sample_error(const std::string& toml) {
  return error_of<ConfigError>([&] { read_sample(toml); });
}

// Checks that every part is in the text, showing the text when not.
void check_text(const std::string& text, const std::vector<std::string>& parts) {
  for (const std::string& part : parts) {
    INFO(text);
    INFO(part);
    CHECK(contains(text, part));
  }
}

// The sample after a command line.
Sample from_flags(std::vector<std::string> arguments, const std::string& toml = "") {
  Sample sample;
  ConfigKeys keys = keys_of(sample);
  CLI::App app("test");
  ConfigFlags flags;
  flags.add_to(app, keys);
  std::reverse(arguments.begin(), arguments.end());  // CLI11 takes a vector from its end
  app.parse(arguments);
  keys.read(config_from_toml(toml, "run.toml"));
  flags.apply(keys);
  return sample;
}

std::string flag_error(const std::vector<std::string>& arguments) {
  return error_of<ConfigError>([&] { from_flags(arguments); });
}

}  // namespace

TEST_CASE("a config without keys leaves the defaults") {
  const Sample sample = read_sample("");
  CHECK(sample.count == 3);
  CHECK(sample.sizes == std::vector<std::int64_t>{1, 2});
}

TEST_CASE("a config file sets every type") {
  const Sample sample = read_sample(
      "[sample]\nflag = true\ncount = 10\nrate = 0\nkind = \"square\"\nsizes = [4, 5]\nelsewhere = 7\n");
  CHECK(sample.flag);
  CHECK(sample.count == 10);
  CHECK(sample.rate == 0.0);
  CHECK(sample.kind == "square");
  CHECK(sample.sizes == std::vector<std::int64_t>{4, 5});
}

TEST_CASE("flags set every type") {
  const Sample sample = from_flags({"--sample.flag", "true", "--sample.count=4", "--sample.rate", "2.5e-1",
                                    "--sample.kind", "square", "--sample.sizes", "7,8,9"});
  CHECK(sample.flag);
  CHECK(sample.count == 4);
  CHECK(sample.rate == 0.25);
  CHECK(sample.kind == "square");
  CHECK(sample.sizes == std::vector<std::int64_t>{7, 8, 9});
}

TEST_CASE("flags win over the file and the file over the defaults") {
  const Sample sample = from_flags({"--sample.count", "5"}, "[sample]\ncount = 4\nrate = 0.25\n");
  CHECK(sample.count == 5);
  CHECK(sample.rate == 0.25);
  CHECK(sample.kind == "round");
}

TEST_CASE("an unknown key is refused with its place and the nearest key") {
  check_text(sample_error("[sample]\ncount = 4\n\n  cuont = 5\n"),
             {"run.toml:4:3", "unknown key \"cuont\" in [sample]", "nearest: count"});
}

TEST_CASE("an unknown section is refused with its place and the nearest section") {
  check_text(sample_error("\n[simple]\ncount = 4\n"),
             {"run.toml:2", "unknown section \"simple\"", "nearest: sample"});
}

TEST_CASE("a key outside its table is sent to its table") {
  check_text(sample_error("count = 4\n"),
             {"run.toml:1:1", "unknown key \"count\" outside all tables", "[sample]"});
  const auto wrong_section = [] {
    RunConfig config;
    keys_of(config).read(config_from_toml("[model]\nlearning_rate = 1.0\n", "run.toml"));
  };
  check_text(error_of<ConfigError>(wrong_section),
             {"run.toml:2:1", "\"learning_rate\" in [model]", "it belongs to [train]"});
  const auto of_two = [] {
    RunConfig config;
    keys_of(config).read(config_from_toml("steps = 3\n", "run.toml"));
  };
  check_text(error_of<ConfigError>(of_two), {"run.toml:1:1", "[model]", " or [train]"});
}

TEST_CASE("a section that is no table is refused") {
  check_text(sample_error("sample = 4\n"), {"run.toml:1:1", "sample is 4", "a table of keys"});
}

TEST_CASE("a value of the wrong type is refused with key and value and rule") {
  check_text(sample_error("[sample]\ncount = \"four\"\n"),
             {"run.toml:2:1", "sample.count is \"four\"", "wrong type", "a whole number, 1 to 10"});
  check_text(sample_error("[sample]\ncount = 4.0\n"), {"sample.count is 4.0", "wrong type"});
  check_text(sample_error("[sample]\nflag = 1\n"), {"sample.flag is 1", "true or false"});
  check_text(sample_error("[sample]\nrate = [0.5]\n"), {"sample.rate is [0.5]", "at least 0 and below 1"});
  check_text(sample_error("[sample]\nkind = {a = 1}\n"), {"sample.kind is a table", "one of round, square"});
  check_text(sample_error("[sample]\nsizes = 3\n"),
             {"sample.sizes is 3", "a list of whole numbers, each at least 0"});
  check_text(sample_error("[sample]\nsizes = [3, 0.5]\n"), {"sample.sizes is [3, 0.5]", "wrong type"});
  check_text(sample_error("[sample]\ncount = 2024-01-01\n"), {"run.toml:2:9", "sample.count is a date"});
}

TEST_CASE("a value out of range is refused with key and value and rule") {
  check_text(sample_error("[sample]\ncount = 11\n"),
             {"run.toml:2:1", "sample.count is 11", "out of range", "1 to 10"});
  check_text(sample_error("[sample]\nrate = 1.0\n"), {"sample.rate is 1.0", "out of range"});
  check_text(sample_error("[sample]\nrate = nan\n"), {"sample.rate is nan", "out of range"});
  check_text(sample_error("[sample]\nrate = -inf\n"), {"sample.rate is -inf", "out of range"});
  check_text(sample_error("[sample]\nsizes = [3, -1]\n"), {"sample.sizes is [3, -1]", "out of range"});
  Sample sample;
  check_text(
      error_of<ConfigError>([&] {
        keys_of(sample).read({"state", json::parse(R"({"sample":{"count":18446744073709551615}})"), {}});
      }),
      {"state", "sample.count is 18446744073709551615", "out of range"});
}

TEST_CASE("a text that is not allowed is refused with the nearest one") {
  check_text(sample_error("[sample]\nkind = \"sqare\"\n"),
             {"sample.kind is \"sqare\"", "nearest: square", "one of round, square"});
}

TEST_CASE("a refused config changes nothing") {
  Sample sample;
  check_text(error_of<ConfigError>([&] {
               keys_of(sample).read(config_from_toml("[sample]\ncount = 9\nkind = \"oval\"\n", "run.toml"));
             }),
             {"sample.kind"});
  CHECK(sample.count == 3);
}

TEST_CASE("flags are checked as a file is") {
  check_text(flag_error({"--sample.count", "11"}), {"--sample.count", "is 11", "1 to 10"});
  check_text(flag_error({"--sample.count", "4x"}), {"--sample.count", "\"4x\"", "wrong type"});
  check_text(flag_error({"--sample.count", "99999999999999999999"}), {"--sample.count", "out of range"});
  check_text(flag_error({"--sample.count", "-4"}), {"--sample.count", "is -4", "out of range"});
  check_text(flag_error({"--sample.flag", "yes"}), {"--sample.flag", "\"yes\"", "true or false"});
  check_text(flag_error({"--sample.rate", "nan"}), {"--sample.rate", "out of range"});
  check_text(flag_error({"--sample.rate", ""}), {"--sample.rate", "wrong type"});
  check_text(flag_error({"--sample.sizes", "1,,2"}), {"--sample.sizes", "wrong type"});
  check_text(flag_error({"--sample.sizes", "1,"}), {"--sample.sizes", "wrong type"});
  check_text(flag_error({"--sample.kind", "oval"}), {"--sample.kind", "one of round, square"});
}

TEST_CASE("the help lists the flags of every run with rule and default, and --help-all every flag") {
  Sample sample;
  ConfigKeys keys;
  keys.section("sample");
  keys.add("count", sample.count, "How many", {1, 10}).common();
  keys.add("kind", sample.kind, "Which", {"round", "square"});
  CLI::App app("test");
  ConfigFlags flags;
  flags.add_to(app, keys);
  // CLI11 2.1 writes a default as =3, 2.4 as [3].
  const auto shows_default = [&](const std::string& value) {
    return contains(app.help(), "=" + value) || contains(app.help(), "[" + value + "]");
  };
  check_text(app.help(), {"--sample.count", "How many", "1 to 10", "[sample]", "--help-all"});
  CHECK(shows_default("3"));
  CHECK_FALSE(contains(app.help(), "--sample.kind"));
  std::vector<std::string> arguments{"--help-all"};
  CHECK_THROWS_AS(app.parse(arguments), CLI::CallForHelp);
  check_text(app.help(), {"--sample.count", "--sample.kind", "Which", "one of round, square"});
  CHECK(shows_default("round"));
}

TEST_CASE("a key says which models or tasks read it") {
  bool flag = false;
  ConfigKeys keys;
  keys.section("model");
  CHECK(keys.add("a", flag, "A").is_read_by("staircase", "lstm"));
  const ConfigField family = keys.add("b", flag, "B").read_by("staircase -lstm slide");
  CHECK(family.is_read_by("staircase", "feedback"));
  CHECK(family.is_read_by("block_recurrent", "slide"));
  CHECK_FALSE(family.is_read_by("staircase", "lstm"));
  CHECK_FALSE(family.is_read_by("block_recurrent", "xl"));
  const ConfigField one = keys.add("c", flag, "C").read_by("staircase/staircase");
  CHECK(one.is_read_by("staircase", "staircase"));
  CHECK_FALSE(one.is_read_by("staircase", "ladder"));
  const ConfigField others = keys.add("d", flag, "D").read_by("-lstm");
  CHECK(others.is_read_by("staircase", "ladder"));
  CHECK_FALSE(others.is_read_by("staircase", "lstm"));
}

TEST_CASE("every name that a key gives for its readers is a family or a model or a task") {
  RunConfig config;
  const ConfigKeys keys = keys_of(config);
  for (const ConfigField& field : keys.fields()) {
    std::istringstream words(field.readers);
    for (std::string word; words >> word;) {
      if (word.starts_with("-")) word.erase(0, 1);
      bool known = false;
      for (const ModelName& name : model_registry())
        known = known || (field.section == "model" && (word == name.family || word == name.model ||
                                                       word == std::string(name.family) + "/" + name.model));
      for (const TaskEntry& task : task_registry())
        known = known || (field.section == "data" && word == task.name);
      CHECK_MESSAGE(known, field.full_key() << " is read by " << word);
    }
  }
}

TEST_CASE("the keys of the tasks stand in one list, with the tasks that read them") {
  RunConfig config;
  const ConfigKeys keys = keys_of(config);
  std::string list;
  for (const ConfigField& field : keys.fields())
    if (field.section == "data") list += field.key + ": " + field.readers + "\n";
  CHECK(
      list ==
      "name: \npath: text cifar10\ntokenizer: text\nsplit: text\ntest: text\norder: text\ndocument: text\nseparator: text\n"
      "json_field: text\n"
      "offset: text algorithm random_walk\nblock_min: cifar10 text\nblock_max: cifar10 text\n"
      "symbols: copy selective_copy\nnoise: copy selective_copy recall\nnoise_max: copy selective_copy\n"
      "curriculum_every: copy selective_copy\ncurriculum_batches: copy selective_copy\n"
      "rate_rule: copy selective_copy\nsecrets: recall\nevery: recall\nsegments: recall\n"
      "group: groups\npairs: mqar\nalphabet: mqar\n"
      "stop_loss: cifar10 copy selective_copy\nexamples_seed: algorithm random_walk\n"
      "examples: algorithm random_walk\nvalid_examples: algorithm random_walk\n"
      "test_examples: algorithm random_walk\nstatements: algorithm\nvariables: algorithm\n"
      "walk_length: random_walk\nwalk_grid: random_walk\nwalk_torus: random_walk\n"
      "walk_random_start: random_walk\n");
  CHECK(task_reads(config.data, "order"));
  config.data.name = "recall";
  CHECK(task_reads(config.data, "noise"));
  CHECK_FALSE(task_reads(config.data, "order"));
  CHECK_FALSE(task_reads(config.data, "nois"));
}

TEST_CASE("a key says what becomes of a run that goes on with another value of it") {
  RunConfig config;
  const ConfigKeys keys = keys_of(config);
  std::string same;
  for (const ConfigField& field : keys.fields()) {
    if (field.change == KeyChange::same_run) same += field.full_key() + " ";
    const bool is_trained = field.section == "model" && field.key != "dropout" && field.key != "init_std";
    CHECK_MESSAGE((field.change == KeyChange::refused) == is_trained, field.full_key());
  }
  CHECK(same ==
        "data.path train.shard_optimizer train.recompute train.eval_every train.eval_batches "
        "train.state_gain_batches train.checkpoint_every train.keep train.sample_every train.sample_tokens "
        "train.log_every train.tensorboard train.max_bad_steps train.rollback train.memory_check "
        "train.threads train.rank_timeout train.device train.capture ");
}

TEST_CASE("a key by another program's word is refused with Eddy's") {
  const auto refusal = [](const std::string& toml) {
    return error_of<ConfigError>([&] {
      RunConfig config;
      keys_of(config).read(config_from_toml(toml, "run.toml"));
    });
  };
  CHECK(contains(refusal("[train]\nlr = 1e-3\n"), "unknown key \"lr\" in [train] (nearest: learning_rate)"));
  CHECK(contains(refusal("[model]\nlr = 1e-3\n"), "(nearest: learning_rate in [train])"));
  CHECK(contains(refusal("batch_size = 3\n"), "outside all tables (nearest: batch in [train])"));
  CHECK(contains(refusal("[optimizer]\nlr = 3\n"), "unknown section \"optimizer\" (nearest: train;"));
  CHECK(contains(refusal("[zzz]\nlr = 3\n"), "unknown section \"zzz\" (there are model, data, train)"));
}

TEST_CASE("a TOML syntax error names file and line and column") {
  check_text(sample_error("[sample]\ncount = = 4\n"), {"run.toml:2:9"});
  check_text(sample_error("[sample]\ncount = 4\ncount = 5\n"), {"run.toml:3:"});
  check_text(sample_error("[sample\n"), {"run.toml:1:8"});
  check_text(sample_error("[sample]\nkind = \"\xff\"\n"), {"run.toml:2:"});
}

TEST_CASE("a JSON syntax error names file and line and column") {
  check_text(error_of<ConfigError>([] { (void)config_from_json("{\n \"a\": x\n}", "run.json"); }),
             {"run.json:2:7"});
  check_text(error_of<ConfigError>([] { (void)config_from_json("{\"a\":{\"b\":1,\"b\":2}}", "run.json"); }),
             {"run.json", "duplicate key \"b\""});
  check_text(error_of<ConfigError>([] { (void)config_from_json("", "run.json"); }), {"run.json:1:1"});
}

TEST_CASE("deep nesting in a config is an error and not a crash") {
  const std::string brackets(300'000, '[');
  check_text(error_of<ConfigError>([&] { (void)config_from_json(brackets, "run.json"); }), {"nested deeper"});
  check_text(error_of<ConfigError>([&] { (void)config_from_toml("a = " + brackets, "run.toml"); }),
             {"run.toml:1:"});
  std::string dotted = "a";
  for (int i = 0; i < 4000; ++i) dotted += ".a";
  check_text(error_of<ConfigError>([&] { (void)config_from_toml(dotted + " = 1\n", "run.toml"); }),
             {"nested deeper than 16"});
  check_text(error_of<ConfigError>([&] { (void)config_from_toml("[" + dotted + "]\n", "run.toml"); }),
             {"nested deeper than 16"});
  check_text(
      error_of<ConfigError>([&] { (void)config_from_toml(dotted + dotted + dotted + " = 1\n", "run.toml"); }),
      {"dots"});
}

TEST_CASE("config files are told apart by their ending") {
  const TempFolder folder;
  const std::string toml = folder.write("a.toml", "[train]\nsteps = 7\n"),
                    text = folder.write("a.json", R"({"train": {"steps": 8}})"),
                    other = folder.write("a.yaml", "train:\n  steps: 9\n");
  CHECK(load_run_config(toml).train.steps == 7);
  CHECK(load_run_config(text).train.steps == 8);
  check_text(error_of<ConfigError>([&] { (void)load_run_config(other); }), {"neither .toml nor .json"});
  CHECK_THROWS_WITH_AS((void)load_run_config(toml + ".none.toml"),
                       doctest::Contains("No such file or directory"), IoError);
  CHECK_THROWS_AS((void)load_run_config(std::filesystem::temp_directory_path().string()), IoError);
}

TEST_CASE("config files may begin with a byte order mark and be UTF-16 behind it") {
  const TempFolder folder;
  const std::string mark = "\xef\xbb\xbf", toml = "[train]\nsteps = 7\n";
  std::string wide = "\xff\xfe";
  for (const char c : toml) wide += c + std::string(1, '\0');
  CHECK(load_run_config(folder.write("a.toml", mark + toml)).train.steps == 7);
  CHECK(load_run_config(folder.write("b.toml", wide)).train.steps == 7);
  CHECK(load_run_config(folder.write("a.json", mark + R"({"train": {"steps": 8}})")).train.steps == 8);
}

TEST_CASE("accumulate means one thing for the model and another for training") {
  const TempFolder folder;
  const std::string file =
      folder.write("b.toml", "[model]\naccumulate = \"hidden\"\n[train]\naccumulate = 4\n");
  const RunConfig config = load_run_config(file);
  CHECK(config.model.accumulate == "hidden");
  CHECK(config.train.accumulate == 4);
}

TEST_CASE("a flat model config is read from JSON") {
  const ModelConfig config = model_config_from_json(json::parse(
      R"({"family":"recurrent_transformer","model":"block_forget","vocab":29,"n_out":7,"context":24,"dim":16,"heads":4,
          "layers":1,"block":5,"positions":true,"bias":false,"activation":"relu","tied":false,"readout":"last",
          "accumulate":"output","dropout":0.0,"norm_eps":1e-05,"mlp_dim":64})"));
  CHECK(config.model == "block_forget");
  CHECK(config.vocab == 29);
  CHECK(config.n_out == 7);
  CHECK(config.block == 5);
  CHECK(config.positions);
  CHECK(!config.tied);
  CHECK(config.activation == "relu");
  CHECK(config.readout == "last");
  CHECK(config.mlp_dim == 64);
  CHECK(config.norm_eps == 1e-5);
}

TEST_CASE("a flat model config reads past the keys of other families") {
  const ModelConfig block = model_config_from_json(json::parse(
      R"({"family":"block_recurrent","model":"memorizing","vocab":19,"dim":12,"layers":2,"heads":2,"head_dim":8,
          "mlp_dim":20,"window":8,"segment":8,"cache":true,"recurrent_layers":[],"states":5,"gate":"fixed","cell":"skip",
          "feedback":false,"clear_state":false,"memory_layers":[0],"memory_size":32,"memory_topk":4,
          "memory_search":"bucket","memory_bias":true,"rel_buckets":32,"rel_max_distance":128,"qk_norm":true,
          "scale_abs":true,"logit_divisor":"sqrt_d","tanh_rule":"code","z_bias":false,"norm_eps":1e-06,"qk_eps":1e-06,
          "dropout":0.0,"attn_dropout":0.0,"mask_token_zero":true})"));
  CHECK(block.model == "memorizing");
  CHECK(block.head_dim == 8);
  CHECK(block.norm_eps == 1e-6);
  const ModelConfig llama = model_config_from_json(json::parse(
      R"({"family":"blockwise_recurrent","model":"llama_window","vocab":23,"dim":12,"layers":2,"heads":3,"kv_heads":3,
          "mlp_dim":32,"norm_eps":1e-05,"rope_theta":10000.0,"tied":true,"window":5,"chunk":4,"memory_qkv":"separate",
          "memory_query":false,"memory_ffn":true,"memory_ffn_prenorm":true,"memory_norm":true,"memory_proj":false,
          "memory_init":"learned","detach":"segment"})"));
  CHECK(llama.kv_heads == 3);
  const ModelConfig stairs = model_config_from_json(json::parse(
      R"({"family":"staircase","model":"cached_staircase","vocab":19,"dim":12,"mlp_dim":20,"heads":2,"head_dim":6,
          "layers":2,"repeats":1,"span":11,"prenorm":true,"chunk":3,"steps":3,"cache_after":1,"segment":12,
          "carry":"exact","cold_start":"zeros","shared_kv":false,"feedback_memory":"mix","feedback_self":false,
          "feedback_carry":"raw","embed_dim":12,"norm_eps":1e-05,"dropout":0.0,"emb_dropout":0.0,"out_dropout":0.0})"));
  CHECK(stairs.model == "cached_staircase");
}

TEST_CASE("a model config in a table is read from JSON and other tables are left alone") {
  const ModelConfig config = model_config_from_json(
      json::parse(R"({"model":{"model":"regular","layers":6},"anything":{"step":3}})"));
  CHECK(config.model == "regular");
  CHECK(config.layers == 6);
}

TEST_CASE("a model config with an unknown key is refused in both forms") {
  check_text(error_of<ConfigError>([] {
               (void)model_config_from_json(json::parse(R"({"model":"regular","layer":6})"), "case");
             }),
             {"case", "unknown key \"layer\" in [model]", "nearest: layers"});
  check_text(error_of<ConfigError>(
                 [] { (void)model_config_from_json(json::parse(R"({"model":{"layer":6}})"), "case"); }),
             {"case", "unknown key \"layer\" in [model]"});
  check_text(error_of<ConfigError>(
                 [] { (void)model_config_from_json(json::parse(R"({"train":{"steps":6}})"), "case"); }),
             {"case", "no model table"});
  check_text(error_of<ConfigError>([] { (void)model_config_from_json(json::parse("[]"), "case"); }),
             {"case", "a table of keys"});
}

TEST_CASE("a flat TOML file keeps the places of its keys") {
  const TempFolder folder;
  const std::string file =
      folder.write("c.toml", "family = \"recurrent_transformer\"\nmodel = \"regular\"\nlayers = 0\n");
  check_text(error_of<ConfigError>([&] { (void)load_run_config(file); }),
             {"c.toml:3:1", "model.layers is 0"});
}

TEST_CASE("a run config survives JSON and back") {
  RunConfig config;
  config.model.model = "regular";
  config.model.layers = 6;
  config.model.dropout = 0.1;
  config.data.path = "some \"path\" \xc3\xa9";
  config.train.learning_rate = 0.1 + 0.2;
  config.train.seed = INT64_MAX;
  config.train.schedule = "cosine";
  config.train.minutes = 1.5;
  const json once = to_json(config);
  const RunConfig back = run_config_from_json(json::parse(once.dump()));
  CHECK(back == config);
  CHECK(to_json(back) == once);
  CHECK(once.size() == 3);
  CHECK(once.at("train").at("accumulate") == 1);
  CHECK(once.at("model").at("accumulate") == "output");
  CHECK(model_config_from_json(to_json(config.model)) == config.model);
}

TEST_CASE("every described key is unique and has help") {
  RunConfig config;
  std::set<std::string> seen;
  const ConfigKeys keys = keys_of(config);
  for (const ConfigField& field : keys.fields()) {
    INFO(field.full_key());
    CHECK(seen.insert(field.full_key()).second);
    CHECK(!field.help.empty());
  }
  CHECK(keys.sections() == std::vector<std::string>{"model", "data", "train"});
}

TEST_CASE("the defaults pass their own checks") {
  RunConfig config;
  const RunConfig back = run_config_from_json(to_json(config));
  CHECK(back == config);
  CHECK_NOTHROW(validate(config));
}

TEST_CASE("validate refuses sizes and switches that contradict each other") {
  const auto error = [](auto&& change) {
    ModelConfig config;
    config.vocab = 65;
    change(config);
    return error_of<ConfigError>([&] { validate(config); });
  };
  using C = ModelConfig;
  CHECK(error([](C&) {}) == "");
  check_text(error([](C& c) { c.heads = 7; }), {"heads must divide", "dim 384", "heads 7"});
  check_text(error([](C& c) { c.heads = 7, c.head_dim = 50; }),
             {"head_dim must be dim / heads", "head_dim 50"});
  check_text(error([](C& c) { c.kv_heads = 4; }), {"kv_heads must divide", "heads 6", "kv_heads 4"});
  check_text(error([](C& c) { c.n_out = 10; }), {"tied head", "vocab 65", "n_out 10"});
  CHECK(error([](C& c) { c.n_out = 10, c.tied = false; }) == "");
  check_text(error([](C& c) { c.vocab = 0; }), {"model.vocab is 0"});
  check_text(error([](C& c) { c.model = "staircase"; }),
             {"family recurrent_transformer does not have", "unit_forget"});
  check_text(error([](C& c) { c.family = "none"; }), {"model.family is \"none\""});
  check_text(error([](C& c) { c.heads = 0; }), {"model.heads is 0"});
  check_text(error([](C& c) { c.dropout = 1.0; }), {"model.dropout is 1"});
  check_text(error([](C& c) { c.norm_eps = std::numeric_limits<double>::quiet_NaN(); }),
             {"model.norm_eps is nan"});
  check_text(error([](C& c) { c.readout = "first"; }),
             {"model.readout is \"first\"", "one of all, last, tail"});
}

TEST_CASE("validate of a run compares the sections") {
  const auto error = [](auto&& change) {
    RunConfig config;
    change(config);
    return error_of<ConfigError>([&] { validate(config); });
  };
  using C = RunConfig;
  check_text(error([](C& c) { c.model.positions = true, c.train.sequence = 512; }),
             {"sequence 512, context 256"});
  CHECK(error([](C& c) { c.train.sequence = 512; }) == "");
  check_text(error([](C& c) { c.train.warmup = 6000; }), {"warmup 6000, steps 5000"});
  check_text(error([](C& c) { c.train.min_learning_rate = 0.5; }), {"min_learning_rate"});
}

TEST_CASE("data files of the tree: each TOML is one, with its places") {
  std::size_t files = 0;
  for (const char* folder : {"models", "train"})
    for (const auto& entry :
         std::filesystem::recursive_directory_iterator(std::filesystem::path(EDDY_SOURCE_DIR) / folder)) {
      if (entry.path().extension() != ".toml") continue;
      CAPTURE(entry.path().string());
      CHECK(!read_config_file(entry.path().string()).value.empty());
      ++files;
    }
  CHECK(files >= 18);
}

TEST_CASE("resolved sets every key that the model does not read to its default, and no other") {
  for (const ModelName& name : model_registry()) {
    CAPTURE(name.model);
    ModelConfig plain;
    plain.family = name.family;
    plain.model = name.model;
    plain.vocab = 65;
    model_entry(plain).fit_to_sizes(plain);
    const ModelConfig expected = resolved(plain);
    ModelConfig given = plain;
    KeyList keys;
    describe(keys, given);
    std::size_t unread = 0;
    for (const ConfigField& field : keys.fields()) {
      if (field.is_read_by(name.family, name.model)) continue;
      CAPTURE(field.key);
      CHECK(!reads_key(plain, field.key));
      ++unread;
      given = plain;
      if (auto* const* flag = std::get_if<bool*>(&field.target)) **flag = !**flag;
      if (auto* const* number = std::get_if<std::int64_t*>(&field.target)) **number += 2;
      if (auto* const* real = std::get_if<double*>(&field.target)) **real += 0.25;
      if (auto* const* text = std::get_if<std::string*>(&field.target)) **text = field.allowed.back();
      if (auto* const* list = std::get_if<std::vector<std::int64_t>*>(&field.target)) (*list)->push_back(0);
      if (error_of<ConfigError>([&] { validate(given); }).empty())  // a rule may refuse another value
        CHECK(resolved(given) == expected);
    }
    CHECK(unread > 10);
    given = plain;
    given.dropout = 0.25;
    CHECK(resolved(given).dropout == 0.25);
  }
}

TEST_CASE("resolved replaces zeros by what they stand for") {
  ModelConfig config;
  config.vocab = 65;
  const ModelConfig full = resolved(config);
  CHECK(full.n_out == 65);
  CHECK(full.kv_heads == 6);
  CHECK(full.head_dim == 64);
  CHECK(full.mlp_dim == 1536);
  CHECK(resolved(full) == full);
}
