// `eddy reproduce`: the tables of the papers, run again. Each table is data (staircase_algorithm.toml and so
// on): a list of rows, each with a configuration and its published numbers. One procedure (reproduce.cpp)
// trains and measures the rows and sets the numbers side by side.
//
//   RUNS/FAMILY/TABLE-SCALE/ROW/              the run, as `eddy train` leaves it
//                          /ROW/result.json   its configuration and what was measured
//                          /tune/ROW/...      the trials of a tuned row, each a run with its result.json (tuning.h)
//                          /budget.json       the steps that follow from operations or from times (budget.h)
//                          /index.html        the table, and the curves of all rows in one picture
//                          /text/             text made for the table, where it needs some
//
// A finished row is not run again; an interrupted one is resumed.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "models/value_names.h"
#include "train/app/measure/scale.h"
#include "train/config/run_config.h"
#include "train/eval/evaluate.h"

namespace eddy::app {

// Which of two numbers is the better one.
enum class Better { lower, higher };
// What all rows of a table may have in equal parts; operations are those of training.
enum class BudgetPart { tokens, operations, time };
// How the text of a table is made, the key text.kind: stories as they are or told twice
// (train/text/stories/stories.h), a few long documents, or a file.
enum class TextKind { plain, repeat, documents, file };

}  // namespace eddy::app

// Their names, in the order of the values.
template <>
struct eddy::ValueNames<eddy::app::Better> {
  static constexpr const char* all[] = {"lower", "higher"};
};
template <>
struct eddy::ValueNames<eddy::app::BudgetPart> {
  static constexpr const char* all[] = {"tokens", "operations", "time"};
};
template <>
struct eddy::ValueNames<eddy::app::TextKind> {
  static constexpr const char* all[] = {"plain", "repeat", "documents", "file"};
};

namespace eddy::app {

// A number as published.
struct Published {
  double value = std::numeric_limits<double>::quiet_NaN();
  std::string remark{};  // "out of memory", or which of two numbers it is
};

// One measured column: a number of the evaluation by its name, such as loss or accuracy (Task::numbers); "last_N",
// the loss on the last targets of windows of N tokens; "accuracy_N", or another number,
// of made rows of N tokens; or one of common_columns.
struct ReproduceColumn {
  std::string title;
  std::string key;
  double factor = 1;      // multiplies the measured number
  bool relative = false;  // divide by the number of the table's reference row
  std::int64_t decimals = 4;
  std::string better{};     // Better: rows of several seeds are ranked by it; empty: they are not
  std::string place{};      // in the table's file, for errors
  std::int64_t length = 0;  // above 0: it is of rows or windows of so many tokens (ReproduceTable::lengths)
};

// The columns that every task has, with what they are.
struct CommonColumn {
  const char* key;
  const char* about;
};
std::span<const CommonColumn> common_columns();

// What is tried for each row, and by which number of the evaluations of `valid` the best is chosen.
struct ReproduceTune {
  struct Key {
    std::string key;                  // "train.learning_rate"
    std::vector<std::string> values;  // as --set takes them
  };
  std::vector<Key> keys;  // empty: nothing is tuned
  std::string by = "loss", better = value_name(Better::lower);
  std::string place{};  // in the table's file, for errors
};

// When a row counts as having learned the task: a number of the evaluations of `valid` reaches a value. `better`: lower
// where it is reached from above.
struct ReproduceLearned {
  std::string by;  // empty: the page does not say
  double at = 0;
  std::string better = value_name(Better::higher);
  std::string place{};  // in the table's file, for errors
};

// What all rows have in equal parts, as much as the row `of` has; empty: each has the steps of its configuration.
struct ReproduceBudget {
  std::string equal;   // BudgetPart
  std::string of;      // empty: the first row
  double minutes = 0;  // of training, in place of the time of a row; 0: of a row
  std::string place{};
};

// Some values of the tuned keys, one for each, trained for a part of the row's steps.
struct Trial {
  std::vector<std::string> values;
  std::int64_t steps = 0;
  double score = std::numeric_limits<double>::quiet_NaN();  // NaN: it diverged, or has not run
};

// How far the tuning of a row is.
struct RowTuning {
  std::vector<Trial> done;        // in the order in which they run
  std::vector<Trial> next;        // what is to run before more is known
  std::vector<std::string> best;  // the values that won; empty: not known yet, or none
  std::int64_t steps_left = 0;    // of all trials to come, at most
  bool over() const { return next.empty(); }
  bool diverged() const { return over() && !done.empty() && best.empty(); }  // at all values
};

struct ReproduceRow {
  std::string name;  // name of its folder, and in --rows
  std::string title;
  training::RunConfig config;
  std::vector<Published> published;  // one for each column
  std::string against{};      // the row from which it differs in one thing; the page has the difference
  std::string weights_of{};   // run the weights of this other row in this row's model; empty: train them
  std::int64_t longest = 0;   // longest window to measure; 0: all
  std::int64_t batches = 0;   // of a table that is measured on some batches: how many of this row; 0: as many
  std::int64_t pieces = 0;    // size of the vocabulary that kOwnVocabulary makes for it; 0: none
  std::string place{};        // in the table's file, for errors
  std::string group{};        // its name without its seed; rows of one group are shown as one
  std::string variant{};      // ends the name of its folder: "-learning_rate-0.003", where that was tuned
  RowTuning tuning{};         // of a table that tunes
  bool off_is_meant = false;  // its recurrence may be off (row_check.h)
  std::string left_out{};     // why it cannot be trained (check_rows); empty: it can
  bool counted = true;        // false: its steps follow from costs that are not known yet (budget.h)

