// The papers' tables: their descriptions, and a run through of training, measuring and showing.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "tensor/base/error.h"
#include "tests/support/errors.h"
#include "tests/support/files.h"
#include "tests/support/processes.h"
#include "tests/support/tables.h"
#include "tests/support/threads.h"
#include "train/app/reproduce/reproduce.h"
#include "train/app/reproduce/run.h"
#include "train/config/run_config.h"
#include "train/files/text_file.h"
#include "train/record/metrics.h"
#include "train/tasks/state_tracking.h"
#include "train/tasks/task.h"
#include "train/text/dataset.h"
#include "train/text/stories/stories.h"

namespace {

using namespace eddy;
using namespace eddy::training;
using namespace eddy::app;
using namespace eddy::test;
namespace fs = std::filesystem;

// Two rows of the smallest table, in a folder of their own.
ReproduceOptions tiny_walk(const TempFolder& folder,
                           const std::vector<std::string>& rows = {"lstm", "staircase"}) {
  ReproduceOptions options;
  options.table = "staircase/table-1";
  options.task = "random-walk";
  options.scale = "tiny";
  options.rows = rows;
  options.runs = folder.path("runs");
  options.set = {{"train.threads", "1"}};
  return options;
}

std::string row_folder(const ReproduceOptions& options, const std::string& row) {
  return (fs::path(options.runs) / plan_table(options).folder / row).string();
}

std::vector<std::string> tasks_of(const TableEntry& entry) {
  return entry.tasks.empty() ? std::vector<std::string>{""} : entry.tasks;
}

TEST_CASE("every table stands at every scale") {
  const TempFolder folder;
  for (const TableEntry& entry : reproduce_tables())
    for (const std::string& task : tasks_of(entry))
      for (const char* scale : {"tiny", "small", "paper"}) {
        CAPTURE(std::string(entry.name) + " " + scale);
        ReproduceOptions options;
        options.table = entry.name;
        options.task = task;
        options.scale = scale;
        // A text must be given but for a try, and a table that makes its data takes none.
        bool reads = true;
        options.data = folder.path("text");
        try {
          static_cast<void>(plan_table(options));
        } catch (const ConfigError&) {
          reads = false;
          options.data.clear();
        }
        const ReproduceTable table = plan_table(options);  // checks every configuration
        if (reads && !table.data.empty()) CHECK(contains(table.title, table.data));
        std::set<std::string> names, groups;
        for (const ReproduceRow& row : table.rows) {
          names.insert(row.name);
          groups.insert(row.group);
          CHECK(row.published.size() <= table.columns.size());
          CHECK(segment_length(row.config) > 0);
        }
        CHECK(names.size() == table.rows.size());
        CHECK(names.size() >= 2);
        if (!table.reference.empty()) CHECK(groups.count(table.reference) == 1);
        for (const ReproduceRow& row : table.rows)
          if (!row.weights_of.empty()) CHECK(names.count(row.weights_of) == 1);
      }
}

TEST_CASE("rows at paper scale are the configurations of the examples") {
  const auto compare = [](const char* table, const char* row, const std::string& file) {
    ReproduceOptions options;
    options.table = table;
    options.scale = "paper";
    if (options.table.ends_with("table-3")) options.data = "shakespeare.txt";
    for (ReproduceRow known : plan_table(options).rows) {
      if (known.name != row) continue;
      CAPTURE(known.name);
      const RunConfig example = load_run_config(EDDY_SOURCE_DIR "/examples/configs/" + file);
      known.config.data.path = example.data.path;
      CHECK(changed_keys(known.config) == changed_keys(example));
      return;
    }
    FAIL("no such row");
  };
  const char* shakespeare = "recurrent-transformers/table-3";
  compare(shakespeare, "regular_1", "shakespeare-regular-1.toml");
  compare(shakespeare, "regular_6", "shakespeare-regular-6.toml");
  compare(shakespeare, "unit_positions", "shakespeare-unit-positions.toml");
  compare(shakespeare, "unit", "shakespeare-unit.toml");
  compare("recurrent-transformers/table-4", "regular_4", "cifar-regular.toml");
  compare("recurrent-transformers/table-4", "block", "cifar-block.toml");
  compare("recurrent-transformers/table-6", "copy", "copy.toml");
  compare("recurrent-transformers/table-6", "selective_copy", "selective-copy.toml");
  compare("staircase/table-1", "staircase", "algorithm-staircase.toml");
}

TEST_CASE("the small Random Walk has the sizes at which its recurrent models learn") {
  ReproduceOptions options;
  options.table = "staircase/table-1";
  options.task = "random-walk";
  for (const ReproduceRow& row : plan_table(options).rows) {
    CAPTURE(row.name);
    const ModelConfig& m = row.config.model;
    const TrainConfig& t = row.config.train;
    const bool chunked = row.name == "staircase" || row.name == "cached_staircase";
    CHECK(row.config.data.extensions.get<StateTrackingKeys>().walk_grid == 4);
    CHECK(row.config.data.extensions.get<StateTrackingKeys>().walk_length == 100);
    CHECK(m.dropout == 0);
    CHECK(m.dim == 128);
    CHECK(m.segment == (chunked ? 64 : 32));
    CHECK(t.batch * m.segment == 4096);
    CHECK(t.steps == 4500);
    CHECK(t.warmup == 100);
    CHECK(t.learning_rate == (row.name == "lstm" ? 2e-3 : 1e-3));
    if (row.name == "lstm") CHECK(m.embed_dim == 64);
    if (row.name == "staircase") CHECK(m.chunk == 8);
    if (chunked) CHECK(m.span == 16);
    if (chunked) CHECK(m.steps * m.chunk == 16);
    if (!chunked && row.name != "lstm") CHECK(m.span == 48);
  }
}

TEST_CASE("all example configurations validate") {
  int files = 0;
  for (const auto& entry : fs::directory_iterator(EDDY_SOURCE_DIR "/examples/configs")) {
    CAPTURE(entry.path().string());
    CHECK_NOTHROW(validate(load_run_config(entry.path().string())));
    ++files;
  }
  CHECK(files >= 12);
}

TEST_CASE("rows are trained and measured once and shown beside the paper's numbers") {
  const OneThread one_thread;
  const TempFolder folder;
  const ReproduceOptions options = tiny_walk(folder);
  const Told first = reproduce_quietly(options);
  CHECK(first.end == ReproduceEnd::done);
  CHECK(contains(first.text, "| error, %, paper | error, %, ours |"));
  CHECK(contains(first.text, "eddy reproduce staircase/table-1 --rows lstm --scale tiny --task random-walk"));
  CHECK(contains(first.text, "84.1"));
  CHECK(contains(first.text, "not run"));  // the rows left out
  const RowResult result = result_of(options, "lstm");
  CHECK(result.step == 12);
  CHECK(result.values.at("error_percent") > 0);
  CHECK(result.values.at("error_percent") <= 100);
  const std::string page = read_text_file(fs::path(row_folder(options, "")).string() + "index.html");
  CHECK(contains(page, "Validation loss of all rows"));
  CHECK(contains(page, "error percent"));
  for (const char* against : {">steps<", ">tokens<", ">operations<", ">seconds<"})
    CHECK_MESSAGE(contains(page, against), against);
  CHECK(result.values.at("flops_per_token") > 0);

  const auto before = fs::last_write_time(row_folder(options, "lstm") + "/result.json");
  const Told second = reproduce_quietly(options);
  CHECK(contains(second.text, "lstm: done already"));
  CHECK(contains(second.text, "staircase: done already"));
  CHECK(fs::last_write_time(row_folder(options, "lstm") + "/result.json") == before);
}

TEST_CASE("the staircase's steps and forward sizes are measured beside those of Transformer-XL") {
  const OneThread one_thread;
  const TempFolder folder;
  ReproduceOptions options;
  options.table = "staircase/tables-2-3";
  options.scale = "tiny";
  options.rows = {"transformer_xl", "staircase-n2-c4", "cached_staircase-n3-c8", "universal-n4"};
  options.runs = folder.path("runs");
  options.data = folder.write("text.txt", generate_stories(3, 3000));
  options.set = {{"train.threads", "1"}};
  const Told told = reproduce_quietly(options);
  CHECK(told.end == ReproduceEnd::done);
  for (const char* part : {"time of a batch, relative, ours", "perplexity 25.2", "| staircase, N 2, C 4 "})
    CHECK_MESSAGE(contains(told.text, part), part);
  CHECK(!contains(told.text, "kept for backward, MiB, paper"));
  for (const std::string& row : options.rows) {
    const RowResult result = result_of(options, row);
    CHECK(result.values.at("bits_per_byte") > 0);
    CHECK(result.values.at("bits_per_byte") < 8);
    CHECK(result.values.at("saved_bytes") > 0);
    CHECK(result.values.at("flops_per_token") > 0);
    CHECK(result.values.at("peak_bytes") >= result.values.at("saved_bytes"));
  }
  const std::string page = read_text_file(row_folder(options, "") + "index.html");
  CHECK(contains(page, "bits per byte against time of a batch, relative"));
}

TEST_CASE("the report of a copy run shows the accuracy by noise length") {
  const OneThread one_thread;
  const TempFolder folder;
  ReproduceOptions options;
  options.table = "recurrent-transformers/table-6";
  options.scale = "tiny";
  options.rows = {"copy"};
  options.runs = folder.path("runs");
  options.set = {{"train.threads", "1"}};
  CHECK(reproduce_quietly(options).end == ReproduceEnd::done);
  const std::string report = read_text_file(row_folder(options, "copy") + "/report.html");
  for (const char* part : {"Accuracy by noise length", "this model, 16 examples each",
                           "when last validated at this length", "Noise length", "Validation accuracy"})
    CHECK_MESSAGE(contains(report, part), part);
}

TEST_CASE("a row that is to have more steps goes on where it stands") {
  const OneThread one_thread;
  const TempFolder folder;
  ReproduceOptions options = tiny_walk(folder, {"lstm"});
  options.set["train.steps"] = "5";
  CHECK(reproduce_quietly(options).end == ReproduceEnd::done);
  CHECK(result_of(options, "lstm").step == 5);
  options.set["train.steps"] = "9";
  CHECK(reproduce_quietly(options).end == ReproduceEnd::done);
  CHECK(result_of(options, "lstm").step == 9);
  bool resumed = false;
  for (const EventRecord& event : read_metrics(row_folder(options, "lstm") + "/metrics.jsonl").events)
    resumed = resumed || contains(event.text, "resumed at step 5");
  CHECK(resumed);
}

TEST_CASE("a run that was killed before its first checkpoint begins again") {
  const OneThread one_thread;
  const TempFolder folder;
  ReproduceOptions options = tiny_walk(folder, {"lstm"});
  CHECK(reproduce_quietly(options).end == ReproduceEnd::done);
  const std::string row = row_folder(options, "lstm");
  for (const char* later : {"checkpoints", "result.json", "metrics.jsonl", "report.html"})
    fs::remove_all(row + "/" + later);
  CHECK(reproduce_quietly(options).end == ReproduceEnd::done);
  CHECK(result_of(options, "lstm").step == 12);
}

TEST_CASE("a stop ends the measuring of a row which the same command then measures") {
  const OneThread one;
  const TempFolder folder;
  ReproduceOptions options = tiny_walk(folder, {"lstm"});
  const Quiet quiet;
  std::string told;
  const ReproduceEnd end = reproduce(options, [&](std::string_view text) {
    told += text;
    if (text == "lstm: measuring\n") std::raise(SIGTERM);
  });
  CHECK(end == ReproduceEnd::interrupted);
  CHECK(contains(told, "interrupted: repeat the command to continue"));
  CHECK(result_of(options, "lstm").measured.empty());
  CHECK(reproduce_quietly(options).end == ReproduceEnd::done);
  CHECK(!result_of(options, "lstm").measured.empty());
}

TEST_CASE("a page that is not Eddy's is refused before a row is trained") {
  const TempFolder folder;
  const ReproduceOptions options = tiny_walk(folder);
  const std::string page = (fs::path(options.runs) / plan_table(options).folder / "index.html").string();
  fs::create_directories(fs::path(page).parent_path());
  write_bytes(page, "<!DOCTYPE html><html>mine</html>");
  CHECK(contains(error_of<IoError>([&] { reproduce_quietly(options); }), "is not a page of Eddy's"));
  CHECK(read_bytes(page) == "<!DOCTYPE html><html>mine</html>");
  CHECK(!fs::exists(row_folder(options, "lstm")));
}

TEST_CASE("a row goes on without the files beside its checkpoints and without latest") {
  const OneThread one_thread;
  const TempFolder folder;
  ReproduceOptions options = tiny_walk(folder, {"lstm"});
  options.set["train.steps"] = "5";
  CHECK(reproduce_quietly(options).end == ReproduceEnd::done);
  const std::string row = row_folder(options, "lstm");
  const double error = result_of(options, "lstm").values.at("error_percent");
  for (const char* file :
       {"config.json", "metrics.jsonl", "report.html", "id", "checkpoints/latest", "checkpoints/best"})
    for (const char* how : {"removed", "damaged", "folder"}) {
      CAPTURE(file);
      CAPTURE(how);
      fs::remove_all(row + "/" + file);
      if (how == std::string("damaged")) write_bytes(row + "/" + file, "{");
      if (how == std::string("folder")) fs::create_directory(row + "/" + file);
      fs::remove(row + "/result.json");
      CHECK(reproduce_quietly(options).end == ReproduceEnd::done);
      CHECK(result_of(options, "lstm").step == 5);
      CHECK(result_of(options, "lstm").values.at("error_percent") == error);
    }
}

TEST_CASE("a damaged result of a row names a way out that works") {
  const OneThread one_thread;
  const TempFolder folder;
  ReproduceOptions options = tiny_walk(folder, {"lstm"});
  options.set["train.steps"] = "5";
  CHECK(reproduce_quietly(options).end == ReproduceEnd::done);
  const std::string file = row_folder(options, "lstm") + "/result.json";
  const std::string whole = read_text_file(file);
  for (const char* how : {"cut", "folder", "digit", "no digest", "format"}) {
    CAPTURE(how);
    fs::remove(file);
    std::string text = whole;
    if (how == std::string("cut")) text = "{\"format\"";
    if (how == std::string("digit")) text.replace(text.find("\"loss\": ") + 8, 1, "7");
    if (how == std::string("no digest")) text.replace(text.find("\"digest\""), 8, "\"digits\"");
    if (how == std::string("format")) text = text_with_digest(nlohmann::json::parse(whole), 2);
    if (how == std::string("folder"))
      fs::create_directory(file);
    else
      write_bytes(file, text);
    CHECK(contains(error_of<Error>([&] { reproduce_quietly(options); }),
                   "remove it, and the row is measured again"));
    fs::remove_all(file);
    CHECK(reproduce_quietly(options).end == ReproduceEnd::done);
  }
  const std::string left = row_folder(options, "") + "index.html.tmp-999999999-0";
  write_bytes(left, "part");
  for (const auto& entry : fs::directory_iterator(row_folder(options, "lstm") + "/checkpoints"))
    if (entry.is_directory()) fs::remove(entry.path() / "state.json");
  CHECK(
      contains(error_of<FormatError>([&] { reproduce_quietly(options); }), "and the row is trained again)"));
  fs::remove_all(row_folder(options, "lstm"));
  CHECK(reproduce_quietly(options).end == ReproduceEnd::done);
  CHECK(!fs::exists(left));
}

TEST_CASE("a folder with another configuration or with something else is refused") {
  const OneThread one_thread;
  const TempFolder folder;
  ReproduceOptions options = tiny_walk(folder, {"lstm"});
  CHECK(reproduce_quietly(options).end == ReproduceEnd::done);
  options.set["model.dim"] = "20";
  const std::string told = error_of<ConfigError>([&] { reproduce_quietly(options); });
  CHECK(contains(told, "model.dim: 32, wanted 20"));
  CHECK(contains(told, "--runs"));
  options.set.erase("model.dim");
  for (const auto& [key, value] : {std::pair{"train.tensorboard", "true"}, {"train.capture", "off"}}) {
    options.set[key] = value;  // a finished row stays as it is
    CHECK(contains(reproduce_quietly(options).text, "lstm: done already"));
    options.set.erase(key);
  }
  options.rows = {"staircase"};
  fs::create_directories(row_folder(options, "staircase"));
  replace_text_file(row_folder(options, "staircase") + "/notes.txt", "mine");
  CHECK(contains(error_of<IoError>([&] { reproduce_quietly(options); }), "is not a run"));
  options.rows = {"lstm"};  // which is done: the other does not stand in its way
  CHECK(reproduce_quietly(options).end == ReproduceEnd::done);
}

TEST_CASE("losses by length are measured on the same targets and with borrowed weights") {
  const OneThread one_thread;
  const TempFolder folder;
  ReproduceOptions options;
  options.table = "blockwise-recurrent/table-1";
  options.scale = "tiny";
  options.rows = {"mem", "llama_window"};
  options.runs = folder.path("runs");
  options.data = folder.write("stories.txt", generate_stories(4, 12'000));
  options.set = {{"train.threads", "1"}, {"train.steps", "3"}, {"train.warmup", "1"}};
  const Told told = reproduce_quietly(options);
  CHECK(told.end == ReproduceEnd::done);
  CHECK(contains(told.text, "windows by length: 4 at 32, 4 at 64, 4 at 128"));
  CHECK(contains(told.text, "the weights of llama"));
  options.rows = {"llama"};
  CHECK(reproduce_quietly(options).end == ReproduceEnd::done);
  const RowResult llama = result_of(options, "llama"), window = result_of(options, "llama_window"),
                  mem = result_of(options, "mem");
  // Up to the window there is no difference between the two, behind it there is.
  CHECK(std::abs(llama.values.at("last_32") - window.values.at("last_32")) <= 1e-5);
  CHECK(llama.values.at("last_128") != window.values.at("last_128"));
  CHECK(mem.values.at("last_64") > 0);
  CHECK(mem.parameters > llama.parameters);
  const std::string text = read_text_file(llama.config.data.path.front());
  const std::string request = "\x02Repeat above.\x01";
  const std::size_t at = text.find(request);
  REQUIRE(at != std::string::npos);
  CHECK(text.substr(0, at) == text.substr(at + request.size() - 1, at));
  // Other stories must not take their place.
  options.data = folder.write("others.txt", generate_stories(5, 12'000));
  CHECK(contains(error_of<ConfigError>([&] { reproduce_quietly(options); }), "other stories"));
}

TEST_CASE("a text without separators between its stories is refused before anything is made") {
  const TempFolder folder;
  ReproduceOptions options;
  options.table = "blockwise-recurrent/table-1";
  options.scale = "tiny";
  options.runs = folder.path("runs");
  std::string text = generate_stories(4, 12'000);
  std::replace(text.begin(), text.end(), '\n', ' ');
  options.data = folder.write("stories.txt", text);
  CHECK(contains(error_of<ValueError>([&] { reproduce_quietly(options); }), "has 1 story"));
  CHECK_FALSE(fs::exists(folder.path("runs")));
}

TEST_CASE("a dry run shows the rows and touches nothing") {
  const TempFolder folder;
  ReproduceOptions options = tiny_walk(folder);
  options.dry_run = true;
  options.set["train.steps"] = "77";
  const Told told = reproduce_quietly(options);
  CHECK(told.end == ReproduceEnd::done);
  CHECK(contains(told.text, "- 2 rows to train on "));
  CHECK(contains(told.text, " operations"));
  CHECK(contains(told.text, " parameters\n"));
  CHECK(contains(told.text, "[lstm]"));
  CHECK(contains(told.text, "train.steps = 77"));
  CHECK_FALSE(contains(told.text, "[feedback]"));
  CHECK_FALSE(fs::exists(options.runs));
}

TEST_CASE("a table of one's own is read, checked and run") {
  const OneThread one_thread;
  const TempFolder folder;
  const std::string table = R"(title = "one of each"
columns = [{title = "loss", key = "loss"}, {title = "state", key = "state_bytes", decimals = 0},
           {title = "a token", key = "token_ms"}, {title = "parameters", key = "parameters", decimals = 0}]
[model]
params = 3000
heads = 2
context = 8
[data]
name = "parity"
[train]
steps = 2
batch = 2
eval_every = 0
threads = 1
[[row]]
name = "stairs"
title = "a staircase"
model = {model = "staircase", chunk = 4, layers = 2}
[[row]]
name = "unit"
title = "a unit recurrence"
model = {model = "unit_forget"}
published = [0.5]
)";
  ReproduceOptions options;
  options.table = folder.write("mine.toml", table);
  options.runs = folder.path("runs");
  options.seeds = 2;
  const Told told = reproduce_quietly(options);
  CHECK(told.end == ReproduceEnd::done);
  CHECK(contains(told.text, "loss, paper"));
  CHECK(contains(told.text, " ± "));
  CHECK(contains(told.text, "1337, 1338"));
  CHECK(plan_table(options).folder == "mine");
  const RowResult unit = result_of(options, "unit-seed-1338");
  CHECK(unit.config.train.seed == 1338);
  CHECK(std::abs(unit.values.at("parameters") - 3000) <= 90);
  CHECK(unit.values.at("state_bytes") > 0);
  CHECK(result_of(options, "stairs-seed-1337").values.at("token_ms") > 0);
  CHECK(contains(reproduce_quietly(options).text, "unit-seed-1338: done already"));

  const auto refused = [&](const std::string& from, const std::string& to) {
    std::string changed = table;
    changed.replace(changed.find(from), from.size(), to);
    ReproduceOptions other = options;
    other.table = folder.write("other.toml", changed);
    other.runs = folder.path("none");
    return error_of<ConfigError>([&] { reproduce_quietly(other); });
  };
  CHECK(contains(refused("\"loss\"}", "\"lost\"}"), "nothing measures the column \"lost\" (nearest: loss"));
  CHECK(contains(refused("layers = 2", "layer = 2"), "other.toml:18:"));
  CHECK(contains(refused("layers = 2", "layer = 2"), "(nearest: layers)"));
  CHECK(contains(refused("\"unit_forget\"", "\"unit_forgets\""), "unit_forget"));
  CHECK(contains(refused("\"unit\"", "\"stairs\""), "the name stairs stands twice"));
  CHECK(contains(refused("published = [0.5]", "publishd = [0.5]"), "(nearest: published"));
  CHECK(contains(refused("published = [0.5]", "published = [1, 2, 3, 4, 5]"),
                 "5 published numbers for 4 columns"));
  CHECK(contains(refused("published = [0.5]", "weights_of = \"units\""), "which is no row that is trained"));
  CHECK(contains(refused("\"unit\"", "\"../unit\""), "it names a folder"));
  CHECK(contains(refused("\"a staircase\"", "\"{stairs}\""), "a brace itself is written twice"));
  CHECK(contains(refused("params = 3000", "params = 3"), "cannot have model.params = 3"));
  CHECK(contains(refused("chunk = 4", "chunk = 3"), "model.chunk must divide"));
  CHECK_FALSE(fs::exists(folder.path("none")));
}

TEST_CASE("another text than the paper's is refused but for a try, and named where it is taken") {
  const TempFolder folder;
  ReproduceOptions options;
  options.table = "recurrent-transformers/table-3";
  options.data = folder.write("mine.txt", "another text");
  CHECK(contains(error_of<ConfigError>([&] { plan_table(options); }),
                 "is not the text of recurrent-transformers/table-3"));
  options.scale = "tiny";
  CHECK(contains(plan_table(options).title, "mine.txt"));
  options.data.clear();
  options.table = "blockwise-recurrent/table-1";
  options.scale = "small";
  if (standard_places().data_dir.empty())
    CHECK(contains(error_of<IoError>([&] { plan_table(options); }), "needs TinyStories"));
  options.scale = "tiny";
  if (standard_places().data_dir.empty())
    CHECK(contains(plan_table(options).title, "on stories that Eddy makes"));
}

TEST_CASE("published numbers of bytes do not stand beside rows that read pieces") {
  const TempFolder folder;
  ReproduceOptions options;
  options.table = "block-recurrent/table-1";
  options.data = folder.path("books");
  const auto published = [](const ReproduceTable& table) {
    return std::any_of(table.rows.begin(), table.rows.end(), [](const ReproduceRow& row) {
      return !row.published.empty() && std::isfinite(row.published[0].value);
    });
  };
  CHECK(published(plan_table(options)));
  options.set["data.tokenizer"] = "t5.model";
  const ReproduceTable table = plan_table(options);
  CHECK_FALSE(published(table));
  CHECK(std::any_of(table.rows.begin(), table.rows.end(), [](const ReproduceRow& row) {
    return row.published.size() > 1 && std::isfinite(row.published[1].value);  // the step times stay
  }));
  CHECK(std::any_of(table.notes.begin(), table.notes.end(),
                    [](const std::string& note) { return contains(note, "they are left out"); }));
}

TEST_CASE("names that there are none of are refused with the nearest") {
  const TempFolder folder;
  const auto refused = [&](auto&& change) {
    ReproduceOptions options = tiny_walk(folder);
    change(options);
    return error_of<ConfigError>([&] { plan_table(options); });
  };
  CHECK(contains(refused([](ReproduceOptions& o) { o.table = "staircase/table-2"; }), "staircase/table-1"));
  CHECK(contains(refused([](ReproduceOptions& o) { o.rows = {"lstn"}; }), "nearest: lstm"));
  CHECK(contains(refused([](ReproduceOptions& o) { o.task = "walk"; }), "random-walk"));
  CHECK(contains(refused([](ReproduceOptions& o) { o.scale = "huge"; }), "small"));
  CHECK(contains(refused([](ReproduceOptions& o) { o.set["train.step"] = "1"; }), "train.steps"));
  CHECK(contains(refused([](ReproduceOptions& o) { o.data = "x"; }), "--data"));
  CHECK(contains(refused([](ReproduceOptions& o) { o.table = "recurrent-transformers/table-3"; }), "--task"));
  CHECK_FALSE(fs::exists(folder.path("runs")));
}

}  // namespace
