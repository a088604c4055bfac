// Reads the files of tables, built-in ones and a user's. Each is TOML, with the keys of table_keys.h:
//
//   [model] [data] [train]     what all rows change of the defaults, as in a run's config
//   [small.model] ...          and at that scale
//   [[row]]                    a row begins with the model of its preset; its sections come after those of the table. A
//                              built-in table without rows has those of families.toml
//   base                       {table, task}: a table of this build whose keys and rows hold where the file gives none
//   [task.NAME]                of a built-in table, in the file or in a row: what is otherwise for this task
//
// The published numbers of a relative column are divided by that of the reference row.
#pragma once

#include <string>

#include "train/app/reproduce/reproduce.h"
#include "train/config/config_file.h"

namespace eddy::app {

// The file of a table, and the table of this build that it is or begins from, if any, with its task.
struct TableFile {
  training::ConfigSource source;
  std::string table, task;
};

// The file of a table of this build, for one of its tasks; "": its first.
// errors: ConfigError that begins with `place`, for a task that the table has none of.
TableFile built_in_table(const TableEntry& entry, const std::string& task, const std::string& place);

// The file over the table that its `base` names, if it has one.
// errors: ConfigError with the place for a table or a task that there is none of.
TableFile with_base(const training::ConfigSource& file);

// Returns the table of a file at the scale and on the data asked for.
// errors: ConfigError with the place for what is no such file, an unknown key or value, a row's name or a reference
// that stands twice, and weights_of that names no trained row, and for --data where the table's data are made;
// IoError where it needs some.
ReproduceTable make_table(const std::string& name, const training::ConfigSource& source,
                          TableRequest request);

}  // namespace eddy::app
