// The functions that make the tables, and what their descriptions share. A new table adds its function here
// and an entry in reproduce.cpp.
#pragma once

#include <string>
#include <vector>

#include "train/reproduce/reproduce.h"

namespace eddy {

ReproduceTable recurrent_transformers_table_3(const TableRequest& request);
ReproduceTable recurrent_transformers_table_4(const TableRequest& request);
ReproduceTable recurrent_transformers_table_6(const TableRequest& request);
ReproduceTable block_recurrent_table_1(const TableRequest& request);
ReproduceTable blockwise_recurrent_tables(const TableRequest& request);
ReproduceTable staircase_table_1(const TableRequest& request);
ReproduceTable staircase_tables_2_3(const TableRequest& request);

// Settings are texts of keys and values as --set takes them, separated by blanks: "train.steps=100 model.dim=64".
// errors: ConfigError as ConfigKeys::read_texts.
void set_keys(RunConfig& config, const std::string& settings);

// Returns a configuration of paper_configs() (models/model.h) by name; the vocabulary and the head are left
// for the data to fill in.
ModelConfig paper_model(const std::string& name);

// What all rows of a table change of the defaults; `small` and `tiny` come after `paper`.
struct ScaleSettings {
  std::string paper, small, tiny;
};

// One row: the name of its paper_model, if it has one, and what it changes of the shared settings of the paper,
// and of scale small.
struct PaperRow {
  std::string name, title, model, settings;
  std::vector<Published> published;
  std::string small{};
};

// Returns the rows at the scale and on the data asked for.
std::vector<ReproduceRow> make_rows(const TableRequest& request, const ScaleSettings& shared,
                                    const std::vector<PaperRow>& rows);

// Returns options that measure rows on `batches` batches of a split (0: all of it), with the batch of
// training.
EvalOptions measured_on(const std::string& split, std::int64_t batches);

// Refuses --data for a table whose data are generated.
// errors: ConfigError, always.
[[noreturn]] void refuse_data(const char* table);

// Adds a note that the sizes are not those of the paper; nothing at paper scale.
void add_scale_note(ReproduceTable& table, Scale scale);

}  // namespace eddy
