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
std::string data_path(const TableRequest& request, const char* entry) {
  const std::string path = request.data_dir + "/" + entry;
  std::error_code error;
  const bool stored = request.data.empty() && !request.data_dir.empty() && fs::exists(path, error);
  return stored ? path : request.data;
}

// Names the books, or has some written.
// errors: IoError at a scale whose books must be given.
void add_books(ReproduceTable& table, const TableRequest& request) {
  const std::string path = data_path(request, "books");
  if (path.empty()) {
    if (request.scale != Scale::tiny)
      fail<IoError>(
          "reproduce: block-recurrent/table-1 needs books, one text file each (--data FOLDER, or EDDY_DATA_DIR "
          "with a folder books)");
    table.text.kind = ReproduceText::Kind::documents;
    table.text.generated_bytes = 20'000;
    table.notes.insert(table.notes.begin(), "the books are stories written by Eddy");
  }
  for (ReproduceRow& row : table.rows) row.config.data.path = path;
  table.notes.push_back("step times are medians, relative to " + table.reference);
}

// Names the stories that the table is made from, or has some written.
void add_stories(ReproduceTable& table, const TableRequest& request) {
  const bool tiny = request.scale == Scale::tiny, repeat = request.task != "plain";
  if (tiny)
    for (ReproduceRow& row : table.rows) row.published.clear();  // they are for other lengths
  table.text.kind = repeat ? ReproduceText::Kind::repeat : ReproduceText::Kind::plain;
  table.text.source = data_path(request, "tinystories");
  if (tiny) table.text.source_bytes = 100'000;
  table.text.generated_bytes = tiny ? 20'000 : std::int64_t{4} << 20;
  // The stories of the paper have some 200 tokens of its vocabulary. As bytes they would have more, so they
  // are cut to about as many bytes: then the repeated text lies as far back.
  const bool subwords = request.tokenizer.ends_with(".model");
  if (!subwords) table.text.most_bytes = tiny ? 24 : 220;
  if (!repeat)
    table.notes.emplace_back(
        "plain stories: here a few hundredths are all that is to be gained; the published numbers are almost "
        "certainly those of the repeat text (--task repeat)");
  else if (subwords)
    table.notes.emplace_back("every story is told twice, with \"Repeat above.\" in between");
  else
    table.notes.push_back(fmt::format(
        "every story is told twice, with \"Repeat above.\" in between; tokens are bytes, and stories are cut "
        "into pieces of at most {}, so that the copy lies as many tokens back as in the paper",
        table.text.most_bytes));
  if (!subwords)
    table.notes.emplace_back(
        "losses are nats per byte, the paper's nats per token of 4096 pieces: compare rows and trends, not "
        "digits; with a vocabulary of pieces: --set data.tokenizer=FILE.model");
  table.notes.push_back(
      "the sliding window is put over Llama's weights when they are measured, as in the paper");
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
  table.notes = file.value("notes", table.notes);
  for (const json& column : part(file, "columns")) table.columns.push_back(column_from(column));
  for (const json& row : file.at("row")) {
    if (row.contains("scales") && std::none_of(row["scales"].begin(), row["scales"].end(),
                                               [&](const json& own) { return own == scale; }))
      continue;
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
  if (entry.files.front() == kBooks) add_books(table, request);
  if (entry.files.front() == kLengths) add_stories(table, request);
  if (request.scale != Scale::paper)
    for (const json& note : part(file, "small_notes")) table.notes.push_back(note);
  if (request.scale == Scale::small)
    table.notes.emplace_back("scale small: sizes and steps are ours, not the paper's, for a few CPU cores");
  if (request.scale == Scale::tiny)
    table.notes.emplace_back("scale tiny: to see that everything runs; the numbers mean nothing");
  return table;
}

}  // namespace eddy
