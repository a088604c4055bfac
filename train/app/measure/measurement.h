// What was measured, in one form for the terminal, for JSON and for a page. Each benchmark turns its numbers into a
// Measurement by its measurement_of, and `eddy reproduce` its tables; the writers here know nothing of what was
// measured.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "train/app/views/chart.h"
#include "train/app/views/html_page.h"
#include "train/app/views/table.h"

namespace eddy::app {

inline constexpr std::uint64_t kBenchSeed = 1337;                        // of weights and data
inline constexpr std::int64_t kMostBenchTokens = std::int64_t{1} << 24;  // of a sequence

// "2026-11-26", in UTC.
std::string today();

// One value: as a number or text for JSON, and as it is shown.
struct Cell {
  Cell(double number);        // three digits (table_number); "-" and null when it is not finite
  Cell(std::int64_t number);  // "12 345"
  Cell(std::string words) : value(words), text(std::move(words)) {}
  Cell(const char* words) : Cell(std::string(words)) {}
  Cell(nlohmann::json of, std::string shown) : value(std::move(of)), text(std::move(shown)) {}

  nlohmann::json value;
  std::string text;
};
// Bytes, shown as "1.2 GiB".
Cell bytes_cell(std::int64_t bytes);

struct MeasuredColumn {
  std::string key;    // in JSON, where "a.b" is b inside a; empty: only shown
  std::string title;  // above the column; empty where there is a key: only in JSON
};

// Rows that belong together, such as the points of one model.
struct MeasuredSeries {
  std::string name;      // in the first column and in plots; empty: the rows have no common name
  nlohmann::json facts;  // about the series, in JSON
  std::vector<std::vector<Cell>> rows;
};

// A picture of one column against the first, with a line for each series and logarithmic axes.
struct MeasuredPlot {
  std::string title, unit;
  std::size_t column = 1;
};

// The same pictures against another quantity.
struct ChosenCharts {
  std::string name;
  std::vector<training::Chart> charts;
};

// What a Table (train/app/views/table.h) shows, with the numbers themselves for JSON and for pictures.
struct MeasuredTable {
  std::string key;    // of the list in JSON: of rows, or of series with their "points"; empty: only shown
  std::string title;  // lines above the table
  std::vector<MeasuredColumn> columns;  // none: a page shows the rows without a head
  std::vector<MeasuredSeries> series;
  std::string names;  // the title of the column of series' names
  std::vector<MeasuredPlot> plots;
  std::vector<training::Chart> charts;  // further pictures, each over the whole width
  std::vector<ChosenCharts> against;    // pictures of which a reader chooses the x axis
  std::vector<std::string> notes;       // lines below the table
  bool markdown = false;                // as text: a table of Markdown
  bool listed = false;                  // as text: the notes as a list below an empty line
  std::vector<std::string>
      rows_are;  // what each row is of the command (docs/measured/README.md); empty: not told

  // Adds a row to the last series, and a series without a name where there is none.
  void add(std::vector<Cell> row);
};

struct Measurement {
  std::string bench;       // the benchmark's name: "step"
  std::string title;       // of the page
  std::string conditions;  // what was measured and where, in one line
  std::string about;       // how to read the page
  std::string machine{};   // what measured; empty: the processor and its threads
  nlohmann::json facts;    // what JSON says outside of the tables
  std::vector<MeasuredTable> tables;
  std::string details_title;                    // opens the details on the page
  std::vector<training::LabelledText> details;  // folded texts of the page
  bool of_this_machine = true;  // the page ends with the lines about the machine and the build
};

std::string to_text(const MeasuredTable& table);
std::string to_text(const Measurement& measurement);
// `command` is what was called. The list "measured" has each table as a file of docs/measured/ holds it.
nlohmann::json to_json(const Measurement& measurement, const std::string& command = "");
// Returns a self-contained page with the pictures, the tables and the details.
std::string to_html(const Measurement& measurement);

}  // namespace eddy::app
