// A table that tunes its rows, gives them equal budgets, and ranks them by several seeds.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "tensor/base/error.h"
#include "tests/support/errors.h"
#include "tests/support/files.h"
#include "tests/support/tables.h"
#include "tests/support/threads.h"
#include "train/app/reproduce/budget.h"
#include "train/app/reproduce/page.h"
#include "train/app/reproduce/reproduce.h"
#include "train/app/reproduce/side_by_side.h"
#include "train/app/reproduce/tuning.h"
#include "train/config/run_config.h"
#include "train/files/text_file.h"
#include "train/record/metrics.h"

namespace {

using namespace eddy;
using namespace eddy::training;
using namespace eddy::app;
using namespace eddy::test;
namespace fs = std::filesystem;

// Two small models on parity; the third rate is one at which nothing stays finite.
std::string tuned_table(const std::string& more, const std::string& rates = "[1e-3, 1e-2, 1e30]") {
  return "title = \"tuned\"\ncolumns = [{title = \"loss\", key = \"loss\", better = \"lower\"}]\n"
         "evaluation = {split = \"test\", small = 1}\nseeds = 2\ntune.train.learning_rate = " +
         rates + "\n" + more + R"(
[model]
dim = 8
heads = 2
context = 8
[data]
name = "parity"
[train]
steps = 8
batch = 2
eval_every = 4
sample_tokens = 0
log_every = 1
threads = 1
[[row]]
name = "unit"
model = {model = "unit_forget"}
[[row]]
name = "attention"
model = {model = "regular", layers = 2}
)";
}

ReproduceOptions options_of(const TempFolder& folder, const std::string& table) {
  ReproduceOptions options;
  options.table = folder.write("mine.toml", table);
  options.runs = folder.path("runs");
  return options;
}

ReproduceTable planned(const TempFolder& folder, const std::string& table) {
  return plan_table(options_of(folder, table));
}

// A row with a number for a seed.
ReproduceRow numbered(const std::string& group, std::int64_t seed) {
  ReproduceRow row;
  row.group = row.title = group;
  row.name = group + "-" + std::to_string(seed);
  row.config.train.seed = seed;
  return row;
}

}  // namespace

TEST_CASE("a tuned row is trained with the values that won, and says what was tried") {
  const OneThread one;
  const TempFolder folder;
  ReproduceOptions options = options_of(folder, tuned_table(""));
  options.rows = {"unit"};
  const std::string told = reproduce_whole(options);
  CHECK(contains(told, "== tuning unit: learning_rate 0.001, 2 steps =="));
  CHECK(contains(told, "What was tried: loss on the split valid, lower is better"));
  CHECK(contains(told, "diverged after 2 steps"));
  CHECK(contains(told, "not tuned yet"));  // the row left out
  CHECK(contains(told, "the numbers are of the split test"));
  const ReproduceTable table = plan_table(options);
  const ReproduceRow& row = row_of(table, "unit-seed-1338");
  REQUIRE(row.tuning.best.size() == 1);
  CHECK(row.tuning.over());
  CHECK(row.tuning.best[0] != "1e+30");
  CHECK(row.tuning.done.size() == 5);  // three, then two
  CHECK(row.folder() == "unit-seed-1338-learning_rate-" + row.tuning.best[0]);
  const RowResult result = result_of(options, "unit-seed-1338");
  CHECK(result.step == 8);
  CHECK(result.config.train.learning_rate == row.config.train.learning_rate);
  CHECK(result.config.train.learning_rate < 0.1);

  const std::string again = reproduce_whole(options);
  CHECK(contains(again, "unit-seed-1338: done already"));
  CHECK(!contains(again, "== tuning"));
}

