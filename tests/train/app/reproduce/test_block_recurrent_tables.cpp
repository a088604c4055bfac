// The tables of Hutchins et al.: what they take from one another, their vocabularies, and that each runs.
#include <doctest/doctest.h>

#include <cmath>
#include <filesystem>
#include <map>
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
#include "train/text/text_measures.h"

namespace {

using namespace eddy;
using namespace eddy::training;
using namespace eddy::app;
using namespace eddy::test;
namespace fs = std::filesystem;

ReproduceOptions table(const std::string& name, const std::string& scale, const std::string& task = "") {
  ReproduceOptions options;
  options.table = name;
  options.scale = scale;
  options.task = task;
  options.data = "books";  // a plan does not read them
  return options;
}

std::map<std::string, double> first_numbers(const ReproduceTable& of) {
  std::map<std::string, double> numbers;
  for (const ReproduceRow& row : of.rows)
    if (!row.published.empty()) numbers[row.name] = row.published.front().value;
  return numbers;
}

// Rows of a table at the scale tiny, each of three steps, on stories that Eddy makes.
ReproduceTable run_rows(const TempFolder& folder, const std::string& name, const std::string& task,
                        const std::vector<std::string>& rows) {
  CAPTURE(name);
  CAPTURE(task);
  ReproduceOptions options = table(name, "tiny", task);
  options.data.clear();
  options.rows = rows;
  options.runs = folder.path("runs");
  options.set = {
      {"train.threads", "1"}, {"train.steps", "3"}, {"train.warmup", "1"}, {"train.eval_every", "3"}};
  CHECK(reproduce_quietly(options).end == ReproduceEnd::done);
  ReproduceTable planned = plan_table(options);
  for (const std::string& row : rows) {
    CAPTURE(row);
    const RowResult result = row_state(planned, row_of(planned, row), options.runs).result.value();
    for (const ReproduceColumn& column : planned.columns) {
      CAPTURE(column.key);
      CHECK(std::isfinite(result.values.at(column.key)));
    }
  }
  return planned;
}

}  // namespace

TEST_CASE("block-recurrent tables: the columns of Table 1 share its rows and have numbers of their own") {
  const ReproduceTable bytes = plan_table(table("block-recurrent/table-1", "paper"));
  const ReproduceTable books = plan_table(table("block-recurrent/table-1-tokens", "paper"));
  const ReproduceTable code = plan_table(table("block-recurrent/table-1-tokens", "paper", "github"));
  REQUIRE(bytes.rows.size() == 14);
  REQUIRE(books.rows.size() == 14);
  CHECK(first_numbers(bytes).at("rec_fixed_skip") == 0.952);
  CHECK(first_numbers(books).at("rec_fixed_skip") == 3.53);
  CHECK(first_numbers(code).at("rec_fixed_skip") == 0.976);
  CHECK(row_of(code, "memorizing").published.front().remark == "-");
  CHECK(row_of(books, "slide_13l").config.train.schedule == "rsqrt");
  CHECK(row_of(code, "slide_13l").config.train.schedule == "block_cosine");
  CHECK(row_of(code, "slide_13l").config.data.document == "folder");
  CHECK(row_of(bytes, "slide_13l").config.data.tokenizer == "byte260");
  CHECK(fs::path(row_of(books, "slide_13l").config.data.tokenizer).filename() == "pieces-32000.model");
  // All rows train on as many tokens a step, four times as many on repositories.
  for (const ReproduceTable* one : {&bytes, &books, &code})
    for (const ReproduceRow& row : one->rows)
      CHECK(row.config.train.batch * segment_of(row.config.model) == (one == &code ? 4 : 1) * 131072);
}

