// A table as people read it: as text for a terminal or a Markdown page, and as one HTML page with the rows'
// curves in one picture.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "train/reproduce/run.h"

namespace eddy {

// What a table's row shows: its result where there is one, and the command that makes it.
struct ShownRow {
  const ReproduceRow* row = nullptr;
  std::optional<RowResult> result;
  std::string command;
  std::string folder;
};

// The table in Markdown, columns aligned: row, the published and the own number of every column, seed, steps,
// tokens, time; a second one with each row's command and device; below them the notes and the rows' remarks.
// Rows without a result say so.
std::string table_text(const ReproduceTable& table, const std::vector<ShownRow>& rows);

// The page: the table, the validation and training losses of all rows that have a metrics file, and, where
// lengths are measured, the loss against the length, ours and the published.
// errors: those of reading metrics.
std::string table_page(const ReproduceTable& table, const std::vector<ShownRow>& rows);

}  // namespace eddy
