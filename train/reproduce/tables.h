// The functions that make the tables, and what their descriptions share. A new table adds its function here
// and an entry in reproduce.cpp.
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

// Returns a configuration of paper_configs() (models/model.h) by name; the vocabulary and the head are left
// for the data to fill in.
ModelConfig paper_model(const std::string& name);

// Returns options that measure rows on `batches` batches of a split (0: all of it), with the batch of
// training.
EvalOptions measured_on(const std::string& split, std::int64_t batches);

// Refuses --data for a table whose data are generated.
// errors: ConfigError, always.
[[noreturn]] void refuse_data(const char* table);

// Reports that there are no books to train on.
// errors: IoError, always.
[[noreturn]] void books_missing();

// Adds a note that the sizes are not those of the paper; nothing at paper scale.
void add_scale_note(ReproduceTable& table, Scale scale);

}  // namespace eddy