TEST_CASE("a changed grid keeps the trials that it has, and --set takes a key out of it") {
  const OneThread one;
  const TempFolder folder;
  ReproduceOptions options = options_of(folder, tuned_table(""));
  options.rows = {"unit"};
  options.seeds = 1;
  static_cast<void>(reproduce_whole(options));
  options.table = folder.write("mine.toml", tuned_table("", "[1e-3, 1e-2, 3e-3, 1e30]"));
  const RowTuning tuning = row_of(plan_table(options), "unit").tuning;
  CHECK(tuning.done.size() == 3);
  REQUIRE(tuning.next.size() == 1);
  CHECK(tuning.next[0].values == std::vector<std::string>{"0.003"});
  options.set["train.learning_rate"] = "0.5";
  const ReproduceTable fixed = plan_table(options);
  CHECK(fixed.tune.keys.empty());
  CHECK(row_of(fixed, "unit").config.train.learning_rate == 0.5);
  CHECK(row_of(fixed, "unit").folder() == "unit");
}

TEST_CASE("a row that diverges at all values is a result, and is not trained") {
  const OneThread one;
  const TempFolder folder;
  ReproduceOptions options = options_of(folder, tuned_table("", "[1e29, 1e30]"));
  options.rows = {"unit"};
  const std::string told = reproduce_whole(options);
  CHECK(contains(told, "unit: diverged at all values that were tried"));
  CHECK(contains(told, "none: all diverged"));
  CHECK(row_of(plan_table(options), "unit-seed-1337").tuning.diverged());
  CHECK(!fs::exists(fs::path(options.runs) / "mine" / "unit-seed-1337"));
}

TEST_CASE("trials of another configuration are refused") {
  const OneThread one;
  const TempFolder folder;
  ReproduceOptions options = options_of(folder, tuned_table("", "[1e-3, 1e-2]"));
  options.rows = {"unit"};
  options.seeds = 1;
  static_cast<void>(reproduce_whole(options));
  options.set["model.dim"] = "16";
  CHECK(contains(error_of<ConfigError>([&] { plan_table(options); }), "model.dim: 8, wanted 16"));
}

TEST_CASE("the best value at an end of the numbers that were tried is on the border") {
  ReproduceTune tune;
  tune.keys = {{"train.learning_rate", {"0.01", "0.001", "0.003"}}, {"train.optimizer", {"adam", "adamw"}}};
  const std::vector<std::string> border{"train.learning_rate"};
  CHECK(keys_on_border(tune, {"0.01", "adam"}) == border);
  CHECK(keys_on_border(tune, {"0.001", "adam"}) == border);
  CHECK(keys_on_border(tune, {"0.003", "adam"}).empty());
  CHECK(tuned_text(tune, {"0.003", "adam"}) == "learning_rate 0.003, optimizer adam");
}

TEST_CASE("equal tokens give a row with smaller batches more steps") {
  const TempFolder folder;
  std::string text = tuned_table("budget = {equal = \"tokens\", of = \"unit\"}");
  text += "train = {batch = 1}\n";
  const ReproduceTable table = planned(folder, text);
  CHECK(row_of(table, "unit-seed-1337").config.train.steps == 8);
  CHECK(row_of(table, "attention-seed-1337").config.train.steps == 16);
  CHECK(contains(budget_text(table), "equal tokens, 128"));
}

TEST_CASE("equal operations are counted once, and the steps are kept") {
  const OneThread one;
  const TempFolder folder;
  ReproduceOptions options =
      options_of(folder, tuned_table("budget = {equal = \"operations\", of = \"attention\"}", "[1e-3]"));
  options.seeds = 1;
  CHECK(!row_of(plan_table(options), "unit").counted);
  static_cast<void>(reproduce_whole(options));
  const ReproduceTable table = plan_table(options);
  const ReproduceRow &unit = row_of(table, "unit"), &attention = row_of(table, "attention");
  CHECK(attention.config.train.steps == 8);
  const double ratio = result_of(options, "attention").values.at("flops_per_token") /
                       result_of(options, "unit").values.at("flops_per_token");
  CHECK(unit.config.train.steps == std::llround(8 * ratio));
  CHECK(result_of(options, "unit").step == unit.config.train.steps);
  const std::string file = options.runs + "/mine/budget.json";
  std::string text = read_text_file(file);
  text.replace(text.find("\"cost\""), 6, "\"coat\"");
  replace_text_file(file, text);
  CHECK(contains(error_of<Error>([&] { plan_table(options); }), "and the steps are counted again"));
}

