// One of each: what reads a run, a table, a chart, a palette, what pads columns, what runs another program, what sums
// the bytes of a state, and what reads TOML. A second one says a number twice, and some day in two ways. Each is
// recognised by a line that it needs; the files that may have such a line are named here, with the reason where it is
// not the thing itself.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <functional>
#include <regex>
#include <set>
#include <string>
#include <vector>

#include "tests/tree/source_tree.h"

namespace {

using namespace eddy::test;

struct OneThing {
  const char* what;
  std::vector<std::string> parts;  // of which a line has one, a quick look before the expression
  const char* line;                // what only it does, as a regular expression
  std::vector<std::string> files;  // that may
  const char* below = "";          // where it is looked for; empty: everywhere
};

const std::vector<OneThing> kThings{
    {"reader of a run: RunSeries (train/record/run_series.h)",
     {"read_metrics"},
     R"(\bread_metrics\()",
     {"train/record/run_series.cpp", "train/record/metrics.h", "train/record/metrics.cpp"}},
    {"reader of evaluations: RunSeries (train/record/run_series.h)",
     {".evals"},
     R"(\.evals\b)",
     {"train/record/run_series.cpp", "train/record/run_series.h",
      "train/record/metrics_summary.cpp",     // keeps them
      "train/app/report/side_by_side.cpp"}},  // writes all of them as CSV
    {"reader of steps: RunSeries (train/record/run_series.h)",
     {".steps"},
     R"(\b(records(\(\)|_)?|metrics)\.steps\b)",
     {"train/record/run_series.cpp", "train/record/run_series.h",
      "train/run/run_folder.cpp"}},  // whether there is any
    {"rule which evaluations compare: compares() (train/record/metrics.h)",
     {"eval.", "eval->"},
     R"(\bvalue_is\(eval(\.|->)split\b|!eval(\.|->)whole\b)",
     {"train/record/metrics.cpp", "train/record/run_series.cpp"}},
    {"table: Table (train/app/views/table.h)",
     {"Table"},
     R"(^\s*(struct|class) \w*Tables?\b[^;]*$)",
     {"train/app/views/table.h",
      "train/app/measure/measurement.h",   // MeasuredTable: the numbers, shown as a Table
      "train/app/reproduce/reproduce.h"},  // ReproduceTable: a table of a paper, as data
     "train/"},
    {"writer of tables: to_text, to_markdown, to_html (train/app/views/table.h)",
     {"<table", "\"| \""},
     R"(<table|"\| ")",
     {"train/app/views/table.cpp"}},
    {"columns padded by hand: to_text (train/app/views/table.h)",
     {"{:", "{0:", "{1:", "setw(", "' ')"},
     R"(\{[0-9]*:(.?[<>^]|[1-9{])|\bsetw\(|string\b.*\(.* - .*, ' '\)|\.(append|insert|resize)\(.*, ' '\))",
     {"train/app/views/table.cpp",
      "train/app/program/cmd_check.cpp",   // a line appears as each file has been read, which may take long
      "train/app/program/cmd_learn.cpp"},  // a line appears as each exercise has been compiled
     "train/"},
    {"chart: Chart (train/record/figures.h)",
     {"Chart"},
     R"(^\s*(struct|class) \w*Charts?\b[^;]*$)",
     {"train/record/figures.h",
      "train/app/report/report.cpp",       // Charts: those of a page, and lines for flat ones
      "train/app/measure/measurement.h"},  // ChosenCharts: of which a reader chooses
     "train/"},
    {"writer of charts: chart_svg, chart_picture (train/app/views/chart.h)",
     {"<svg ", "<polyline"},
     R"(<svg [cx]|<polyline)",
     {"train/app/views/chart.cpp", "train/app/views/svg_picture.cpp",
      "train/app/views/html_page.cpp"}},  // looks whether a page has one
    {"chart on a canvas: chart_svg (train/app/views/chart.h)",
     {"lineTo("},
     R"(\blineTo\()",
     {"train/app/inspect/inspect_charts.js",  // as wide as the page, with the values of the chosen token and head
      "examples/browser/training.js",         // while the page trains, without a program behind it
      "examples/browser/page.js"}},           // of a state that the reader changes
    {"palette: train/app/views/palette.h", {"\"#"}, R"("#[0-9a-fA-F]{6}\b)", {"train/app/views/palette.h"}},
    {"runner of programs: RunningProgram (train/process/running_program.h)",
     {"posix_spawn", "fork(", "popen(", "system(", "exec", "waitpid("},
     R"(\b(posix_spawnp?|fork|vfork|popen|system|waitpid|exec[lv][pe]*)\()",
     {"train/process/running_program.cpp", "tensor/system/process_linux.cpp",
      "tensor/system/process_portable.cpp",
      "tensor/system/memory_limit_linux.cpp"}},  // execve of itself, before main
    {"sum of a state's bytes: State::bytes (autograd/state.h)",
     {"+= "},
     R"(\+= .*(\.bytes\(\)|(\btensor|\bentry\.second)\.elements\())",
     {"autograd/state.cpp",
      "autograd/graph_export.cpp",         // of what a node saved
      "autograd/node.cpp",                 // of what all nodes of a graph saved
      "ops/cost/kernel_observer.cpp",      // that a copy moves
      "models/optimizer/optimizer.cpp",    // of its statistics
      "train/plan/memory.cpp",             // of an optimizer that was saved
      "train/app/measure/generate.cpp"}},  // the filled rows of a cache
    {"reader of TOML: config_from_toml, read_table (train/config/config_file.h)",
     {"toml"},
     R"(\btoml::|toml\+\+/|"toml\.h)",
     {"train/config/config_file.cpp"}},
};

// Whether a line, without its comment, is one of a thing.
class LineOf {
 public:
  explicit LineOf(const OneThing& thing) : thing_(thing), pattern_(thing.line) {}

