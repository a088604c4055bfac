// What all rows of a table have in equal parts, turned into steps: tokens follow from the configurations; training
// operations and times are counted or measured once, and budget.json in the folder of the table keeps the steps, so
// that a repeated table has the same digits.
#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <string_view>

#include "train/app/reproduce/reproduce.h"
#include "train/app/reproduce/row_check.h"

namespace eddy::app {

// Sets the steps of all rows by the table's budget. A row whose cost was not recorded yet has `counted` = false, unless
// `sizes` has its operations.
// errors: ConfigError where a row was counted with another configuration; those of reading budget.json.
void settle_budget(ReproduceTable& table, const std::filesystem::path& folder,
                   const std::map<std::string, RowSize>& sizes = {});

// Refuses a budget that is that of a row which is left out, unless it follows from the configuration alone.
// errors: ConfigError.
void check_budget(const ReproduceTable& table);

// Counts or measures what is missing, and keeps it. Steps are timed one row after the other: the machine should do
// nothing else, and a line says so where it does. Texts and vocabularies must be there.
// errors: those of making tasks and models; ConfigError for a row that the memory has no room for.
void record_budget(const ReproduceTable& table, const std::filesystem::path& folder,
                   const std::function<void(std::string_view)>& log);

// Under which budget the rows stand: "budget: equal tokens, 2 M of training for each row".
std::string budget_text(const ReproduceTable& table);

}  // namespace eddy::app
