// The keys of a table's file, but those of a run: [model], [data] and [train] are read as those of a configuration.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "models/config_keys.h"
#include "train/app/reproduce/reproduce.h"

namespace eddy::app {

// A value for each scale; that of T where the file gives none.
template <class T>
struct ByScale {
  std::array<T, 3> values{};
  const T& at(Scale scale) const { return values[static_cast<std::size_t>(scale)]; }
};

// The sections of a run, which set its keys.
struct RunSections {};

// These sections, and the same at a scale: [small.train] and so on.
struct ScaleSections {
  std::array<std::optional<RunSections>, 3> at{};
  bool any() const { return at[0] || at[1] || at[2]; }
};

// A note, which is shown where all of `when` hold: the task's name, bytes or pieces (tokens), made or given (text).
struct TableNote {
  std::string text;  // may hold {reference}, the row that others are relative to, and {most_bytes}
  std::vector<std::string> when;
};

// [text]: the text that the table reads or makes (ReproduceText).
struct TextKeys {
  std::string entry;  // of EDDY_DATA_DIR
  std::string needs;  // what it is, for errors
  std::string sha256;
  ByScale<std::string> digest;  // md5:... or SHA-256, in place of sha256
  std::string kind;             // TextKind: documents and a file are read as they are; empty: the task's name
  bool of_paper = true;
  ByScale<std::int64_t> source_bytes, generated_bytes, most_bytes;
};

struct EvaluationKeys {
  std::string split = value_name(training::EvalOptions{}.split);
  ByScale<std::int64_t> batches;  // 0: all
};

// [tune]: its tables model, data and train have a list of values for each key.
struct TuneKeys {
  std::string by = ReproduceTune{}.by, better = ReproduceTune{}.better;
  RunSections values;
};

// [budget]
struct BudgetKeys {
  std::string equal, of;
  ByScale<double> minutes;
};

struct RowKeys {
  // May hold {steps}, {chunk}, {repeats}, {window} and {states} of the row's model; without a title it is the name.
  std::string name, title;
  std::string preset;  // the model that the row begins with
  std::vector<Published> published;
  std::string against;  // the row from which it differs in one thing
  std::string weights_of;
  std::int64_t longest = 0;
  std::vector<std::string> scales;   // empty: all
  std::vector<std::string> tables;   // of this build that it stands in, which share a file; empty: all
  bool reference = false;            // the row that relative columns are divided by
  ByScale<std::int64_t> pieces;      // 0: as the file says
  ByScale<std::int64_t> evaluation;  // how many batches it takes, where its are smaller; 0: as the file says
  bool recurrence_off = false;       // that no token reaches the next call is meant
  ScaleSections sections;
};

struct TableKeys {
  std::string title;
  std::string folder;
  std::vector<ReproduceColumn> columns;
  EvaluationKeys evaluation;
  ByScale<std::int64_t> sampled_batches, windows;
  ByScale<std::vector<std::int64_t>> lengths;
  std::int64_t across = 0;
  std::string chart;
  double chart_factor = 1;
  bool generated = false;
  std::vector<TableNote> notes, small_notes;  // small_notes: not at the paper's scale
  std::vector<std::string> published_at;      // the scales that the published numbers are for; empty: all
  ByScale<std::int64_t> pieces;  // size of the vocabulary that is made where data.tokenizer = "pieces.model"
  std::optional<TextKeys> text;
  std::int64_t seeds = 1;
  std::optional<TuneKeys> tune;
  BudgetKeys budget;
  ReproduceLearned learned;
  ScaleSections sections;
  std::vector<RowKeys> rows;

  // Whether rows differ by scale.
  bool has_scales() const;
};

void describe(KeyList& keys, TableKeys& table);

// What a table's file names in `base`: a table of this build whose keys and rows hold where the file gives none.
struct TableBase {
  std::string table, task;
};
void describe(KeyList& keys, TableBase& base);

}  // namespace eddy::app
