// A table for readers: as text for a terminal or a Markdown page, and as an HTML page with the curves of all
// rows in one picture.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "train/app/reproduce/run.h"

namespace eddy::app {

// A row of a table: its result where there is one, and the command that makes it.
struct ShownRow {
  const ReproduceRow* row = nullptr;
  std::optional<RowResult> result;
  std::string command;
  std::string folder;
};

// Returns the table in Markdown with aligned columns: row, the published and our number for every column, seed,
// steps, tokens, time, and where rows of several seeds are ranked, their ranks. Further tables have what was tried
// where rows are tuned, what each learned and when, the differences of rows that differ in one thing, and the command
// and the device of each row; below stand the notes and the remarks. Rows without a result say so.
std::string table_text(const ReproduceTable& table, const std::vector<ShownRow>& rows);

// Returns the page: the table; the validation and training losses of all rows that have a metrics file, against steps,
// tokens, operations or seconds, as a reader chooses; and, where lengths are measured, the numbers against the length,
// ours and the published ones.
// errors: those of reading metrics.
std::string table_page(const ReproduceTable& table, const std::vector<ShownRow>& rows);

}  // namespace eddy::app
