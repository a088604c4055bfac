// Describes the keys of a table's file.
#include "train/app/reproduce/table_keys.h"

#include <algorithm>
#include <cstddef>
#include <type_traits>

namespace eddy::app {
using namespace training;

namespace {

constexpr const char* kCountsRule = "a table of whole numbers by scale, as {small = 400}";
constexpr const char* kNotesRule = "a list of texts, or of {text, when}";

std::vector<std::string> names_of_tables() {
  std::vector<std::string> names;
  for (const TableEntry& entry : reproduce_tables()) names.emplace_back(entry.name);
  return names;
}

// What rows may be measured on: a part of the data.
std::vector<std::string> measured_splits() {
  return {value_name(Split::train), value_name(Split::valid), value_name(Split::test)};
}

// What a note may wait for: the tasks of the tables, and what add_notes in tables.cpp knows of a text.
std::vector<std::string> note_conditions() {
  std::vector<std::string> all{"bytes", "pieces", "made", "given"};
  for (const TableEntry& entry : reproduce_tables())
    for (const std::string& task : entry.tasks)
      if (std::find(all.begin(), all.end(), task) == all.end()) all.push_back(task);
  return all;
}

}  // namespace

// The parts of a file are described here alone. KeyList finds these functions by the namespace of their structs.
template <class T>
static void describe(KeyList& keys, ByScale<T>& by_scale) {
  for (std::size_t i = 0; i < by_scale.values.size(); ++i) {
    ConfigField& field = keys.add(ValueNames<Scale>::all[i], by_scale.values[i], "Value at this scale");
    field.ints = {std::is_same_v<T, std::int64_t> ? 0 : 1};
    field.reals = {.low = 0, .high = 1e6};  // minutes
  }
}

static void describe(KeyList& keys, RunSections&) {
  keys.ignore({"model", "data", "train"});
}

static void describe(KeyList& keys, ScaleSections& sections) {
  RunSections at_all_scales;
  describe(keys, at_all_scales);
  for (std::size_t i = 0; i < sections.at.size(); ++i)
    keys.add_table(ValueNames<Scale>::all[i], sections.at[i], "a table of the tables model, data and train");
}

static void describe(KeyList& keys, TableNote& note) {
  keys.add("text", note.text, "What to know").required();
  keys.add("when", note.when, "Conditions, of which all hold", note_conditions());
}

static void describe(KeyList& keys, TextKeys& text) {
  keys.add("entry", text.entry, "Its file or folder in EDDY_DATA_DIR").required();
  keys.add("needs", text.needs, "What the text is, for errors").required();
  keys.add("sha256", text.sha256, "Its digest");
  keys.add_table("digest", text.digest, "a table of texts by scale, as {small = \"md5:...\"}");
  keys.add("kind", text.kind, "How it is read or told; without it the task's name", value_names<TextKind>());
  keys.add("of_paper", text.of_paper, "Whether it is one text that all have");
  keys.add_table("source_bytes", text.source_bytes, kCountsRule);
  keys.add_table("generated_bytes", text.generated_bytes, kCountsRule);
  keys.add_table("most_bytes", text.most_bytes, kCountsRule);
}

static void describe(KeyList& keys, EvaluationKeys& evaluation) {
  keys.add("split", evaluation.split, "Split that is measured", measured_splits());
  describe(keys, evaluation.batches);
}

static void describe(KeyList& keys, TuneKeys& tune) {
  keys.add("by", tune.by, "Number of the evaluations of the split valid that chooses");
  keys.add("better", tune.better, "Which of two numbers is the better one", value_names<Better>());
  describe(keys, tune.values);
}

static void describe(KeyList& keys, BudgetKeys& budget) {
  keys.add("equal", budget.equal, "What all rows have in equal parts", value_names<BudgetPart>()).required();
  keys.add("of", budget.of, "Row that has as much as all; without it the first");
  keys.add_table("minutes", budget.minutes,
                 "a table of minutes by scale that all have, in place of those of a row, as {small = 2}");
}

static void describe(KeyList& keys, ReproduceLearned& learned) {
  keys.add("by", learned.by, "Number of the evaluations of the split valid").required();
  keys.add("at", learned.at, "Value that it reaches and keeps").required();
  keys.add("better", learned.better, "Which of two numbers is the better one", value_names<Better>());
}

static void describe(KeyList& keys, ReproduceColumn& column) {
  keys.add("title", column.title, "Title").required();
  keys.add("key", column.key, "Number that it shows").required();
  keys.add("factor", column.factor, "Multiplies the number");
  keys.add("relative", column.relative, "Whether it is divided by the number of the reference row");
  keys.add("decimals", column.decimals, "Digits behind the point", {0, 12});
  keys.add("better", column.better,
           "Which of two numbers is the better one: rows of several seeds are ranked", value_names<Better>());
}

static void describe(KeyList& keys, Published& published) {
  keys.add("value", published.value, "Number as published").required();
  keys.add("remark", published.remark, "What stands beside it, or in its place").required();
}

static void describe(KeyList& keys, RowKeys& row) {
  keys.add("name", row.name, "Names the row's folder").required();
  keys.add("title", row.title, "Title; without it the name");
  keys.add("preset", row.preset, "Configuration of a paper, whose model the row begins with");
  keys.add_list("published", row.published,
                "a list with a number for each column; also a text, or {value, remark}")
      .or_values();
  keys.add("against", row.against,
           "Row from which it differs in one thing; the page has the difference of the first column");
  keys.add("weights_of", row.weights_of, "Row whose weights this one runs");
  keys.add("longest", row.longest, "Longest window to measure", {0});
  keys.add("scales", row.scales, "Scales that have the row", value_names<Scale>());
  keys.add("tables", row.tables, "Tables of this build that have the row", names_of_tables());
  keys.add("reference", row.reference, "Whether others are relative to it");
  keys.add_table("pieces", row.pieces, kCountsRule);
  keys.add_table("evaluation", row.evaluation, kCountsRule);
  keys.add("recurrence_off", row.recurrence_off,
           "Whether it is meant that the recurrence is off, since the window is as long as the call");
  describe(keys, row.sections);
}

void describe(KeyList& keys, TableKeys& table) {
  keys.add("title", table.title, "Title").required();
  keys.add("folder", table.folder, "Folder of the rows");
  keys.add_list("columns", table.columns, "a list of tables, each with a title and a key");
  keys.add_table("evaluation", table.evaluation, "a table, as {split = \"valid\", small = 400}");
  keys.add_table("sampled_batches", table.sampled_batches, kCountsRule);
  keys.add_table("windows", table.windows, kCountsRule);
  keys.add_table("lengths", table.lengths, "a table of lists by scale, as {small = [256, 512]}");
  keys.add("across", table.across, "Column that the first is drawn against", {0});
  keys.add("chart", table.chart, "Number of the evaluations to draw beside the loss");
  keys.add("chart_factor", table.chart_factor, "Multiplies that number");
  keys.add("generated", table.generated, "Whether the task makes the data");
  keys.add_list("notes", table.notes, kNotesRule).or_values();
  keys.add_list("small_notes", table.small_notes, kNotesRule).or_values();
  keys.add("published_at", table.published_at, "Scales of the published numbers", value_names<Scale>());
  keys.add_table("pieces", table.pieces, kCountsRule);
  keys.add_table("text", table.text, "a table about the text, with entry and needs");
  keys.add("seeds", table.seeds, "How often each row is trained, with seeds one after another", {1, 1'000});
  keys.add_table("tune", table.tune,
                 "a table of lists of values, as {train = {learning_rate = [1e-3, 3e-3]}}");
  keys.add_table("budget", table.budget, "a table, as {equal = \"operations\", of = \"ROW\"}");
  keys.add_table("learned", table.learned, "a table, as {by = \"accuracy\", at = 0.99}");
  describe(keys, table.sections);
  keys.add_list("row", table.rows, "a list of tables, each with a name").required();
}

bool TableKeys::has_scales() const {
  return sections.any() ||
         std::any_of(rows.begin(), rows.end(), [](const RowKeys& row) { return row.sections.any(); });
}

void describe(KeyList& keys, TableBase& base) {
  keys.add("table", base.table, "Table of this build", names_of_tables()).required();
  keys.add("task", base.task, "Its task");
}

}  // namespace eddy::app
