// The speed table: its rows from speed.toml, their measurement, and the table.
#include "train/app/measure/speed.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>

#include "models/eddy/registry.h"
#include "ops/backends.h"
#include "tensor/base/format.h"
#include "tensor/files/strict_json.h"
#include "tensor/memory/allocator.h"
#include "train/app/views/html_page.h"
#include "train/config/config_file.h"
#include "train/config/run_config.h"
#include "train/files/output_file.h"
#include "train/files/text_file.h"
#include "train/plan/environment.h"
#include "train/words/suggest.h"

namespace eddy::app {
using namespace training;
namespace {

namespace fs = std::filesystem;
using Cells = std::vector<std::string>;

constexpr double kSeconds = 10;
constexpr std::size_t kColumns = 15;

constexpr int kTimesFormat = 1;

// The file result.json of earlier calls.
const OutputKind kTimesFile{"a file of times of Eddy's benchmarks", [](const std::string& path) {
                              const nlohmann::json old = parse_strict_json(read_text_file(path)).value;
                              return old.is_object() && old.value("table", "") == "speed";
                            }};

constexpr std::string_view kRows =
#include "embedded/train/app/measure/speed.toml"
    ;

// Reads a figure: "263.6 ms", "<= 100 ms, 24 GiB" or ">= 4 M tokens/s".
SpeedFigure figure_from(const std::string& text, std::int64_t tokens) {
  const std::size_t digits = text.find_first_of("0123456789");
  if (digits == std::string::npos) return {};
  const double number = std::stod(text.substr(digits));
  const bool rate = text.ends_with("M tokens/s");
  return {rate ? static_cast<double>(tokens) / number * 1e-3 : number, text};
}

struct GivenRow {
  SpeedRow row;
  std::string preset;
};

void describe(KeyList& keys, GivenRow& given) {
  SpeedRow& row = given.row;
  keys.add("name", row.name, "Name in --rows").required();
  keys.add("title", row.title, "Title").required();
  keys.add("preset", given.preset, "Configuration of a paper");
  keys.add_table("model", row.model, "a table with the keys of a model, where there is no preset");
  keys.add("batch", row.batch, "Sequences of a step", {1}).required();
  keys.add("sequence", row.sequence, "Tokens of a sequence", {1}).required();
  keys.add("eager", row.eager.text, "Figure for PyTorch as published or eager");
  keys.add("best", row.best.text, "Figure for PyTorch at its best");
  keys.add("aim", row.aim.text, "Figure that Eddy is to reach");
}

struct SpeedFile {
  std::vector<GivenRow> rows;
};

void describe(KeyList& keys, SpeedFile& file) {
  keys.add_list("row", file.rows, "a list of tables, each with a model and its sizes").required();
}

// The row with its model complete and its figures read.
SpeedRow row_from(GivenRow given) {
  SpeedRow& row = given.row;
  if (given.preset.empty())
    imply_names(row.model, false, true);
  else
    row.model = paper_config(given.preset, "bench speed");
  for (SpeedFigure* figure : {&row.eager, &row.best, &row.aim})
    *figure = figure_from(figure->text, row.batch * row.sequence);
  return std::move(row);
}

// Shrinks a row to a step of milliseconds on one core; every recurrence keeps several blocks.
void shrink(SpeedRow& row) {
  ModelConfig& m = row.model;
  m.vocab = std::min<std::int64_t>(m.vocab, 64);
  m.dim = 32;
  m.heads = 2;
  m.head_dim = 0;
  m.mlp_dim = m.mlp_dim == 0 ? 0 : 64;
  m.layers = std::min<std::int64_t>(m.layers, 2);
  m.context = 64;
  m.segment = m.segment == 0 ? 0 : 64;
  m.window = m.window == 0 ? 0 : 16;
  m.block = m.block == 1 ? 1 : 16;
  m.chunk = 16;
  m.span = 0;
  m.states = 16;
  model_entry(m).fit_to_sizes(m);
  row.batch = 2;
  row.sequence = 64;
  row.title = fmt::format("{}, shrunk to 2 x 64", row.name);
  row.eager = row.best = row.aim = {};
}

// The time of a part of the products alone, and its floor.
void add_alone(Cells& cells, const StepBench& bench, const CallsAlone& part) {
  if (part.time.runs == 0)
    cells.insert(cells.end(), 2, "-");
  else
    cells.insert(cells.end(),
                 {table_number(part.time.median * 1e3), table_number(bench.floor_median(part) * 1e3)});
}

Cells cells_of(const SpeedResult& result) {
  const SpeedRow& row = result.row;
  Cells cells{row.title};
  if (result.bench) {
    const StepBench& b = *result.bench;
    cells.insert(cells.end(), {table_number(b.step.median * 1e3), table_number(b.step.best * 1e3),
                               table_number(b.tokens() / b.step.median * 1e-6),
                               fmt::format("{:.2f}", static_cast<double>(b.peak_bytes) / (1 << 30)),
                               table_number(b.floor_median() * 1e3),
                               fmt::format("{:.0f}", 100 * b.floor_median() / b.step.median)});
    add_alone(cells, b, b.alone.products);
    add_alone(cells, b, b.alone.attention);
  } else {
    cells.insert(cells.end(), 10, "-");
  }
  cells.insert(cells.end(), {row.eager.text, row.best.text, row.aim.text});
  std::string remark = result.failure.empty() ? "" : "failed";
  if (result.bench && row.aim.ms > 0)
    remark = result.bench->step.median * 1e3 <= row.aim.ms ? "reached" : "missed";
  if (result.bench && value_is(result.bench->device, DeviceChoice::cuda) && !result.bench->captured)
    remark += ", not captured";
  cells.push_back(remark);
  return cells;
}

// The profile of a step by op.
MeasuredTable profile_of(const StepBench& bench) {
  return profile_table("op", bench.by_op, bench.profiled_steps);
}

// Its rows; none without a profile.
std::vector<Cells> profile_cells(const SpeedResult& result) {
  std::vector<Cells> rows;
  if (!result.bench || result.bench->by_op.empty()) return rows;
  const MeasuredTable table = profile_of(*result.bench);
  for (const std::vector<Cell>& row : table.series.front().rows) {
    Cells& cells = rows.emplace_back();
    for (const Cell& cell : row) cells.push_back(cell.text);
  }
  return rows;
}

std::string conditions(const SpeedOptions& options, const DevicePrecision& placement,
                       const std::string& precision) {
  return fmt::format("scale {}, {}, {}", options.scale,
                     value_name(placement.device == kCpu ? DeviceChoice::cpu : DeviceChoice::cuda),
                     precision);
}

nlohmann::json figure_json(const SpeedFigure& figure) {
  if (figure.text.empty()) return nullptr;
  return {{"ms", figure.ms}, {"text", figure.text}};
}

// Returns a row of result.json. "cells", "profile" and "text" are its part of the tables and the page, for later calls
// that measure other rows.
nlohmann::json json_of(const SpeedResult& result) {
  return {{"name", result.row.name},
          {"title", result.row.title},
          {"pytorch_given", figure_json(result.row.eager)},
          {"pytorch_best_given", figure_json(result.row.best)},
          {"aim", figure_json(result.row.aim)},
          {"measured", result.bench ? measurement_of(*result.bench).facts : nlohmann::json(nullptr)},
          {"failure", result.failure},
          {"date", today()},
          {"cells", cells_of(result)},
          {"profile", profile_cells(result)},
          {"text", result.bench ? to_text(measurement_of(*result.bench)) : result.failure}};
}

// Returns the lines about the machine and the build, without those that change from moment to moment.
std::vector<std::string> machine_lines(std::vector<std::string> environment) {
  std::erase_if(environment, [](const std::string& line) {
    return line.starts_with("allocator: ") || line.starts_with("cuda allocator: ") ||
           line.starts_with("memory: ");  // the memory of a virtual machine may grow
  });
  return environment;
}

// Returns the rows of an earlier call under equal conditions, by name; empty when there was none.
// errors: FormatError when its file was changed.
std::map<std::string, nlohmann::json> rows_before(const fs::path& file, const std::string& where) {
  std::error_code error;
  if (!fs::exists(file, error)) return {};
  std::map<std::string, nlohmann::json> rows;
  try {
    const nlohmann::json before = read_json_with_digest(file, kTimesFormat);
    if (before.at("conditions") != where ||
        machine_lines(before.at("environment")) != machine_lines(environment_lines()))
      return {};
    for (const nlohmann::json& row : before.at("rows"))
      if (row.at("cells").get<Cells>().size() == kColumns && row.at("text").is_string() &&
          row.at("title").is_string() && row.at("date").is_string() && row.at("profile").is_array())
        rows.emplace(row.at("name").get<std::string>(), row);
  } catch (const nlohmann::json::exception&) {
    return {};
  } catch (const FormatError& changed) {
    fail<FormatError>("bench speed: {} (remove it, and its rows are measured again)", changed.what());
  }
  return rows;
}

// Returns the table of rows of result.json by op: the rows of one after those of another. It has no rows without a
// profile.
MeasuredTable by_op_of(const nlohmann::json& rows) {
  MeasuredTable table;
  table.title = "Where the time goes, by op";
  table.columns = {{"", "row"}};
  const MeasuredTable of_row = profile_of({});
  table.columns.insert(table.columns.end(), of_row.columns.begin(), of_row.columns.end());
  for (const nlohmann::json& row : rows)
    for (const Cells& op : row.at("profile").get<std::vector<Cells>>()) {
      std::vector<Cell> cells{row.at("title").get<std::string>()};
      cells.insert(cells.end(), op.begin(), op.end());
      table.add(std::move(cells));
      table.rows_are.push_back(row.at("name"));
    }
  table.notes = {
      "milliseconds of one step that is not captured; floor: kernel by kernel the longer of the operations at the rate "
      "of a large product and the bytes at that of memory"};
  return table;
}

// Returns the tables of rows of result.json.
Measurement measurement_of(const nlohmann::json& rows, const std::string& where, bool on_gpu) {
  Measurement m;
  m.bench = "speed";
  m.title = "Training steps";
  m.conditions = where;
  if (on_gpu) m.machine = gpu_identity();
  m.details_title = "Each row in full";
  MeasuredTable table;
  for (const char* title : std::array<const char*, kColumns>{
           "row", "ms", "best", "M tokens/s", "peak GiB", "floor ms", "floor %", "products ms", "their floor",
           "attention ms", "its floor", "PyTorch", "its best", "aim", ""})
    table.columns.push_back({"", title});
  table.listed = true;
  table.notes = {
      "a step is forward, loss, backward, clipping and AdamW on random tokens, dropout off; on a GPU in bf16 "
      "and replayed from a graph, after some steps to warm up; the time is the median of repeated steps",
      "PyTorch: figures given for PyTorch 2.11 on an H200, not measured here. First as published or eager, "
      "then at its best: compiled, captured, hoisted by hand. tests/peers/training_step.py measures it here",
      "floor: the operations of the step's products and of attention, computed at the rate of one large product "
      "that is measured between the steps",
      "products, attention (with --profile): the step's calls at their shapes, one after the other with nothing "
      "between them, on a GPU in one graph, measured; their floors are computed as above, each from its own "
      "operations. Kernels that multiply by themselves, such as the CPU's recurrences, are in neither",
      "peak memory is that of live tensors: parameters, gradients, moments and the step"};
  for (const nlohmann::json& row : rows) {
    const Cells cells = row.at("cells");
    table.add(std::vector<Cell>(cells.begin(), cells.end()));
    table.rows_are.push_back(row.at("name"));
    m.details.push_back({row.at("title"), row.at("text")});
  }
  m.tables.push_back(std::move(table));
  if (MeasuredTable by_op = by_op_of(rows); !by_op.series.empty()) m.tables.push_back(std::move(by_op));
  return m;
}

// Returns what result.json holds.
nlohmann::json file_of(const nlohmann::json& rows, const Measurement& m, const std::string& command) {
  nlohmann::json file = to_json(m, command);
  file["table"] = "speed";
  file["conditions"] = m.conditions;
  file["notes"] = m.tables.front().notes;
  file["rows"] = rows;
  // Rows of earlier calls are of their own days.
  std::string first = today(), last;
  for (const nlohmann::json& row : rows) {
    first = std::min(first, row.at("date").get<std::string>());
    last = std::max(last, row.at("date").get<std::string>());
  }
  for (nlohmann::json& table : file["measured"])
    table["date"] = first == last ? first : first + " to " + last;
  return file;
}

void check_options(const SpeedOptions& options) {
  if (value_is(options.device, DeviceChoice::cpu) && value_is(options.scale, Scale::paper) &&
      options.rows.empty())
    fail<ConfigError>(
        "bench speed: all rows at the paper's sizes on a CPU (they are for a GPU: name some with "
        "--rows, or take --scale small)");
}

// Chooses the device.
// errors: DeviceError without a GPU, with alternatives.
DevicePrecision place(const std::string& device, const std::string& precision) {
  try {
    return choose_device_precision({"bench speed", "--device", "the precision"}, device, precision);
  } catch (const DeviceError& error) {
    fail<DeviceError>(
        "bench speed: its sizes are for a GPU, and there is none to use: {} (--scale small tries every "
        "row on the CPU; --device cpu --rows NAME measures one there)",
        error.what());
  }
}

SpeedResult measure_row(const SpeedRow& row, const SpeedOptions& options, const std::string& device,
                        const std::string& precision) {
  SpeedResult result;
  result.row = row;
  StepBenchOptions step;
  step.model = row.model;
  ModelConfig& m = step.model;
  m.dropout = m.attn_dropout = m.emb_dropout = m.out_dropout = 0;
  step.batch = row.batch;
  step.sequence = row.sequence;
  step.seconds = options.seconds > 0 ? options.seconds : kSeconds;
  if (options.seconds <= 0 && value_is(options.scale, Scale::small)) step.steps = 3;
  step.profile = options.profile;
  step.carry_state = true;
  step.product_size = options.product_size;
  if (options.memory_bytes > 0) step.memory_bytes = options.memory_bytes;
  step.device = device;
  step.precision = precision;
  try {
    result.bench = bench_step(step);
  } catch (const Error& error) {
    result.failure = error.what();
  }
  return result;
}

}  // namespace

std::vector<SpeedRow> speed_rows(bool small) {
  std::vector<SpeedRow> rows;
  for (const GivenRow& given : read_as<SpeedFile>(config_from_toml(kRows, "speed.toml")).rows) {
    rows.push_back(row_from(given));
    if (small) shrink(rows.back());
  }
  return rows;
}

std::vector<SpeedRow> wanted_speed_rows(const SpeedOptions& options) {
  if (!value_is(options.scale, Scale::paper) && !value_is(options.scale, Scale::small))
    fail<ConfigError>("bench speed: there is no scale \"{}\" ({} or {})", options.scale,
                      value_name(Scale::paper), value_name(Scale::small));
  std::vector<SpeedRow> rows = speed_rows(value_is(options.scale, Scale::small));
  std::vector<std::string> names;
  for (const SpeedRow& row : rows) names.push_back(row.name);
  for (const std::string& name : options.rows)
    if (std::find(names.begin(), names.end(), name) == names.end())
      fail<ConfigError>("bench speed: there is no row \"{}\" ({}all: {})", name, suggest_value(name, names),
                        fmt::join(names, ", "));
  if (!options.rows.empty())
    std::erase_if(rows, [&](const SpeedRow& row) {
      return std::find(options.rows.begin(), options.rows.end(), row.name) == options.rows.end();
    });
  return rows;
}

std::vector<SpeedResult> bench_speed(const SpeedOptions& options,
                                     const std::function<void(std::string_view)>& log) {
  const std::vector<SpeedRow> wanted = wanted_speed_rows(options);
  const bool small = value_is(options.scale, Scale::small);
  const std::vector<SpeedRow> rows = speed_rows(small);
  check_options(options);
  const std::string device =
      !options.device.empty() ? options.device : value_name(small ? DeviceChoice::cpu : DeviceChoice::cuda);
  const std::string precision =
      value_name(value_is(device, DeviceChoice::cpu) ? Precision::f32 : Precision::bf16);
  const DevicePrecision placement = place(device, precision);
  const std::string where = conditions(options, placement, precision);
  const bool on_gpu = placement.device != kCpu;

  const fs::path folder = fs::path(options.runs) / ("speed-" + options.scale);
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) fail<IoError>("bench speed: {} cannot be made: {}", folder.string(), error.message());
  const std::string times_file = (folder / "result.json").string(),
                    page_file = (folder / "index.html").string();
  refuse_foreign_file("bench speed", times_file, kTimesFile);
  refuse_foreign_file("bench speed", page_file, kPageFile);
  std::vector<SpeedResult> results;
  nlohmann::json now = nlohmann::json::array();  // the rows of this call
  std::map<std::string, nlohmann::json> measured = rows_before(times_file, where);
  for (const SpeedRow& row : wanted) {
    log(fmt::format("== {}: {} ==\n", row.name, row.title));
    results.push_back(measure_row(row, options, device, precision));
    allocator(placement.device).trim();  // the next row needs other sizes
    const SpeedResult& result = results.back();
    log(result.bench ? to_text(measurement_of(*result.bench)) + '\n'
                     : fmt::format("failed: {}\n\n", result.failure));
    // Written after every row, so that a killed run loses nothing. A failed row does not replace a measured
    // one.
    now.push_back(json_of(result));
    if (result.bench || !measured.contains(row.name)) measured[row.name] = now.back();
    nlohmann::json written = nlohmann::json::array();  // in the order of the table
    for (const SpeedRow& one : rows)
      if (const auto found = measured.find(one.name); found != measured.end())
        written.push_back(found->second);
    const Measurement all = measurement_of(written, where, on_gpu);
    write_output_file("bench speed", times_file,
                      text_with_digest(file_of(written, all, options.command), kTimesFormat), kTimesFile);
    write_output_file("bench speed", page_file, to_html(all), kPageFile);
  }
  const Measurement of_call = measurement_of(now, where, on_gpu);
  log(fmt::format("{}\n{}\npage: {}\n", where, to_text(of_call.tables.front()), page_file));
  return results;
}

}  // namespace eddy::app
