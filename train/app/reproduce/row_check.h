// The rows of a table before they run: whether each can be trained and each column is measured, and how large they are.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>

#include "train/app/reproduce/reproduce.h"

namespace eddy::app {

struct RowSize {
  std::int64_t parameters = 0;
  double flops_per_token = 0;  // of the forward pass, with a carried state
  std::string off{};  // why no gradient passes through its recurrence; empty: it does, or there is none
};

// Makes the task and the model of each row of the table whose runs are in `folder`, so that what is wrong in the table,
// such as a column that nothing measures, ends the command before hours are spent on others. Returns why, by the names
// of the rows whose model does not fit their task: these cannot be trained, and the others can.
// errors: ConfigError and others, with the place in the table's file.
std::map<std::string, std::string> check_rows(const ReproduceTable& table,
                                              const std::filesystem::path& folder);

// Returns the sizes of the rows by name. Where not all data are at hand (`all`; check_rows reads them), of those rows
// alone whose data are, since the vocabulary follows from a text. Rows that are left out have none.
// errors: those of making a task and a model.
std::map<std::string, RowSize> row_sizes(const ReproduceTable& table, const std::filesystem::path& folder,
                                         bool all);

}  // namespace eddy::app
