// Reads the files of tables, built-in ones and a user's. Each is TOML:
//
//   title, columns, evaluation, lengths, ...          the fields of ReproduceTable
//   notes                                             texts, or {text, when}: shown where all of `when` hold: the
//                                                     task's name, bytes or pieces (tokens), made or given (text)
//   published_at, a row's scales                      the scales that they are for; without them all
//   [text]                                            the text that the table reads or makes: its entry of
//                                                     EDDY_DATA_DIR, its sha256, or digest for each scale (md5:... or
//                                                     SHA-256), if it is one file that all have, whether
//                                                     it is of_paper, its kind (documents or file: read as they are;
//                                                     without it, the task's name) and, for each scale, how many bytes
//                                                     (ReproduceText)
//   [model] [data] [train]                            what all rows change of the defaults, as in a run's config
//   [small.model] [tiny.train] ...                    and at that scale
//   pieces                                            in the file or a row, for each scale, the size of the vocabulary
//                                                     that is made from the documents to train on
//                                                     (vocabulary.h) where data.tokenizer = "pieces.model"
//   evaluation                                        in the file: split, and how many batches at a scale (0: all); in a
//                                                     row: how many batches it takes instead, where its are smaller
//   base                                              {table, task}: a table of this build whose keys and rows hold
//                                                     where the file gives none
//   [task.NAME]                                       of a built-in table, in the file or in a row: what is otherwise
//                                                     for this task
//   [[row]] name, title, preset, published,           a row begins with the model of its preset; its sections
//           model, train, small.model, ...            come after those of the table. A built-in table without rows has
//                                                     those of families.toml. `tables` are the names of the tables that
//                                                     it stands in, where several share the file; without it all
//
// A name or a title may hold {steps}, {chunk}, {repeats}, {window} and {states} of the row's model, a note {reference}, the
// row that others are relative to, and {most_bytes}, the longest piece of a story. The published numbers of a relative
// column are divided by that of the reference row.
#pragma once

#include "train/app/reproduce/reproduce.h"
#include "train/config/config_file.h"

namespace eddy::app {

// The file of a table of this build, for a task.
training::ConfigSource built_in_table(const TableEntry& entry, const std::string& task);

// The file over the table that its `base` names, if it has one.
// errors: ConfigError with the place for a table that there is none of.
training::ConfigSource with_base(const training::ConfigSource& file);

// Whether rows differ by scale.
bool has_scales(const training::ConfigSource& source);

// Returns the table of a file at the scale and on the data asked for.
// errors: ConfigError with the place for what is no such file, an unknown key or value, and a row's name that stands
// twice, and for --data where the table's data are made; IoError where it needs some.
ReproduceTable make_table(const std::string& name, const training::ConfigSource& source,
                          const TableRequest& request);

}  // namespace eddy::app
