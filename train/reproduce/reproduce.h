// The papers' tables, run again: each table is data (reproduce_<family>.cpp), a list of rows with a
// configuration and what was published, and one procedure trains, measures and sets the numbers side by side.
//
//   RUNS/FAMILY/TABLE-SCALE/ROW/              the run, as `eddy train` leaves it
//                          /ROW/result.json   its configuration and what was measured
//                          /index.html        the table, and the curves of all rows in one picture
//                          /text/             text made for the table, where it needs some
//
// A row that is done is not done again, one that was interrupted is resumed.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "train/config/run_config.h"
#include "train/eval/evaluate.h"

namespace eddy {

// small: minutes to an hour per row on a few CPU cores, sizes of our own; paper: the paper's sizes and steps;
// tiny: seconds, to see that everything works.
enum class Scale : std::uint8_t { tiny, small, paper };
const char* scale_name(Scale scale);

// A number as it was published.
struct Published {
  double value = std::numeric_limits<double>::quiet_NaN();
  std::string remark{};  // "out of memory", or which of two numbers it is
};

// What is measured of every row: a number of the evaluation by its name, such as loss or accuracy, step_ms,
// or "last_N", the loss on the last targets of windows of N tokens.
struct ReproduceColumn {
  std::string title;
  std::string key;
  double factor = 1;      // what the measured number is multiplied by
  bool relative = false;  // divided by that of the table's reference row
  int decimals = 4;
};

struct ReproduceRow {
  std::string name;  // of its folder, and in --rows
  std::string title;
  RunConfig config;
  std::vector<Published> published;  // one for each column
  std::string weights_of{};          // another row's weights under this row's model; empty: trained itself
  std::int64_t longest = 0;          // windows no longer than this are measured; 0: all
};

// Text that a table makes for itself: stories as they are or told twice (see story_text.h), or a few long
// documents.
struct ReproduceText {
  enum class Kind : std::uint8_t { none, plain, repeat, documents };
  Kind kind = Kind::none;
  std::string source{};              // file or folder of stories; empty: the embedded story generator
  std::int64_t source_bytes = 0;     // so many of its first bytes are taken; 0: all
  std::int64_t generated_bytes = 0;  // how many the generator writes
  std::int64_t most_bytes = 0;       // repeat: stories are cut into pieces of at most so many; 0: not cut
};

struct ReproduceTable {
  std::string name;                   // "staircase/table-1"
  std::string program = "reproduce";  // who runs it, at the head of errors
  std::string folder;                 // below RUNS; tables that share rows share it
  std::string title;
  std::vector<std::string> notes;  // what one must know to compare
  std::vector<ReproduceColumn> columns;
  std::vector<ReproduceRow> rows;
  std::string reference{};  // the row of relative columns
  EvalOptions evaluation;   // how rows are measured; batch 0: that of training
  // Above 0, rows are measured on so many random batches besides, as a paper estimates its numbers; those are
  // named "sampled_loss", "sampled_accuracy" and so on.
  std::int64_t sampled_batches = 0;
  ReproduceText text;
  std::vector<std::int64_t> lengths{};  // of windows, for the columns last_N
  std::int64_t last = 256;              // targets of a window that count
  std::int64_t windows = 0;             // at most so many, fewer where they are long
  std::string chart_key{};              // a number of the evaluations to draw besides the loss; may be empty
  double chart_factor = 1;
};

// What a table is made from.
struct TableRequest {
  Scale scale = Scale::small;
  std::string task;       // one of the table's tasks; empty: its first
  std::string data;       // --data; empty: the table's own
  std::string data_dir;   // EDDY_DATA_DIR
  std::string tokenizer;  // --set data.tokenizer; empty: the table's own
};

// One row of the list of tables.
struct TableEntry {
  const char* name;
  const char* summary;
  std::vector<std::string> tasks;  // variants of the table; empty: there is one
  ReproduceTable (*make)(const TableRequest& request);
};
std::span<const TableEntry> reproduce_tables();

struct ReproduceOptions {
  std::string table;              // its name in reproduce_tables()
  std::vector<std::string> rows;  // names; empty: all
  std::string scale = "small";
  std::string task;
  std::string data;
  std::string runs = "runs/reproduce";
  std::map<std::string, std::string> set;  // "train.steps" to "100": for every row
  std::int64_t windows = 0;                // above 0: replaces the table's
  bool dry_run = false;
};

// The table as it would be run: with the data's place, the overrides, and the rows' paths put in.
// errors: ConfigError for an unknown table, task, scale or row (the nearest is named), for overrides that are
// no keys, and for configurations that contradict themselves.
ReproduceTable plan_table(const ReproduceOptions& options);

enum class ReproduceEnd { done, interrupted, failed };

// Trains and measures the rows, `says` is told what happens and, at the end, the table. Returns whether all
// rows came to their end: `failed` when one gave up on losses that were not finite.
// errors: as plan_table; ConfigError when a row's folder holds a run of another configuration; those of
// training and of the data.
ReproduceEnd reproduce(const ReproduceOptions& options, const std::function<void(std::string_view)>& says);

}  // namespace eddy