TEST_CASE("equal time has the steps that were recorded") {
  const TempFolder folder;
  ReproduceOptions options =
      options_of(folder, tuned_table("budget = {equal = \"time\", of = \"unit\"}", "[1e-3]"));
  options.seeds = 1;
  nlohmann::json rows;
  for (const ReproduceRow& row : plan_table(options).rows)
    rows[row.group] = {{"cost", row.name == "unit" ? 0.5 : 0.25}, {"config", to_json(row.config)}};
  fs::create_directories(options.runs + "/mine");
  replace_text_file(options.runs + "/mine/budget.json",
                    text_with_digest({{"equal", "time"}, {"rows", rows}}, 1));
  CHECK(row_of(plan_table(options), "unit").config.train.steps == 8);
  CHECK(row_of(plan_table(options), "attention").config.train.steps == 16);
  ReproduceOptions minutes =
      options_of(folder, tuned_table("budget = {equal = \"time\", minutes = {small = 0.5}}", "[1e-3]"));
  minutes.seeds = 1;
  CHECK(row_of(plan_table(minutes), "unit").config.train.steps == 60);
  CHECK(row_of(plan_table(minutes), "attention").config.train.steps == 120);
  CHECK(contains(budget_text(plan_table(minutes)), "equal time of training, 0.5 minutes"));
  options = options_of(folder, tuned_table("budget = {equal = \"time\", of = \"unit\"}", "[1e-3]"));
  options.seeds = 1;
  options.set["train.batch"] = "4";  // a step of which costs something else
  CHECK(contains(error_of<ConfigError>([&] { plan_table(options); }), "train.batch: 2, wanted 4"));
}

// The width follows from the vocabulary, which is known when the rows are trained.
TEST_CASE("a budget counted in time is read again where rows give their number of parameters") {
  const OneThread one;
  const TempFolder folder;
  std::string table = tuned_table("budget = {equal = \"time\", of = \"unit\"}", "[1e-3]");
  table.replace(table.find("dim = 8"), 7, "params = 3000");
  ReproduceOptions options = options_of(folder, table);
  options.seeds = 1;
  record_budget(plan_table(options), options.runs + "/mine", [](std::string_view) {});
  CHECK(row_of(plan_table(options), "unit").config.train.steps == 8);
  options.set["model.params"] = "4k";
  CHECK(contains(error_of<ConfigError>([&] { plan_table(options); }), "model.params: 3000, wanted 4000"));
}

TEST_CASE("rows tie unless the difference of their means exceeds twice its standard error") {
  ReproduceTable table;
  table.name = table.title = "t";
  table.columns = {{.title = "loss", .key = "loss", .better = "lower"}};
  for (const char* group : {"a", "b", "c", "d"})
    for (std::int64_t seed = 1; seed <= 3; ++seed) table.rows.push_back(numbered(group, seed));
  const double losses[] = {1.00, 1.02, 1.04, 1.01, 1.03, 1.05, 2.0, 2.1, 2.2, 0.5, 0.5, 0.5};
  std::vector<ShownRow> shown;
  for (std::size_t i = 0; i < table.rows.size(); ++i) {
    ShownRow row{&table.rows[i], std::nullopt, "command", "folder"};
    if (i < 10) {  // of the last row one seed alone has run
      row.result = RowResult{};
      row.result->values["loss"] = losses[i];
    }
    shown.push_back(std::move(row));
  }
  std::string text = table_text(table, shown);
  for (std::size_t at = 0; (at = text.find("  ")) != std::string::npos;) text.erase(at, 1);
  CHECK(contains(text, "1.0200 ± 0.0200"));
  CHECK(contains(text, "1 to 2"));
  CHECK(contains(text, "2.1000 ± 0.1000 | 3 "));
  CHECK(contains(text, "0.5000 (1 of 3 seeds) | |"));  // neither a deviation nor a rank
  CHECK(contains(text, "exceeds twice its standard error"));
}