  bool operator()(const std::string& line) const {
    const std::string code = line.substr(0, line.find("//"));
    return std::any_of(thing_.parts.begin(), thing_.parts.end(),
                       [&](const std::string& part) { return code.find(part) != std::string::npos; }) &&
           std::regex_search(code, pattern_);
  }

 private:
  const OneThing& thing_;
  std::regex pattern_;
};

// The files that have such lines, for each thing.
std::vector<std::set<std::string>> files_with() {
  std::vector<LineOf> lines;
  for (const OneThing& thing : kThings) lines.emplace_back(thing);
  std::vector<std::set<std::string>> found(kThings.size());
  for (const std::string& file : files_below({"tensor", "autograd", "ops", "models", "train", "examples"},
                                             {".h", ".cpp", ".cu", ".cuh", ".js"})) {
    const std::vector<std::string> text = lines_of(file);
    for (std::size_t i = 0; i < kThings.size(); ++i)
      if (file.starts_with(kThings[i].below) && std::any_of(text.begin(), text.end(), std::cref(lines[i])))
        found[i].insert(file);
  }
  return found;
}

}  // namespace

TEST_CASE("views: there is one reader of runs, one table, one chart, one palette, and so on") {
  const std::vector<std::set<std::string>> found = files_with();
  for (std::size_t i = 0; i < kThings.size(); ++i) {
    const auto& [what, parts, line, files, below] = kThings[i];
    for (const std::string& file : found[i])
      CHECK_MESSAGE(std::count(files.begin(), files.end(), file) == 1, file << " has a second " << what);
    for (const std::string& file : files)
      CHECK_MESSAGE(found[i].contains(file), what << ": " << file << " is named here and has no such line");
  }
}

TEST_CASE("views: a second one of each is seen") {
  const auto is_seen = [](std::size_t thing, const char* line) { return LineOf(kThings.at(thing))(line); };
  CHECK(is_seen(0, "  const Metrics metrics = read_metrics(path);"));
  CHECK(is_seen(1, "for (const EvalRecord& eval : metrics.evals) {"));
  CHECK(is_seen(2, "for (const StepRecord& record : run.records().steps) {"));
  CHECK_FALSE(is_seen(2, "const std::int64_t steps = config.train.steps;"));
  CHECK(is_seen(3, "if (value_is(eval.split, Split::valid) && !eval.whole)"));
  CHECK(is_seen(4, "struct TextTable {"));
  CHECK_FALSE(is_seen(4, "struct Table;"));
  CHECK(is_seen(5, "text += \"| \" + cell;"));
  for (const char* line :
       {"  print_line(\"{:<20} {}\", name, text);", "fmt::format(\"{0:>{1}}\", name, width)",
        "out += fmt::format(\"{} {:8.3f}\", name, x);", "out << std::setw(20) << name;",
        "line += std::string(width - name.size(), ' ');", "line.resize(width, ' ');"})
    CHECK_MESSAGE(is_seen(6, line), line);
  CHECK_FALSE(is_seen(6, "fmt::format(\"{:.3f} {:02}:{:x} {:?}\", a, b, c, d)"));
  CHECK_FALSE(is_seen(6, "std::replace(text.begin(), text.end(), '\\n', ' ');"));
  CHECK(is_seen(7, "class LineChart {"));
  CHECK(is_seen(8, "out += \"<svg class=\\\"lines\\\">\";"));
  CHECK(is_seen(9, "    if (open) g.lineTo(px, y(d.mean[x]));"));
  CHECK(is_seen(10, "constexpr const char* kBlue = \"#1b6ca8\";"));
  CHECK(is_seen(11, "  const pid_t child = ::fork();"));
  CHECK(is_seen(11, "  while (::waitpid(child, &status, 0) < 0) {"));
  CHECK_FALSE(is_seen(11, "  if (file_system(path)) return;"));
  CHECK(is_seen(12, "  for (const auto& [name, tensor] : state) bytes += tensor.bytes();"));
  CHECK(is_seen(12, "  for (const Part& part : parts) held += part.values.bytes();"));
  CHECK(is_seen(13, "#include <toml++/toml.hpp>"));
  CHECK(is_seen(13, "  const toml::table table = toml::parse(text);"));
}

TEST_CASE("views: the style sheets name no colour of their own") {
  const std::regex colour("#[0-9a-fA-F]{3,8}\\b");
  for (const char* file : {"train/app/views/page.css", "train/app/inspect/inspect.css"})
    for (const std::string& line : lines_of(file))
      CHECK_MESSAGE(!std::regex_search(line, colour), file << " has " << line);
}
