// What single tables of the papers add: text that they make or cut, vocabularies,
// seeds, columns, and how long it takes.
#include <doctest/doctest.h>

#include <cmath>
#include <filesystem>
#include <string>
#include <vector>

#include "tensor/base/error.h"
#include "tests/support/errors.h"
#include "tests/support/files.h"
#include "tests/support/tables.h"
#include "tests/support/threads.h"
#include "train/app/reproduce/reproduce.h"
#include "train/app/reproduce/run.h"
#include "train/files/text_file.h"
#include "train/text/stories/stories.h"

namespace {

using namespace eddy;
using namespace eddy::training;
using namespace eddy::app;
using namespace eddy::test;
namespace fs = std::filesystem;

ReproduceOptions tiny(const TempFolder& folder, const char* table, const char* task,
                      std::vector<std::string> rows) {
  ReproduceOptions options;
  options.table = table;
  options.task = task;
  options.scale = "tiny";
  options.rows = std::move(rows);
  options.runs = folder.path("runs");
  options.set = {{"train.threads", "1"}};
  return options;
}

TEST_CASE("all models of the enwik8 table have as many parameters") {
  const OneThread one;
  const TempFolder folder;
  ReproduceOptions options = tiny(folder, "staircase/table-1", "enwik8",
                                  {"lstm", "transformer_xl", "staircase", "cached_staircase"});
  options.data = folder.write("text.txt", generate_stories(3, 20'000));
  CHECK(contains(plan_table(options).title, "text.txt"));
  const std::string told = reproduce_whole(options);
  CHECK(contains(told, "1.38"));
  for (const std::string& name : options.rows) {
    CAPTURE(name);
    const RowResult result = result_of(options, name);
    CHECK(std::abs(static_cast<double>(result.parameters) - 20'000) <= 600);
    CHECK(result.values.at("bits_per_byte") > 0);
    CHECK(result.values.at("recurrent_steps") == (name == "staircase" ? 4 : 1));
  }
  options.scale = "small";
  for (const char* scale : {"small", "paper"}) {
    options.scale = scale;
    CHECK(contains(error_of<ConfigError>([&] { plan_table(options); }),
                   "is not the text of staircase/table-1"));
  }
}

TEST_CASE("a figure has rows of its own and three seeds of each") {
  const TempFolder folder;
  ReproduceOptions options = tiny(folder, "staircase/figure-2", "random-walk", {});
  ReproduceTable figure = plan_table(options);
  CHECK(figure.columns[figure.across].key == "recurrent_steps");
  CHECK(row_of(figure, "staircase-n8-seed-1339").config.train.seed == 1339);
  options.rows = {"staircase-n8"};
  options.seeds = 1;
  CHECK(row_of(plan_table(options), "staircase-n8").config.model.steps == 8);
  options.table = "staircase/table-1";
  CHECK(contains(error_of<ConfigError>([&] { plan_table(options); }), "has no row"));
}

TEST_CASE("the picture of a figure shows the deviation over seeds") {
  const OneThread one;
  const TempFolder folder;
  ReproduceOptions options = tiny(folder, "staircase/figure-2", "random-walk", {"staircase"});
  const auto has_bars = [&] {
    reproduce_whole(options);
    return contains(read_text_file(fs::path(options.runs) / plan_table(options).folder / "index.html"),
                    "<path class=\"band");
  };
  options.seeds = 1;
  CHECK_FALSE(has_bars());
  options.seeds = 2;
  CHECK(has_bars());
}

TEST_CASE("a table makes a vocabulary of its training stories where pieces are asked for") {
  const OneThread one;
  const TempFolder folder;
  ReproduceOptions options = tiny(folder, "blockwise-recurrent/table-2", "", {"full_no_mlp"});
  options.data = folder.write("stories.txt", generate_stories(4, 40'000));
  options.set["data.tokenizer"] = kOwnVocabulary;
  CHECK(contains(reproduce_whole(options), "vocabulary: 512 pieces from 1 document"));
  const RowResult result = result_of(options, "full_no_mlp");
  CHECK(!result.config.model.memory_ffn);
  CHECK(fs::exists(result.config.data.tokenizer));
  CHECK(contains(plan_table(options).folder, "-pieces"));
  // Whole stories, once made.
  CHECK(!contains(reproduce_whole(options), "vocabulary: 512"));
  options.scale = "paper";
  options.set.erase("data.tokenizer");
  const ReproduceTable paper = plan_table(options);
  CHECK(paper.text.most_bytes == 0);
  CHECK(contains(row_of(paper, "mem").config.data.tokenizer, "pieces-4096.model"));
  options.set["data.tokenizer"] = "byte";
  CHECK(row_of(plan_table(options), "mem").config.data.tokenizer == "byte");
  CHECK(plan_table(options).text.most_bytes == 220);
}

TEST_CASE("the paper's columns of the recurrent transformers stand beside counted ones") {
  const OneThread one;
  const TempFolder folder;
  ReproduceOptions options = tiny(folder, "recurrent-transformers/table-6", "", {"copy"});
  const std::string told = reproduce_whole(options);
  CHECK(contains(told, "508.7"));
  const RowResult copy = result_of(options, "copy");
  // 4 symbols, noise n, 4 markers; blocks of half the noise, at most 8; width 24.
  const double noise = copy.values.at("noise"), tokens = noise + 8, block = std::min(noise / 2, 8.0);
  CHECK(copy.values.at("paper_operations") ==
        doctest::Approx(tokens / block * (4 * 24 * block * block + 2 * block * 24 * 24 + 2)));
  CHECK(copy.values.at("sample_operations") > copy.values.at("paper_operations"));
  CHECK(copy.values.at("standard_error") > 0);
  CHECK(copy.values.at("batch") == 8);

  options = tiny(folder, "recurrent-transformers/table-3", "", {"unit"});
  CHECK(contains(reproduce_whole(options), "75.9"));
  const RowResult unit = result_of(options, "unit");
  CHECK(unit.values.at("paper_operations") == 32 * (4 * 24 + 2 * 24 * 24));
  CHECK(unit.values.at("sampled_standard_error") > 0);
}

TEST_CASE("selective copy at scale small is the paper's configuration, stopped early") {
  ReproduceOptions options;
  options.table = "recurrent-transformers/table-6";
  RunConfig small = row_of(plan_table(options), "selective_copy").config;
  options.scale = "paper";
  const RunConfig paper = row_of(plan_table(options), "selective_copy").config;
  CHECK(small.model == paper.model);
  CHECK(small.data == paper.data);
  CHECK(small.train.steps < paper.train.steps);
  CHECK(small.train.minutes > 0);
  small.train.steps = paper.train.steps;
  small.train.minutes = paper.train.minutes;
  small.train.log_every = paper.train.log_every;
  CHECK(small.train == paper.train);
}

TEST_CASE("the table reads the beginning of a longer file, and numbers of the test split") {
  const OneThread one;
  const TempFolder folder;
  ReproduceOptions options;
  options.table = folder.write("mine.toml", R"(title = "a beginning"
columns = [{title = "loss", key = "loss"}, {title = "test", key = "test_loss"}]
[text]
kind = "file"
entry = "nothing"
needs = "a text"
source_bytes = {small = 3000}
[text.digest]
small = "md5:77c5db6d5ee6ab7aa2c7e4fd5d1c9c70"
[model]
model = "lstm"
family = "staircase"
dim = 8
context = 8
[data]
tokenizer = "byte"
test = 0.05
[train]
steps = 2
batch = 2
eval_every = 0
threads = 1
[[row]]
name = "one"
title = "one"
)");
  options.runs = folder.path("runs");
  const std::string text = generate_stories(5, 5'000);
  options.data = folder.write("text.txt", text);
  const std::string refused = error_of<ConfigError>([&] { plan_table(options); });
  const std::size_t at = refused.find("(digest md5:");
  REQUIRE(at != std::string::npos);
  std::string table = read_text_file(options.table);
  table.replace(table.find("md5:"), 36, refused.substr(at + 8, 36));
  options.table = folder.write("mine.toml", table);
  CHECK(contains(reproduce_whole(options), "the first 3000 bytes"));
  const RowResult result = result_of(options, "one");
  CHECK(read_text_file(result.config.data.path.front()) == text.substr(0, 3000));
  CHECK(result.values.at("test_loss") > 0);
  CHECK(result.values.at("test_loss") != result.values.at("loss"));
}

TEST_CASE("rows of many steps are timed before the first is trained") {
  const OneThread one;
  const TempFolder folder;
  ReproduceOptions options = tiny(folder, "staircase/table-1", "random-walk", {"lstm", "transformer_xl"});
  CHECK(contains(reproduce_whole(options), "== row 2 of 2, transformer_xl: Transformer-XL =="));
  options.runs = folder.path("longer");
  options.set["train.steps"] = "100";
  const std::string told = reproduce_whole(options);
  for (const char* part :
       {"timing some steps of 2 rows", "  lstm: about ", "all: about ", "== row 1 of 2, lstm: LSTM, about ",
        "lstm: trained in ", " left for 1 more row\n"})
    CHECK_MESSAGE(contains(told, part), part);
  CHECK(!contains(reproduce_whole(options), "timing some steps"));
}

TEST_CASE("rows of different families on one task are each timed with a task of their own") {
  const OneThread one;
  const TempFolder folder;
  ReproduceOptions options = tiny(folder, "families/copy", "", {"unit_forget", "block_forget", "lstm"});
  options.seeds = 1;
  options.set["train.steps"] = "100";
  options.set["train.learning_rate"] = "1e-3";
  const std::string told = reproduce_whole(options);
  for (const std::string& row : options.rows) {
    CHECK(contains(told, "  " + row + ": about "));
    CHECK(!contains(told, "  " + row + ": about -"));
  }
}

}  // namespace