TEST_CASE("a claimed row is another process's until the claim goes") {
  const TempFolder folder;
  {
    const std::optional<RunLock> mine = claim(folder.path(), "row");
    CHECK(mine.has_value());
    CHECK(!claim(folder.path(), "row").has_value());
    CHECK(claim(folder.path(), "other").has_value());
  }
  CHECK(claim(folder.path(), "row").has_value());
}

TEST_CASE("a task that makes its data is measured at other lengths than that of training") {
  const OneThread one;
  const TempFolder folder;
  std::string text = tuned_table("generated = true\nlengths = {small = [8, 32]}", "[1e-3]");
  text += "train = {warmup = 0}\n";
  text.replace(text.find("layers = 2"), 10, "layers = 2, positions = true");
  ReproduceOptions options = options_of(folder, text);
  options.seeds = 1;
  const std::string told = reproduce_whole(options);
  CHECK(contains(told, "loss at 32, ours"));
  const RowResult unit = result_of(options, "unit"), attention = result_of(options, "attention");
  for (const char* key : {"loss_8", "loss_32"}) {
    CAPTURE(key);
    CHECK(unit.values.at(key) > 0);
    CHECK(unit.values.at(key) < 2);
  }
  CHECK(attention.values.at("loss_8") > 0);
  CHECK(std::isnan(attention.values.at("loss_32")));  // it has no positions for them
  CHECK(contains(told, "not measured at 32"));
}

TEST_CASE("a text is measured at lengths beside the other columns of its table, on the table's split") {
  const OneThread one;
  const TempFolder folder;
  std::string words;
  for (int i = 0; i < 400; ++i) words += "word " + std::to_string(i * i) + "\n";
  std::string text = tuned_table("lengths = {small = [8, 16]}\nwindows = {small = 4}", "[1e-3]");
  text.replace(text.find("name = \"parity\""), 15, "test = 0.05");
  text += "train = {warmup = 0}\n";
  ReproduceOptions options = options_of(folder, text);
  options.data = folder.write("words.txt", words);
  options.seeds = 1;
  options.rows = {"unit"};
  const std::string told = reproduce_whole(options);
  const RowResult unit = result_of(options, "unit");
  for (const char* key : {"loss", "last_8", "last_16"}) {
    CAPTURE(key);
    CHECK(unit.values.at(key) > 0);
  }
  CHECK(contains(told, "last 8 of 16, ours"));
  CHECK(contains(told, "tokens of test"));
  CHECK(contains(told, "the numbers are of the split test"));
}

TEST_CASE("a page says in one line what each row learned, when, in how many seeds, and what was tried") {
  const TempFolder folder;
  ReproduceTable table;
  table.name = table.title = "t";
  table.columns = {{.title = "accuracy, %", .key = "accuracy", .factor = 100, .decimals = 1},
                   {.title = "accuracy at 8, %", .key = "accuracy_8", .factor = 100, .length = 8},
                   {.title = "accuracy at 16, %", .key = "accuracy_16", .factor = 100, .length = 16},
                   {.title = "accuracy at 32, %", .key = "accuracy_32", .factor = 100, .length = 32}};
  table.lengths = {8, 16, 32};
  table.generated = true;
  table.learned = {.by = "accuracy", .at = 0.99};
  table.tune.keys = {{"train.learning_rate", {"1e-3", "1e-2"}}};
  for (const char* group : {"all", "some", "none", "waits"})
    for (std::int64_t seed = 1; seed <= 2; ++seed) table.rows.push_back(numbered(group, seed));
  for (ReproduceRow& row : table.rows)
    if (row.group == "some") row.against = "all";
  // At three evaluations; the second seed of the second row is right once and forgets it again.
  const std::vector<std::vector<double>> right = {{0.1, 1, 1},   {0.1, 0.2, 1},   {0.1, 0.99, 1},
                                                  {0.1, 1, 0.5}, {0.1, 0.2, 0.3}, {0.1, 0.2, 0.4}};
  std::vector<ShownRow> shown;
  for (std::size_t i = 0; i < table.rows.size(); ++i) {
    ShownRow row{&table.rows[i], std::nullopt, "command", folder.path(table.rows[i].name)};
    if (i < right.size()) {
      MetricsWriter writer(folder.write(table.rows[i].name + "/metrics.jsonl", ""));
      for (std::size_t at = 0; at < 3; ++at)
        writer.write(EvalRecord{.step = 10 * (static_cast<std::int64_t>(at) + 1),
                                .loss = 1,
                                .tokens = 8,
                                .metrics = {{"accuracy", right[i][at]}}});
      row.result = RowResult{};
      const double last = right[i].back();
      row.result->values = {
          {"accuracy", last}, {"accuracy_8", last}, {"accuracy_16", last}, {"accuracy_32", 0.5}};
    }
    shown.push_back(std::move(row));
  }
  std::string text = table_text(table, shown);
  for (std::size_t at = 0; (at = text.find("  ")) != std::string::npos;) text.erase(at, 1);
  CHECK(contains(text, "| all | 2 of 2 seeds, by step 20 to 30; holds up to 16 tokens |"));
  CHECK(
      contains(text,
               "| some | 1 of 2 seeds, by step 20; the others end at 50.0 (accuracy, %), of what was tried: "
               "train.learning_rate of 1e-3, 1e-2 |"));
  CHECK(contains(text, "| none | 0 of 2 seeds; all end at 30.0 to 40.0 (accuracy, %), of what was tried"));
  CHECK(contains(text, "| waits | not run |"));
  CHECK(contains(text, "| some | all | -25.0 | no |"));
  CHECK(contains(table_page(table, shown), "In one line each"));
}

