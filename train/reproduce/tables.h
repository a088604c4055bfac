// What makes each table, and what their descriptions share: a new table adds its function here and its row in
// reproduce.cpp.
#pragma once

#include <string>

#include "train/reproduce/reproduce.h"

namespace eddy {

ReproduceTable recurrent_transformers_table_3(const TableRequest& request);
ReproduceTable recurrent_transformers_table_4(const TableRequest& request);
ReproduceTable recurrent_transformers_table_6(const TableRequest& request);
ReproduceTable block_recurrent_table_1(const TableRequest& request);
ReproduceTable blockwise_recurrent_tables(const TableRequest& request);
ReproduceTable staircase_table_1(const TableRequest& request);

// A model of models/paper_configs() by name; vocabulary and head are left for the data to fill in.
ModelConfig paper_model(const std::string& name);

// How rows are measured: on `batches` batches of a split, 0 for all of it, in rows as in training.
EvalOptions measured_on(const std::string& split, std::int64_t batches);

// Refuses --data for a table whose data are made, not read.
// errors: ConfigError, always.
[[noreturn]] void refuse_data(const char* table);

// What to say when there are no books to train on.
// errors: IoError, always.
[[noreturn]] void books_missing();

// What to say when sizes are not the paper's; nothing at paper scale.
void add_scale_note(ReproduceTable& table, Scale scale);

}  // namespace eddy
