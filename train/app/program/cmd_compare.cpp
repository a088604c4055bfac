// `eddy compare`: compares two runs, or one run with its state kept and cleared, on the same texts, token by
// token. `eddy report`: any number of runs side by side, as a page, a table and comma-separated values.
#include <CLI/CLI.hpp>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <iostream>
#include <memory>
#include <set>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "tensor/base/format.h"
#include "train/app/program/commands.h"
#include "train/app/report/comparison.h"
#include "train/app/report/curves.h"
#include "train/app/report/side_by_side.h"
#include "train/app/report/task_rows.h"
#include "train/app/views/html_page.h"
#include "train/app/views/table.h"
#include "train/config/run_config.h"
#include "train/fetch/named_data.h"
#include "train/files/output_file.h"
#include "train/files/text_file.h"
#include "train/record/percent_line.h"
#include "train/run/checkpoint.h"
#include "train/text/documents.h"
#include "train/text/text_files.h"
#include "train/words/human_text.h"

namespace eddy::app {
using namespace training;
namespace {

struct CompareFlags {
  RunOptions a;  // the checkpoint and the device of both
  std::string run_b, data, html = "compare.html";
  std::int64_t top = 20, rows = 4;
  bool clear_state = false;
};

// Of a task without texts whose streams have no end.
constexpr std::int64_t kTokensOfARow = 4096;

void print_list(const char* heading, const std::vector<ComparedText>& texts,
                const std::vector<TokenDifference>& list) {
  print_line("\n{}", heading);
  if (list.empty()) return print_line("there is none");
  print(to_text(table_of(texts, list)));
}

int run_compare(const CompareFlags& flags) {
  const bool same_run = flags.run_b.empty();
  if (same_run && !flags.clear_state)
    fail<ValueError>("compare: there is only one run (name a second one, or add --clear-state)");
  check_output("compare", flags.html, kPageFile);
  const LoadedRun a = load_run("compare", flags.a);
  LoadedRun other;
  if (!same_run)
    other = load_run("compare", {flags.run_b, flags.a.checkpoint, flags.a.precision, flags.a.device});
  const LoadedRun& b = same_run ? a : other;
  const bool reads_text = a.tokenizer != nullptr;
  if (reads_text != (b.tokenizer != nullptr) || (!reads_text && a.config.data.name != b.config.data.name))
    fail<ValueError>("compare: the runs were trained on different tasks, {} and {} (name runs of one task)",
                     a.config.data.name, b.config.data.name);
  if (reads_text && flags.data.empty())
    fail<ValueError>("compare: --data is missing (a text file, or a folder of them)");
  if (!reads_text && !flags.data.empty())
    fail<ValueError>(
        "compare: {} was trained on the task {}, which has no text (leave out --data: rows of the task are read)",
        flags.a.path, a.config.data.name);
  if (!reads_text && (a.model->config().vocab != b.model->config().vocab ||
                      a.model->config().n_out != b.model->config().n_out))
    fail<ValueError>(
        "compare: the runs have {} and {} tokens, {} and {} answers (name runs of one task of the same sizes)",
        a.model->config().vocab, b.model->config().vocab, a.model->config().n_out, b.model->config().n_out);
  if (reads_text && a.tokenizer->to_json() != b.tokenizer->to_json())
    fail<ValueError>(
        "compare: the runs have different tokenizers: {} with {} tokens and {} with {}{} (runs can be compared only with "
        "the same tokenizer)",
        a.tokenizer->name(), a.tokenizer->vocab_size(), b.tokenizer->name(), b.tokenizer->vocab_size(),
        a.tokenizer->name() == b.tokenizer->name() && a.tokenizer->vocab_size() == b.tokenizer->vocab_size()
            ? " others"
            : "");
  TokenReading reading_a = reading_of(a, flags.rows), reading_b = reading_of(b, flags.rows);
  TaskRows rows;  // where the task has no texts: those of A's task
  if (!reads_text) {
    rows = rows_of_task("compare", a, flags.a.path,
                        {.rows = flags.rows, .tokens = kTokensOfARow, .one_state = true});
    if (rows.targets > 0)
      fail<ValueError>(
          "compare: {} was trained on the task {}, which has {} for {} tokens "
          "(tasks with an answer behind each token are read)",
          flags.a.path, a.config.data.name, rows.targets == 1 ? "one answer" : "answers at the end alone",
          rows.segment);
    for (const auto& [run, reading] : {std::pair(&a, &reading_a), {&b, &reading_b}}) {
      reading->segment = rows.segment;
      reading->carry_state = rows.carries_state && carries_state(run->model->full_config());
      reading->answers = rows.answers;
    }
  }
  const std::unique_ptr<Tokenizer> numbers = reads_text ? nullptr : number_tokens(a.model->config().vocab);
  const Tokenizer& tokenizer = reads_text ? *a.tokenizer : *numbers;
  reading_b.clear_state = flags.clear_state;
  if (flags.clear_state && !reading_b.carry_state)
    fail<ValueError>(
        "compare: {} carries no state from batch to batch that could be cleared (model {}, data.order {}, train.carry_state {})",
        same_run ? flags.a.path : flags.run_b, b.config.model.model, b.config.data.order,
        b.config.train.carry_state);

  std::vector<ComparedText> texts;
  const DataConfig& data = a.config.data;
  for (std::size_t i = 0; i < rows.tokens.size(); ++i)
    texts.push_back({fmt::format("row {} of {}", i + 1, data.name), std::move(rows.tokens[i]), {}, {}});
  const TextFiles read = reads_text ? list_text_files(local_data(flags.data, std::cerr), document_unit(data),
                                                      !data.json_field.empty())
                                    : TextFiles{};
  for (const TextFile& file : read.files) {
    try {
      const Documents documents = documents_of(file, cut_rule(data));
      for (std::size_t i = 0; i < documents.count(); ++i)
        texts.push_back({printable(file.name), a.tokenizer->encode(documents[i]), {}, {}});
    } catch (const ValueError& error) {
      fail<ValueError>("compare: {}: {}", file.path, error.what());
    } catch (const FormatError& error) {
      fail<FormatError>("compare: {}: {}", file.path, error.what());
    }
  }
  std::vector<std::span<const std::int32_t>> tokens;
  for (const ComparedText& text : texts) tokens.emplace_back(text.tokens);
  const auto losses = [&](const char* name, const LoadedRun& run, const TokenReading& reading) {
    PercentLine line(name);
    return token_losses(*run.model, tokens, reading, std::ref(line));
  };
  const auto losses_a = losses("compare: A", a, reading_a), losses_b = losses("compare: B", b, reading_b);
  for (std::size_t i = 0; i < texts.size(); ++i) {
    texts[i].nats_a = losses_a[i];
    texts[i].nats_b = losses_b[i];
  }
  const Comparison comparison = compare_runs(tokenizer, texts, flags.top);
  ComparedRuns runs{flags.a.path, same_run ? flags.a.path + " with its state cleared" : flags.run_b,
                    describe_reading(a, reading_a, flags.a.precision),
                    describe_reading(b, reading_b, flags.a.precision)};

  if (!read.left_out.empty()) print_line("data: {}{}", flags.data, describe_left_out(read));
  print_line("A: {} ({}): {:.6f} nats per token", runs.name_a, runs.about_a, comparison.loss_a);
  print_line("B: {} ({}): {:.6f} nats per token", runs.name_b, runs.about_b, comparison.loss_b);
  print_line("tokens: {}", comparison.tokens);
  print_list("tokens that A predicts better:", texts, comparison.a_better);
  print_list("tokens that B predicts better:", texts, comparison.b_better);
  // Behind the numbers, which a full disk does not take.
  write_output_file("compare", flags.html, render_comparison(runs, texts, comparison), kPageFile);
  print_line("\npage: {}", flags.html);
  return 0;
}

struct ReportFlags {
  std::vector<std::string> runs;
  std::string html = "runs.html", csv;
};

int run_report(const ReportFlags& flags) {
  check_output("report", flags.html, kPageFile);
  if (!flags.csv.empty()) check_output("report", flags.csv, kPointsFile);
  check_two_files("report", "--html", flags.html, "--csv", flags.csv);
  std::vector<std::string> folders;
  std::set<std::filesystem::path> seen;  // "a", "a/" and "./a" are one run
  std::error_code error;
  for (const std::string& given : flags.runs)
    for (const std::string& run : runs_in(given, "report"))
      if (seen.insert(std::filesystem::weakly_canonical(run, error)).second) folders.push_back(run);
  const std::vector<ReportedRun> runs = read_reported_runs(folders);
  for (const ReportedRun& run : runs)
    if (const Metrics& records = run.series.records(); records.foreign > 0)
      say(fmt::format(
          "warning: {}/metrics.jsonl has lines that are no records, {} of them, the first is {} (they are left out)",
          run.folder, records.foreign, records.first_foreign));
  for (const std::string& line : listed_apart(runs)) say("warning: " + line);
  const std::vector<SeedGroup> groups = groups_of(runs);

  print(to_text(ends_of(runs, groups)));
  if (const Table differing = differences_of(runs, groups); !differing.rows.empty())
    print("\n" + to_text(differing));
  write_output_file("report", flags.html, side_by_side_page(runs, groups), kPageFile);
  if (!flags.csv.empty()) write_output_file("report", flags.csv, points_csv(runs), kPointsFile);
  print_line("\npage: {}", flags.html);
  if (!flags.csv.empty()) print_line("points: {}", flags.csv);
  return 0;
}

Described describe_compare(CLI::App& command) {
  const auto flags = std::make_shared<CompareFlags>();
  command.add_option("RUN_A", flags->a.path, "Folder of a run, or of one checkpoint")->required();
  command.add_option("RUN_B", flags->run_b,
                     "The run to compare with; without it: RUN_A itself, with --clear-state");
  add_option(command, "--data", flags->data,
             "A text file, or a folder of them; of a task without texts fresh rows are read", not_empty());
  add_option(command, "--top", flags->top, "Tokens to list in each direction", whole_number(0, 100'000));
  command.add_flag(
      "--clear-state", flags->clear_state,
      "Clear the recurrent state of B at every segment; a cache of keys stays if the model has both");
  add_option(command, "--html", flags->html, "Page to write", not_empty());
  add_option(command, "--rows", flags->rows, "Texts read side by side; of a task without texts, rows to read",
             whole_number(1, 4096));
  add_checkpoint_option(command, flags->a.checkpoint, "Checkpoint of the run");
  add_device_option(command, flags->a.device);
  return {[flags] { return run_compare(*flags); }};
}

Described describe_report(CLI::App& command) {
  const auto flags = std::make_shared<ReportFlags>();
  command.add_option("RUN", flags->runs, "Folders of runs, or folders that hold runs; they may be training")
      ->required();
  add_option(command, "--html", flags->html, "Page to write", not_empty());
  add_option(command, "--csv", flags->csv, "Also write all points as comma-separated values to this file",
             not_empty());
  command.footer(
      "Runs that differ in train.seed alone are one line with a band. Runs of one seed are listed apart, and "
      "what cannot be read is left out.");
  return {[flags] { return run_report(*flags); }};
}

}  // namespace

Command commands::compare() {
  return {"compare", "List the tokens on which two runs differ most", Computes::products, Results::printed,
          describe_compare};
}

Command commands::report() {
  return {"report", "Lay runs side by side: curves, differences of configuration, and where they ended",
          Computes::nothing, Results::printed, describe_report};
}

}  // namespace eddy::app
