// Reads tables, with the descriptions of a run's keys.
#include "train/reproduce/tables.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "tensor/base/format.h"
#include "train/config/config_file.h"
#include "train/config/run_config.h"

namespace eddy {
namespace {

using nlohmann::json;
namespace fs = std::filesystem;

constexpr std::string_view kShakespeare =
#include "embedded/train/reproduce/recurrent_transformers_table_3.toml"
    ;
constexpr std::string_view kCifar =
#include "embedded/train/reproduce/recurrent_transformers_table_4.toml"
    ;
constexpr std::string_view kCopying =
#include "embedded/train/reproduce/recurrent_transformers_table_6.toml"
    ;
constexpr std::string_view kBooks =
#include "embedded/train/reproduce/block_recurrent_table_1.toml"
    ;
constexpr std::string_view kLengths =
#include "embedded/train/reproduce/blockwise_recurrent_tables.toml"
    ;
constexpr std::string_view kAlgorithm =
#include "embedded/train/reproduce/staircase_algorithm.toml"
    ;
constexpr std::string_view kRandomWalk =
#include "embedded/train/reproduce/staircase_random_walk.toml"
    ;
constexpr std::string_view kStaircaseText =
#include "embedded/train/reproduce/staircase_tables_2_3.toml"
    ;

constexpr const char* kFile = "table.toml";

const json& part(const json& whole, const char* key) {
  static const json none = json::object();
  const auto found = whole.find(key);
  return found != whole.end() ? *found : none;
}

// Whether `key`, a list of scales, has this one; without the list all do.
bool is_for_scale(const json& whole, const char* key, Scale scale) {
  const json& scales = part(whole, key);
  return scales.empty() || std::find(scales.begin(), scales.end(), scale_name(scale)) != scales.end();
}

// Whether tokens are pieces of a vocabulary rather than bytes.
bool reads_pieces(const TableRequest& request) {
  return request.tokenizer.ends_with(".model");
}

// Sets the keys of the sections [model], [data] and [train].
void set_keys(RunConfig& config, const json& settings) {
  for (const char* section : {"model", "data", "train"})
    keys_of(config).read({kFile, {{section, part(settings, section)}}, {}});
}

// A published number: 1.5, "out of memory", or both.
Published published_from(const json& cell) {
  Published published;
  if (cell.is_object()) return {cell.at("value"), cell.at("remark")};
  if (cell.is_string())
    cell.get_to(published.remark);
  else
    cell.get_to(published.value);
  return published;
}

ReproduceColumn column_from(const json& column) {
  const ReproduceColumn defaults;
  return {column.at("title"), column.at("key"), column.value("factor", defaults.factor),
          column.value("relative", defaults.relative), column.value("decimals", defaults.decimals)};
}

ReproduceRow row_from(const json& file, const json& row, const TableRequest& request) {
  ReproduceRow made;
  RunConfig& config = made.config;
  if (row.contains("preset")) config.model = paper_config(row.at("preset"), "reproduce");
  config.model.vocab = config.model.n_out = 0;  // the data fill them in
  config.train.eval_batches = 0;                // the numbers of a table are exact
  config.data.path = request.data;
  const char* scale = scale_name(request.scale);
  for (const json* settings : {&file, &row, &part(file, scale), &part(row, scale)})
    set_keys(config, *settings);
  const auto text = [&](const char* key) {
    return fmt::format(fmt::runtime(row.at(key).get<std::string>()), fmt::arg("steps", config.model.steps),
                       fmt::arg("chunk", config.model.chunk), fmt::arg("repeats", config.model.repeats));
  };
  made.name = text("name");
  made.title = text("title");
  if (is_for_scale(file, "published_at", request.scale))
    for (const json& cell : part(row, "published")) made.published.push_back(published_from(cell));
  made.weights_of = row.value("weights_of", "");
  made.longest = row.value("longest", made.longest);
  return made;
}

// Divides the published numbers of relative columns by those of the reference row.
void divide_relative(ReproduceTable& table) {
  const auto reference = std::find_if(table.rows.begin(), table.rows.end(),
                                      [&](const ReproduceRow& row) { return row.name == table.reference; });
  for (std::size_t i = 0; i < table.columns.size(); ++i) {
    if (!table.columns[i].relative) continue;
    const double whole = reference->published.at(i).value;
    for (ReproduceRow& row : table.rows)
      if (i < row.published.size()) row.published[i].value /= whole;
  }
}

// Returns `given`, or without it the entry of EDDY_DATA_DIR, where there is one.
std::string data_path(const TableRequest& request, const std::string& entry) {
  const std::string path = request.data_dir + "/" + entry;
  std::error_code error;
  const bool stored = request.data.empty() && !request.data_dir.empty() && fs::exists(path, error);
  return stored ? path : request.data;
}

ReproduceText::Kind text_kind(const std::string& name) {
  if (name == "documents") return ReproduceText::Kind::documents;
  return name == "plain" ? ReproduceText::Kind::plain : ReproduceText::Kind::repeat;
}

// Names the text that the table reads, or has it made.
// errors: IoError at a scale whose text must be given.
void add_text(ReproduceTable& table, const json& text, const TableRequest& request) {
  const std::string entry = text.at("entry"), path = data_path(request, entry);
  const char* scale = scale_name(request.scale);
  const auto bytes = [&](const char* key) { return part(text, key).value(scale, std::int64_t{0}); };
  ReproduceText& plan = table.text;
  plan.generated_bytes = bytes("generated_bytes");
  if (path.empty() && plan.generated_bytes == 0)
    fail<IoError>("reproduce: {} needs {} (--data FOLDER, or EDDY_DATA_DIR with a folder {})", table.name,
                  text.at("needs").get<std::string>(), entry);
  const ReproduceText::Kind kind = text_kind(text.value("kind", request.task));
  if (kind == ReproduceText::Kind::documents && !path.empty()) {  // read as they are
    for (ReproduceRow& row : table.rows) row.config.data.path = path;
    return;
  }
  plan.kind = kind;
  plan.source = path;
  plan.source_bytes = bytes("source_bytes");
  if (!reads_pieces(request)) plan.most_bytes = bytes("most_bytes");
}

// Adds the notes whose conditions hold: {text, when = [...]}, or only a text.
void add_notes(ReproduceTable& table, const json& notes, const TableRequest& request) {
  const std::vector<std::string> holds = {
      request.task, reads_pieces(request) ? "pieces" : "bytes",
      table.text.kind != ReproduceText::Kind::none && table.text.source.empty() ? "made" : "given"};
  for (const json& note : notes) {
    const json& conditions = part(note, "when");
    if (!std::all_of(conditions.begin(), conditions.end(), [&](const json& condition) {
          return std::find(holds.begin(), holds.end(), condition.get<std::string>()) != holds.end();
        }))
      continue;
    const std::string text = note.is_string() ? note : note.at("text");
    table.notes.push_back(fmt::format(fmt::runtime(text), fmt::arg("reference", table.reference),
                                      fmt::arg("most_bytes", table.text.most_bytes)));
  }
}

}  // namespace

std::span<const TableEntry> reproduce_tables() {
  static const TableEntry tables[] = {
      {"recurrent-transformers/table-3", "tiny Shakespeare", {kShakespeare}},
      {"recurrent-transformers/table-4", "CIFAR-10", {kCifar}},
      {"recurrent-transformers/table-6", "copy and selective copy", {kCopying}},
      {"block-recurrent/table-1", "books as bytes, and step times", {kBooks}},
      {"blockwise-recurrent/table-1", "loss by length", {kLengths}, {"repeat", "plain"}},
      {"blockwise-recurrent/table-2", "the same rows: ways of training", {kLengths}, {"repeat", "plain"}},
      {"staircase/table-1", "state tracking", {kAlgorithm, kRandomWalk}, {"algorithm", "random-walk"}},
      {"staircase/tables-2-3", "steps and forward size: loss, time, memory", {kStaircaseText}},
  };
  return tables;
}

ReproduceTable make_table(const TableEntry& entry, const TableRequest& request) {
  const std::string name = entry.name;
  const bool second = entry.files.size() > 1 && request.task == entry.tasks[1];
  const json file = config_from_toml(entry.files[second ? 1 : 0], kFile).value;
  if (file.value("generated", false) && !request.data.empty())
    fail<ConfigError>("reproduce: the data of {} are made, not read (leave out --data)", name);
  const char* scale = scale_name(request.scale);
  ReproduceTable table;
  table.name = name;
  table.folder = file.value("folder", name);
  table.title = file.at("title");
  for (const json& column : part(file, "columns")) table.columns.push_back(column_from(column));
  for (const json& row : file.at("row")) {
    if (!is_for_scale(row, "scales", request.scale)) continue;
    table.rows.push_back(row_from(file, row, request));
    if (row.value("reference", false)) table.reference = table.rows.back().name;
  }
  divide_relative(table);
  table.across = file.value("across", table.across);
  table.chart_key = file.value("chart", "");
  table.chart_factor = file.value("chart_factor", table.chart_factor);
  table.evaluation.batch = 0;
  table.evaluation.split = part(file, "evaluation").value("split", table.evaluation.split);
  table.evaluation.batches = part(file, "evaluation").value(scale, 0);
  table.sampled_batches = part(file, "sampled_batches").value(scale, 0);
  table.windows = part(file, "windows").value(scale, 0);
  table.lengths = part(file, "lengths").value(scale, table.lengths);
  if (!table.lengths.empty()) table.last = table.lengths.front();
  for (const std::int64_t length : table.lengths)
    table.columns.push_back(
        {fmt::format("last {} of {}", table.last, length), fmt::format("last_{}", length)});
  if (file.contains("text")) add_text(table, file.at("text"), request);
  add_notes(table, part(file, "notes"), request);
  if (request.scale != Scale::paper)
    for (const json& note : part(file, "small_notes")) table.notes.push_back(note);
  if (request.scale == Scale::small)
    table.notes.emplace_back("scale small: sizes and steps are ours, not the paper's, for a few CPU cores");
  if (request.scale == Scale::tiny)
    table.notes.emplace_back("scale tiny: to see that everything runs; the numbers mean nothing");
  return table;
}

}  // namespace eddy
