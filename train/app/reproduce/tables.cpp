// Reads tables, with the descriptions of a run's keys.
#include "train/app/reproduce/tables.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "tensor/base/format.h"
#include "tensor/files/input_file.h"
#include "tensor/files/json_text.h"
#include "train/app/reproduce/table_values.h"
#include "train/config/config_file.h"
#include "train/config/run_config.h"
#include "train/files/md5.h"
#include "train/files/sha256.h"

namespace eddy::app {
using namespace training;
namespace {

using nlohmann::json;
namespace fs = std::filesystem;

constexpr const char* kScales[] = {"tiny", "small", "paper"};

const json& part(const json& whole, const char* key) {
  static const json none = json::object();
  const auto found = whole.find(key);
  return found != whole.end() ? *found : none;
}

// errors: ConfigError for a key of a table of the file that is none of these.
void check_names(const ConfigSource& source, const char* what, std::vector<std::string> known) {
  if (!source.value.is_object()) fail<ConfigError>("{}: {} is not a table of keys", source.name, what);
  for (const auto& [key, value] : source.value.items())
    if (std::find(known.begin(), known.end(), key) == known.end())
      fail<ConfigError>("{}: {} has no key \"{}\" (nearest: {}; all: {})", source.place(key), what, key,
                        nearest_match(key, known), fmt::join(known, ", "));
}

// Checks the form of a table's file, but for the values of a run's keys.
// errors: ConfigError with the place.
void check_form(const ConfigSource& file) {
  std::vector<std::string> top = {
      "title", "columns",      "evaluation", "sampled_batches", "lengths",      "windows", "across",
      "chart", "chart_factor", "notes",      "small_notes",     "published_at", "folder",  "generated",
      "text",  "model",        "data",       "train",           "row",          "pieces"};
  std::vector<std::string> of_row = {"name",    "title",  "preset",    "published", "weights_of",
                                     "longest", "scales", "reference", "tables",    "model",
                                     "data",    "train",  "pieces",    "evaluation"};
  for (std::vector<std::string>* known : {&top, &of_row})
    known->insert(known->end(), std::begin(kScales), std::end(kScales));
  check_names(file, "a table's file", top);
  for (const char* needed : {"title", file.value.contains("lengths") ? "lengths" : "columns", "row"})
    if (!file.value.contains(needed))
      fail<ConfigError>("{}: the table has no {} (see train/app/reproduce/README.md for an example)",
                        file.name, needed);
  for (const char* list : {"columns", "row"})
    if (const json& entries = part(file.value, list);
        file.value.contains(list) && (!entries.is_array() || entries.empty()))
      fail<ConfigError>("{}: {} is no list of tables, or an empty one", file.place(list), list);
  const std::size_t columns = part(file.value, "columns").size();
  for (std::size_t i = 0; i < columns; ++i) {
    const ConfigSource column = file.part(fmt::format("columns.{}", i));
    check_names(column, "a column", {"title", "key", "factor", "relative", "decimals"});
    for (const char* needed : {"title", "key"})
      if (!column.value.contains(needed)) fail<ConfigError>("{}: a column has no {}", column.name, needed);
  }
  for (std::size_t i = 0; i < file.value.at("row").size(); ++i) {
    const ConfigSource row = file.part(fmt::format("row.{}", i));
    check_names(row, "a row", of_row);
    for (const char* needed : {"name", "title"})
      if (!row.value.contains(needed)) fail<ConfigError>("{}: a row has no {}", row.name, needed);
    const std::size_t cells = part(row.value, "published").size();
    const bool by_length = file.value.contains("lengths");
    if (cells > columns && !by_length)
      fail<ConfigError>("{}: the row has {} published numbers for {} columns", row.place("published"), cells,
                        columns);
  }
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
// errors: ConfigError with the place.
void set_keys(RunConfig& config, const ConfigSource& settings) {
  for (const char* section : {"model", "data", "train"}) {
    if (!settings.value.contains(section)) continue;
    ConfigSource given{settings.name, {{section, settings.value.at(section)}}, {}};
    for (const auto& [path, place] : settings.places)
      if (path.starts_with(section)) given.places.emplace(path, place);
    keys_of(config).read(given);
  }
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

ReproduceColumn column_from(const ConfigSource& source) {
  const json& column = source.value;
  const ReproduceColumn defaults;
  return {column.at("title"),
          column.at("key"),
          column.value("factor", defaults.factor),
          column.value("relative", defaults.relative),
          column.value("decimals", defaults.decimals),
          source.place("key")};
}

ReproduceRow row_from(const ConfigSource& file, const ConfigSource& source, const TableRequest& request) {
  const json& row = source.value;
  ReproduceRow made;
  made.place = source.name;
  RunConfig& config = made.config;
  if (row.contains("preset")) {
    try {
      config.model = paper_config(row.at("preset"), "reproduce");
    } catch (const ConfigError& unknown) {
      fail<ConfigError>("{}: {}", source.place("preset"), unknown.what());
    }
  }
  config.model.vocab = config.model.n_out = 0;  // the data fill them in
  config.train.eval_batches = 0;                // the numbers of a table are exact
  config.data.path = request.data;
  const char* scale = scale_name(request.scale);
  bool gave_family = false, gave_model = false;
  for (const ConfigSource& settings : {file, source, file.part(scale), source.part(scale)}) {
    set_keys(config, settings);
    gave_family = gave_family || part(settings.value, "model").contains("family");
    gave_model = gave_model || part(settings.value, "model").contains("model");
  }
  if (!row.contains("preset")) imply_names(config.model, gave_family, gave_model);
  const auto text = [&](const char* key) {
    return fmt::format(fmt::runtime(row.at(key).get<std::string>()), fmt::arg("steps", config.model.steps),
                       fmt::arg("chunk", config.model.chunk), fmt::arg("repeats", config.model.repeats),
                       fmt::arg("window", config.model.window), fmt::arg("states", config.model.states));
  };
  made.name = text("name");
  made.title = text("title");
  if (is_for_scale(file.value, "published_at", request.scale))
    for (const json& cell : part(row, "published")) made.published.push_back(published_from(cell));
  made.weights_of = row.value("weights_of", "");
  made.longest = row.value("longest", made.longest);
  made.pieces = part(row, "pieces").value(scale, part(file.value, "pieces").value(scale, made.pieces));
  made.batches = part(row, "evaluation").value(scale, made.batches);
  return made;
}

// Divides the published numbers of relative columns by those of the reference row.
// errors: ConfigError without that row.
void divide_relative(ReproduceTable& table) {
  const auto reference = std::find_if(table.rows.begin(), table.rows.end(),
                                      [&](const ReproduceRow& row) { return row.name == table.reference; });
  for (std::size_t i = 0; i < table.columns.size(); ++i) {
    if (!table.columns[i].relative) continue;
    if (reference == table.rows.end())
      fail<ConfigError>("{}: the column {} is relative to a row, and none has reference = true",
                        table.columns[i].place, table.columns[i].title);
    if (i >= reference->published.size()) continue;
    const double whole = reference->published[i].value;
    for (ReproduceRow& row : table.rows)
      if (i < row.published.size()) row.published[i].value /= whole;
  }
}

// Leaves out published numbers of models of bytes, which stand beside no rows of pieces.
void remove_byte_numbers(ReproduceTable& table) {
  bool any = false;
  for (std::size_t i = 0; i < table.columns.size(); ++i) {
    if (table.columns[i].key != "bits_per_byte") continue;
    for (ReproduceRow& row : table.rows)
      if (i < row.published.size() && std::isfinite(row.published[i].value)) {
        row.published[i] = {};
        any = true;
      }
  }
  if (any)
    table.notes.emplace_back(
        "the published bits per byte are of models that read bytes, and these rows read pieces: they are left out");
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
  return name == "plain" || name == "file" ? ReproduceText::Kind::plain : ReproduceText::Kind::repeat;
}

// The digest of a file's first bytes, of all where `bytes` is 0, as MD5 or SHA-256.
std::string digest_of_text(const std::string& path, std::int64_t bytes, bool md5) {
  std::string text = InputFile(path).text();
  if (bytes > 0) text.resize(std::min(text.size(), static_cast<std::size_t>(bytes)));
  return md5 ? "md5:" + md5_hex(text) : sha256_hex(text);
}

// errors: ConfigError for a file that is not the one which the table is about.
void check_digest(const ReproduceTable& table, const std::string& path, const std::string& wanted,
                  std::int64_t bytes) {
  std::error_code error;
  if (wanted.empty() || !fs::is_regular_file(path, error)) return;
  if (const std::string found = digest_of_text(path, bytes, wanted.starts_with("md5:")); found != wanted)
    fail<ConfigError>(
        "reproduce: {} is not the text of {} (digest {}, wanted {}; a table of one's own takes any text, and --scale "
        "tiny makes one for a try)",
        path, table.name, found, wanted);
}

// Names the text that the table reads, or has it made. Text that is not the paper's is named in the title.
// errors: IoError at a scale whose text must be given; ConfigError for another text than the table's.
void add_text(ReproduceTable& table, const json& text, const TableRequest& request) {
  const std::string entry = text.at("entry"), path = data_path(request, entry);
  const char* scale = scale_name(request.scale);
  const auto bytes = [&](const char* key) { return part(text, key).value(scale, std::int64_t{0}); };
  ReproduceText& plan = table.text;
  plan.generated_bytes = bytes("generated_bytes");
  if (path.empty() && plan.generated_bytes == 0)
    fail<IoError>("reproduce: {} needs {} (--data PATH, or EDDY_DATA_DIR with {})", table.name,
                  text.at("needs").get<std::string>(), entry);
  const std::string digest = part(text, "digest").value(scale, text.value("sha256", ""));
  plan.source_bytes = bytes("source_bytes");
  if (request.scale != Scale::tiny) check_digest(table, path, digest, plan.source_bytes);
  if (path.empty())
    table.data = "stories that Eddy makes";
  else if (!text.value("of_paper", true) ||
           (!request.data.empty() && (digest.empty() || request.scale == Scale::tiny)))
    table.data = path;
  if (!table.data.empty()) table.title += fmt::format(", on {}", table.data);
  const std::string name = text.value("kind", request.task);
  std::error_code error;
  if (name == "file" && plan.source_bytes > 0 && fs::is_regular_file(path, error) &&
      fs::file_size(path, error) > static_cast<std::uintmax_t>(plan.source_bytes)) {
    plan.kind = ReproduceText::Kind::beginning;
    plan.source = path;
    return;
  }
  if ((name == "documents" || name == "file") && !path.empty()) {  // read as they are
    for (ReproduceRow& row : table.rows) row.config.data.path = path;
    return;
  }
  plan.kind = text_kind(name);
  plan.source = path;
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

bool has_scales(const ConfigSource& source) {
  const auto names_scale = [](const json& table) {
    return std::any_of(std::begin(kScales), std::end(kScales),
                       [&](const char* scale) { return table.contains(scale); });
  };
  const json& rows = source.value.at("row");
  return names_scale(source.value) || std::any_of(rows.begin(), rows.end(), names_scale);
}

namespace {

// What the rows say of one another, and their names, which are those of folders.
void check_rows(const ReproduceTable& table, const ConfigSource& file) {
  if (table.rows.empty()) fail<ConfigError>("{}: the table has no row at this scale", file.name);
  std::vector<std::string> names;
  for (const ReproduceRow& row : table.rows) names.push_back(row.name);
  for (const ReproduceRow& row : table.rows) {
    const bool plain = std::all_of(row.name.begin(), row.name.end(), [](unsigned char c) {
      return std::isalnum(c) != 0 || c == '-' || c == '_' || c == '.';
    });
    if (row.name.empty() || row.name.front() == '.' || !plain)
      fail<ConfigError>("{}: the row's name is \"{}\" (letters, digits, - and _: it names a folder)",
                        row.place, row.name);
    if (std::count(names.begin(), names.end(), row.name) > 1)
      fail<ConfigError>("{}: the name {} stands twice (each row has a name of its own)", row.place, row.name);
    if (!row.weights_of.empty() &&
        (row.weights_of == row.name || std::find(names.begin(), names.end(), row.weights_of) == names.end()))
      fail<ConfigError>("{}: weights_of is \"{}\", which is no other row (nearest: {})", row.place,
                        row.weights_of, nearest_match(row.weights_of, names));
  }
}

ReproduceTable read_table(const std::string& name, const ConfigSource& source, TableRequest request) {
  check_form(source);
  check_values(source);
  const json& file = source.value;
  if (file.value("generated", false) && !request.data.empty())
    fail<ConfigError>("reproduce: the data of {} are made, not read (leave out --data)", name);
  const char* scale = scale_name(request.scale);
  ReproduceTable table;
  table.name = name;
  table.folder = file.value("folder", name);
  table.title = file.at("title");
  for (std::size_t i = 0; i < part(file, "columns").size(); ++i)
    table.columns.push_back(column_from(source.part(fmt::format("columns.{}", i))));
  for (std::size_t i = 0; i < file.at("row").size(); ++i) {
    const ConfigSource row = source.part(fmt::format("row.{}", i));
    const json& tables = part(row.value, "tables");
    const bool elsewhere = !tables.empty() && std::find(tables.begin(), tables.end(), name) == tables.end();
    if (!is_for_scale(row.value, "scales", request.scale) || elsewhere) continue;
    table.rows.push_back(row_from(source, row, request));
    if (row.value.value("reference", false)) table.reference = table.rows.back().name;
  }
  divide_relative(table);
  if (reads_pieces(request)) remove_byte_numbers(table);
  check_rows(table, source);
  const std::string& tokenizer = table.rows.front().config.data.tokenizer;
  if (request.tokenizer.empty()) request.tokenizer = tokenizer;
  const bool other_tokens = reads_pieces(request) && !tokenizer.ends_with(".model");
  if (other_tokens) table.folder += "-pieces";
  table.across = file.value("across", table.across);
  if (!request.across.empty())
    for (std::size_t i = 0; i < table.columns.size(); ++i)
      if (table.columns[i].key == request.across) table.across = i;
  if (table.across > 0 && table.across >= table.columns.size())
    fail<ConfigError>("{}: across is {} (0 to {}, the number of a column)", source.place("across"),
                      table.across, table.columns.size() - 1);
  table.chart_key = file.value("chart", "");
  table.chart_place = source.place("chart");
  table.chart_factor = file.value("chart_factor", table.chart_factor);
  table.generated = file.value("generated", false);
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
  if (!has_scales(source)) return table;
  const bool of_paper = std::any_of(file.at("row").begin(), file.at("row").end(),
                                    [](const json& row) { return row.contains("published"); });
  if (request.scale == Scale::small && of_paper)
    table.notes.emplace_back("scale small: sizes and steps are ours, not the paper's, for a few CPU cores");
  if (request.scale == Scale::tiny)
    table.notes.emplace_back("scale tiny: to see that everything runs; the numbers mean nothing");
  return table;
}

}  // namespace

ReproduceTable make_table(const std::string& name, const ConfigSource& source, const TableRequest& request) {
  try {
    return read_table(name, source, request);
  } catch (const json::exception& wrong) {
    fail<ConfigError>("{}: a value is not what it should be: {} (see train/app/reproduce/README.md)",
                      source.name, plain_message(wrong.what()));
  } catch (const fmt::format_error& wrong) {
    fail<ConfigError>(
        "{}: braces in a name, title or note: {} (they hold steps, chunk, repeats, window or states of the row's model, "
        "or reference; a brace itself is written twice)",
        source.name, wrong.what());
  }
}

}  // namespace eddy::app
