// Where documents begin in what a file holds. A file is one document, unless a separator stands in it or it has lines
// of JSON, each of which is one. A separator is no part of any document; where it stands on a line of its own, that
// line goes. Documents of white space alone are none.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "train/config/run_config.h"
#include "train/text/text_files.h"

namespace eddy::training {

// How the files of a text are cut.
struct CutRule {
  std::string separator;   // "": none
  std::string json_field;  // of lines of JSON; "": they are read as they stand

  bool cuts() const { return !separator.empty() || !json_field.empty(); }
  friend bool operator==(const CutRule&, const CutRule&) = default;
};

// That of data.separator and data.json_field. A folder as one document is not cut.
CutRule cut_rule(const DataConfig& config);

struct Documents {
  std::string text;               // one after another
  std::vector<std::size_t> ends;  // in the text

  std::size_t count() const { return ends.size(); }
  std::string_view operator[](std::size_t index) const;
};

// The documents of a file's text, which errors call `file`. With `end_lines` each of several ends with a newline, which
// is added where it is missing.
// errors: FormatError for a line that is no JSON, or that lacks the field.
Documents documents_in(std::string text, const CutRule& rule, const std::string& file,
                       bool end_lines = false);

// Those of a file, or the one of a joined folder.
// errors: as text_of and documents_in.
Documents documents_of(const TextFile& file, const CutRule& rule, bool end_lines = false);

// Whether a text is lines of JSON: by its name (.jsonl, .ndjson), or since its first two lines are objects.
bool is_json_lines(std::string_view text, std::string_view name);
// The first object, on one line, of a text that is one array of JSON objects; "" for any other text.
std::string first_in_json_array(std::string_view text);
// What a text is that is no plain one, and is read as it stands, with a way out, for a warning: "is a web page, with
// its tags"; "" of any other text, of one array of JSON objects and of lines of JSON.
std::string markup_of(std::string_view text, std::string_view name);
// The field of the object in its first line that most likely holds the text; "" if none holds any.
std::string likely_text_field(std::string_view text);

}  // namespace eddy::training