TEST_CASE("block-recurrent tables: the published numbers are the paper's") {
  using Numbers = std::map<std::string, double>;
  CHECK(first_numbers(plan_table(table("block-recurrent/table-2", "paper"))) ==
        Numbers{{"rec_650m", 28.46}, {"rec_1.3b", 26.5}});
  CHECK(first_numbers(plan_table(table("block-recurrent/table-3", "paper", "window"))) ==
        Numbers{{"rec_quarter", 3.58},
                {"rec_half", 3.54},
                {"rec_whole", 3.53},
                {"slide_quarter", 3.69},
                {"slide_half", 3.64},
                {"slide_whole", 3.6}});
  CHECK(first_numbers(plan_table(table("block-recurrent/table-3", "paper", "states"))) ==
        Numbers{{"quarter", 3.54}, {"half", 3.535}, {"whole", 3.53}, {"twice", 3.51}, {"four_times", 3.55}});
  // Table 5's word perplexities follow from its bits and tokens per word, as the paper says.
  for (const ReproduceRow& row : plan_table(table("block-recurrent/table-5", "paper")).rows) {
    CAPTURE(row.name);
    const double per_word = row.published[1].value, bits = row.published[2].value;
    CHECK(std::exp2(per_word * bits) == doctest::Approx(row.published[3].value).epsilon(0.002));
    CHECK(row.published[0].value / 6'966'499 == doctest::Approx(per_word).epsilon(0.0001));
  }
}

TEST_CASE("block-recurrent tables: Table 4 has the sizes and the schedule of the scaling study") {
  const ReproduceTable sizes = plan_table(table("block-recurrent/table-4", "paper"));
  CHECK(sizes.rows.size() == 12);
  for (const ReproduceRow& row : sizes.rows) {
    CHECK(row.config.train.schedule == "block_cosine");
    CHECK(row.config.train.learning_rate == 0.01);
    CHECK(row.config.train.min_learning_rate == 0.001);
    CHECK(row.config.train.batch * segment_of(row.config.model) == 131072);
  }
}

TEST_CASE("block-recurrent tables: every table runs, with every kind of row") {
  const OneThread one_thread;
  const TempFolder folder;
  run_rows(folder, "block-recurrent/table-1", "", {"xl_512", "feedback_lstm_single", "memorizing"});
  run_rows(folder, "block-recurrent/table-1-tokens", "arxiv", {"slide_plus_1", "xl_1024"});
  run_rows(folder, "block-recurrent/table-1-tokens", "github", {"slide_plus_1", "feedback_fixed_skip"});
  run_rows(folder, "block-recurrent/table-2", "", {"rec_650m"});
  run_rows(folder, "block-recurrent/table-3", "window", {"rec_quarter"});
  run_rows(folder, "block-recurrent/table-3", "states", {"four_times"});
  run_rows(folder, "block-recurrent/table-4", "", {"xl_40m"});
  const ReproduceTable five = run_rows(folder, "block-recurrent/table-5", "", {"pieces_512", "bytes"});
  const RowResult bytes = row_state(five, row_of(five, "bytes"), folder.path("runs")).result.value();
  const std::string book = read_text_file(fs::path(bytes.config.data.path.front()) / "book-7.txt");
  const auto size = static_cast<double>(book.size()), words = static_cast<double>(count_words(book));
  CHECK(bytes.values.at("text_tokens") == size);
  CHECK(bytes.values.at("tokens_per_word") == size / words);
  CHECK(bytes.values.at("word_perplexity") ==
        doctest::Approx(std::exp(bytes.values.at("loss") * size / words)));
  run_rows(folder, "block-recurrent/places", "", {"layer_10", "layers_9_10"});
  run_rows(folder, "block-recurrent/gates", "", {"lstm_bias_1"});
}