TEST_CASE("a row is against another row of its table") {
  const TempFolder folder;
  const std::string text = tuned_table("") + "against = \"unite\"\n";
  CHECK(contains(
      error_of<ConfigError>([&] { planned(folder, text); }),
      "against is \"unite\", which is no other row of the table (nearest: unit; rows: unit, attention"));
}

TEST_CASE(
    "the families' tables have rows that differ from another in one thing, where there is something to carry") {
  const TempFolder folder;
  ReproduceOptions options;
  options.runs = folder.path("runs");
  options.seeds = 1;
  for (const char* name : {"families/groups", "families/mqar", "families/copy", "families/recall"}) {
    CAPTURE(name);
    options.table = name;
    const ReproduceTable table = plan_table(options);
    CHECK(row_of(table, "regular_rotary").against == "regular");
    CHECK(row_of(table, "regular_rotary").config.model.rotary);
    CHECK(row_of(table, "universal").config.model.layers == 1);
    CHECK(row_of(table, "vanilla").config.model.window == 0);
    const bool carries = std::any_of(table.rows.begin(), table.rows.end(),
                                     [](const ReproduceRow& row) { return row.name == "xl"; });
    CHECK(carries == (options.table == "families/recall"));
  }
  options.table = "families/groups";
  options.task = "s5";
  CHECK(plan_table(options).folder == "families/groups-s5-small");
  CHECK(plan_table(options).columns.back().key == "accuracy_1024");
}

TEST_CASE("the families' tables tune rates on three seeds and report a split that chose nothing") {
  for (const char* name : {"families/text", "families/text-operations", "families/state", "families/copy",
                           "families/recall", "families/groups", "families/mqar"}) {
    CAPTURE(name);
    const TempFolder folder;
    ReproduceOptions options;
    options.table = name;
    options.runs = folder.path("runs");
    if (std::string(name).starts_with("families/text")) options.scale = "tiny";
    const ReproduceTable table = plan_table(options);
    CHECK(table.seeds == 3);
    CHECK(table.evaluation.split == Split::test);
    REQUIRE(table.tune.keys.size() == 1);
    CHECK(table.tune.keys[0].key == "train.learning_rate");
    CHECK(table.budget.equal == (std::string(name).ends_with("operations") ? "operations" : "tokens"));
    if (table.budget.equal == "tokens") {
      // Tuning takes 1.5 times as many steps as one run, half as many as three.
      const RowTuning& tuning = table.rows.front().tuning;
      const double steps = static_cast<double>(table.rows.front().config.train.steps);
      if (options.scale != "tiny") CHECK(static_cast<double>(tuning.steps_left) <= 1.6 * steps);
    }
  }
}