  std::string folder() const { return name + variant; }
};

// Text that a table makes for itself.
struct ReproduceText {
  std::optional<TextKind> kind{};    // file: its beginning; none: the table makes no text
  std::string source{};              // file or folder of stories; empty: the embedded story generator
  std::int64_t source_bytes = 0;     // use only so many of its first bytes; 0: all
  std::int64_t generated_bytes = 0;  // how many bytes the generator writes
  std::int64_t most_bytes = 0;       // repeat: cut stories into pieces of at most so many; 0: do not cut
};

// The value of data.tokenizer that asks for the vocabulary which the table makes.
inline constexpr const char* kOwnVocabulary = "pieces.model";

struct ReproduceTable {
  std::string name;    // "staircase/table-1"
  std::string folder;  // below RUNS; tables that share rows share it
  std::string title;
  std::string data{};              // the text, where it is not the paper's; the title names it too
  std::vector<std::string> notes;  // what to know when comparing
  std::vector<ReproduceColumn> columns;
  std::vector<ReproduceRow> rows;
  std::string reference{};  // the row that relative columns divide by
  ReproduceTune tune{};
  ReproduceBudget budget{};
  ReproduceLearned learned{};
  std::int64_t seeds = 1;            // of each row, unless --seeds says otherwise
  std::size_t across = 0;            // above 0: the page draws the first column against this one
  training::EvalOptions evaluation;  // how rows are measured; batch 0: the batch of training
  // Above 0: also measure rows on so many random batches, as a paper estimates its numbers. These numbers are
  // named "sampled_loss", "sampled_accuracy" and so on.
  std::int64_t sampled_batches = 0;
  bool generated = false;  // the task makes the data
  // Whether windows of a text are measured, and whether a whole split is.
  bool by_windows() const { return !lengths.empty() && !generated; }
  bool by_split() const {
    return !by_windows() || std::any_of(columns.begin(), columns.end(),
                                        [](const ReproduceColumn& column) { return column.length == 0; });
  }
  bool has_scales = false;  // whether rows differ by scale
  ReproduceText text;
  // Lengths of windows, for the columns last_N; of a task that makes its data, of rows, for the first column at each.
  std::vector<std::int64_t> lengths{};
  std::int64_t last = 256;    // scored targets of a window
  std::int64_t windows = 0;   // at most so many windows, fewer where they are long
  std::string chart_key{};    // another number of the evaluations to draw beside the loss; may be empty
  std::string chart_place{};  // in the table's file, for errors
  double chart_factor = 1;
};

// The arguments that a table is made from.
struct TableRequest {
  Scale scale = Scale::small;
  std::string table;      // the table of this build that it is or begins from; empty: none
  std::string task;       // of that table; empty: it has only one
  std::string data;       // --data; empty: the table's own
  std::string data_dir;   // EDDY_DATA_DIR
  std::string tokenizer;  // --set data.tokenizer; empty: the table's own
  std::string across{};   // TableEntry::across
  bool of_user = false;   // a user's file
};

// One entry of the list of tables.
struct TableEntry {
  const char* name;
  const char* summary;
  std::vector<std::string_view> files;  // its TOML (tables.h): one for all tasks, or one for each
  std::vector<std::string> tasks{};     // variants of the table; empty: only one
  std::int64_t seeds = 0;               // of each row; 0: as the file says
  std::string across{};                 // the column that the first is drawn against; empty: as the file says
};
std::span<const TableEntry> reproduce_tables();

struct ReproduceOptions {
  std::string table;              // its name in reproduce_tables(), or a file.toml
  std::vector<std::string> rows;  // names; empty: all
  std::string scale = value_name(Scale::small);
  std::string task;
  std::string data;
  std::string runs = "runs/reproduce";
  std::map<std::string, std::string> set;  // "train.steps" to "100": for every row
  std::int64_t windows = 0;                // above 0: replaces ReproduceTable::windows
  std::int64_t seeds = 0;  // every row so many times, with seeds one after another; 0: as the table says
  std::int64_t jobs = 1;   // so many processes train rows side by side
  bool dry_run = false;
  training::Ranks* ranks =
      nullptr;  // the processes that share each row, of which this is the first; null: this one alone
};

// Whether a table's name is that of a user's file.
inline bool is_table_file(const std::string& table) {
  return table.ends_with(".toml");
}

// Returns the table as it would run: with the place of the data, the overrides and the paths of the rows
// filled in, and with the steps and the tuned values that earlier calls have found.
// errors: ConfigError for an unknown table, task, scale or row (with the nearest name), for overrides of
// unknown keys, and for inconsistent configurations.
ReproduceTable plan_table(const ReproduceOptions& options);

enum class ReproduceEnd { done, interrupted, failed };

// Trains and measures the rows. `log` receives progress and, at the end, the table. Returns `done` when all
// rows are complete, `failed` when one stopped because of losses that were not finite. After a row that ends with an
// error the others are trained, and so they are where the model of one does not fit its task; that error, the first if
// there are several, is thrown at the end.
// errors: as plan_table; ConfigError when a row's folder holds a run of another configuration; those of
// training and of the data.
ReproduceEnd reproduce(const ReproduceOptions& options, const std::function<void(std::string_view)>& log);

}  // namespace eddy::app