TEST_CASE("block-recurrent tables: a vocabulary is made once, from the documents to train on") {
  const OneThread one_thread;
  const TempFolder folder;
  for (int i = 0; i < 10; ++i)
    folder.write("books/" + std::to_string(i) + ".txt",
                 i < 9 ? read_text_file(EDDY_SOURCE_DIR "/README.md") : std::string(3000, 'z'));
  ReproduceOptions options = table("block-recurrent/table-5", "tiny");
  options.data = folder.path("books");
  options.runs = folder.path("runs");
  options.rows = {"pieces_512"};
  options.set = {
      {"train.threads", "1"}, {"train.steps", "1"}, {"train.warmup", "1"}, {"train.eval_every", "0"}};
  CHECK(contains(reproduce_quietly(options).text, "vocabulary: 512 pieces from 9 documents"));  // 0.925 of 10
  const fs::path model = row_of(plan_table(options), "pieces_512").config.data.tokenizer;
  CHECK_FALSE(contains(read_text_file(model), "zz"));
  CHECK_FALSE(contains(reproduce_quietly(options).text, "vocabulary:"));
  options.runs = folder.path("other");
  options.data = folder.write("short/a.txt", "few letters");
  CHECK(
      contains(error_of<ValueError>([&] { reproduce_quietly(options); }), "--set data.tokenizer=FILE.model"));
  options.runs = folder.path("runs");
  options.data = folder.path("books");
  folder.write("books/0.txt", "another text");
  CHECK(
      contains(error_of<ConfigError>([&] { reproduce_quietly(options); }), "was made from other documents"));
}

TEST_CASE(
    "block-recurrent tables: a row whose vocabulary is someone else's does not keep the others from being planned") {
  const TempFolder folder;
  for (const char* book : {"a", "b", "c"})
    folder.write(std::string("books/") + book + ".txt", std::string(3000, book[0]));
  ReproduceOptions options = table("block-recurrent/table-5", "paper");
  options.data = folder.path("books");
  options.runs = folder.path("runs");
  options.dry_run = true;
  const Told told = reproduce_quietly(options);
  CHECK(contains(told.text, "[pieces_128k]"));
  CHECK(contains(told.text, "its vocabulary t5.model is not there"));
}

TEST_CASE("a table of one's own may begin from one of this build") {
  const TempFolder folder;
  ReproduceOptions options = table(folder.write("mine.toml", R"(
base = {table = "block-recurrent/table-3", task = "window"}
title = "mine"
[small.train]
steps = 3000
)"),
                                   "small");
  const ReproduceTable mine = plan_table(options);
  CHECK(mine.rows.size() == 6);
  CHECK(contains(mine.title, "mine"));
  CHECK(mine.rows.front().config.train.steps == 3000);
  CHECK(mine.rows.front().config.train.batch == 8);
  // Its rows are checked before their vocabulary is there.
  for (const char* book : {"a", "b", "c"})
    folder.write(std::string("books/") + book + ".txt", std::string(3000, book[0]));
  options.data = folder.path("books");
  options.runs = folder.path("runs");
  options.dry_run = true;
  const Told told = reproduce_quietly(options);
  CHECK(told.end == ReproduceEnd::done);
  CHECK(contains(told.text, "[rec_half]"));
  options.table = folder.write("other.toml", "base = {table = \"block-recurrent/table-9\"}\n");
  const std::string refused = error_of<ConfigError>([&] { plan_table(options); });
  CHECK(contains(refused, "other.toml:1:9: base.table is \"block-recurrent/table-9\""));
}

TEST_CASE("a base without a task has the first of its table, and a task that the table lacks is refused") {
  const TempFolder folder;
  const auto rows_of = [&](const std::string& task) {
    return plan_table(table(folder.write("mine.toml", "base = {table = \"block-recurrent/table-3\"" + task +
                                                          "}\ntitle = \"mine\"\n"),
                            "small"))
        .rows.size();
  };
  CHECK(rows_of("") == 6);
  CHECK(rows_of(", task = \"states\"") == 5);
  const std::string refused = error_of<ConfigError>([&] { rows_of(", task = \"state\""); });
  CHECK_MESSAGE(
      contains(refused, "mine.toml:1:44: block-recurrent/table-3 has no task \"state\" (nearest: states;"),
      refused);
  CHECK(contains(error_of<ConfigError>([&] { rows_of(", task = 3"); }), "mine.toml:1:44: base.task is 3"));
}
