// Reads the data files of the tables. Each is TOML:
//
//   title, columns, evaluation, lengths, ...          the fields of ReproduceTable
//   notes                                             texts, or {text, when}: shown where all of `when` hold: the
//                                                     task's name, bytes or pieces (tokens), made or given (text)
//   published_at, a row's scales                      the scales that they are for; without them all
//   [text]                                            the text that the table reads or makes: its entry of
//                                                     EDDY_DATA_DIR, its kind (without it, the task's name) and, for
//                                                     each scale, how many bytes (ReproduceText)
//   [model] [data] [train]                            what all rows change of the defaults, as in a run's config
//   [small.model] [tiny.train] ...                    and at that scale
//   [[row]] name, title, preset, published,           a row begins with the model of its preset; its sections
//           model, train, small.model, ...            come after those of the table
//
// A name or a title may hold {steps}, {chunk} and {repeats} of the row's model, a note {reference}, the row that others
// are relative to, and {most_bytes}, the longest piece of a story. The published numbers of a
// relative column are divided by that of the reference row.
#pragma once

#include "train/reproduce/reproduce.h"

namespace eddy {

// Returns the table at the scale and on the data asked for.
// errors: ConfigError for --data where the table's data are made; IoError where it needs some.
ReproduceTable make_table(const TableEntry& entry, const TableRequest& request);

}  // namespace eddy
