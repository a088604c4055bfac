// Reads tables, with the descriptions of a run's keys.
#include "train/app/reproduce/tables.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <span>
#include <string_view>

#include "models/eddy/config.h"
#include "tensor/base/format.h"
#include "tensor/files/input_file.h"
#include "tensor/files/json_text.h"
#include "train/app/reproduce/table_keys.h"
#include "train/config/config_file.h"
#include "train/config/run_config.h"
#include "train/files/md5.h"
#include "train/files/sha256.h"
#include "train/words/suggest.h"

namespace eddy::app {
using namespace training;
namespace {

using nlohmann::json;
namespace fs = std::filesystem;

// A table of [model], [data] and [train], or an empty one where it is not given.
const json& part(const json& whole, const char* key) {
  static const json none = json::object();
  const auto found = whole.find(key);
  return found != whole.end() ? *found : none;
}

// Checks what the keys of a table's file say of one another.
// errors: ConfigError with the place.
void check_form(const TableKeys& keys, const ConfigSource& file) {
  const bool by_length = file.value.contains("lengths");
  if (keys.columns.empty() && (!by_length || keys.generated))
    fail<ConfigError>("{}: the table has no columns (see train/app/reproduce/README.md for an example)",
                      file.place("columns"));
  const auto check_factor = [&](double factor, const std::string& key) {
    if (factor == 0)
      fail<ConfigError>("{}: {} is 0 (a number other than 0)", file.place(key),
                        key.substr(key.rfind('.') + 1));
  };
  check_factor(keys.chart_factor, "chart_factor");
  for (std::size_t i = 0; i < keys.columns.size(); ++i)
    check_factor(keys.columns[i].factor, fmt::format("columns.{}.factor", i));
  for (std::size_t i = 0; i < keys.rows.size(); ++i)
    if (const std::size_t cells = keys.rows[i].published.size(); cells > keys.columns.size() && !by_length)
      fail<ConfigError>("{}: the row has {} published numbers for {} columns",
                        file.place(fmt::format("row.{}.published", i)), cells, keys.columns.size());
}

// Whether a list of scales has this one; without the list all do.
bool is_for_scale(const std::vector<std::string>& scales, Scale scale) {
  return scales.empty() || std::find(scales.begin(), scales.end(), value_name(scale)) != scales.end();
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

// The keys of [tune] with the values that are tried.
// errors: ConfigError with the place for what is no list of different values of a key, and for a key that is none of a
// run's results or of its length.
std::vector<ReproduceTune::Key> tuned_keys(const ConfigSource& tune) {
  std::vector<ReproduceTune::Key> keys;
  RunConfig any;
  const ConfigKeys known = keys_of(any);
  for (const char* section : {"model", "data", "train"}) {
    if (!tune.value.contains(section)) continue;
    for (const auto& [key, values] : tune.value.at(section).items()) {
      ReproduceTune::Key made{fmt::format("{}.{}", section, key), {}};
      const std::string place = tune.place(made.key);
      if (!values.is_array() || values.empty())
        fail<ConfigError>("{}: tune.{} is {} (a list of the values to try)", place, made.key,
                          shown_value(values));
      for (const json& value : values) {
        ConfigSource one{tune.name, {}, {{made.key, place}}};
        one.value[section][key] = value;
        keys_of(any).read(one);
        made.values.push_back(value.is_string() ? value.get<std::string>() : value.dump());
        if (std::count(made.values.begin(), made.values.end(), made.values.back()) > 1)
          fail<ConfigError>("{}: tune.{} has {} twice", place, made.key, made.values.back());
      }
      const bool of_length = made.key == "train.steps" || made.key == "train.minutes" ||
                             made.key == "train.seed" || made.key == "train.eval_every";
      for (const ConfigField& field : known.fields())
        if (field.full_key() == made.key && (of_length || field.change == KeyChange::same_run))
          fail<ConfigError>("{}: {} cannot be tuned: {}", place, made.key,
                            of_length ? "the trials have values of their own" : "it changes no result");
      keys.push_back(std::move(made));
    }
  }
  if (keys.empty())
    fail<ConfigError>("{}: tune has no key (as tune.train.learning_rate = [1e-3, 3e-3])", tune.name);
  return keys;
}

// Whether another value of a tuned key may change what a step costs.
bool changes_cost(const std::string& key) {
  if (key.starts_with("train."))
    return key == "train.batch" || key == "train.accumulate" || key == "train.sequence";
  return key.find("dropout") == std::string::npos;
}

// The keys that a table of one's own gives a model, without their section.
void add_model_keys(GivenKeys& given, const json& settings) {
  for (const auto& [key, value] : part(settings, "model").items()) given.insert(key);
}

// Whether this place is in a user's file, and not in the table that it begins from.
bool stands_in(const ConfigSource& file, const std::string& place) {
  return place.starts_with(file.name + ":");
}

// A key of a run that a user's file gives, and that is no word of any row: of a row, one that the row does not read; of
// the file, one that none reads; and one whose values are tuned.
// errors: ConfigError with the place.
void refuse_unread(const ReproduceTable& table, const std::vector<ConfigSource>& sources,
                   const ConfigSource& file, const char* scale) {
  RunConfig any;
  const ConfigKeys known = keys_of(any);
  const auto check = [&](const ConfigSource& settings, std::span<const ReproduceRow> rows, bool tunes) {
    for (const ConfigField& field : known.fields()) {
      const std::string key = field.full_key(), place = settings.place(key);
      if (!part(settings.value, field.section.c_str()).contains(field.key) || !stands_in(file, place))
        continue;
      if (std::none_of(rows.begin(), rows.end(),
                       [&](const ReproduceRow& row) { return reads_key(row.config, field); }))
        fail<ConfigError>("{}: {} {} (leave it out{})", place,
                          rows.size() == 1 ? "the row " + rows[0].name + " does not read" : "no row reads",
                          key, field.section == "model" ? "; it is read by " + models_that_read(field) : "");
      if (!tunes && std::any_of(table.tune.keys.begin(), table.tune.keys.end(),
                                [&](const ReproduceTune::Key& tuned) { return tuned.key == key; }))
        fail<ConfigError>("{}: {} is lost, since tune tries values of it for every row (leave one out)",
                          place, key);
    }
  };
  for (const ConfigSource& settings : {file, file.part(scale)}) check(settings, table.rows, false);
  for (std::size_t i = 0; i < table.rows.size(); ++i)
    for (const ConfigSource& settings : {sources[i], sources[i].part(scale)})
      check(settings, std::span(table.rows).subspan(i, 1), false);
  check(file.part("tune"), table.rows, true);
}

// A key of a table or of its rows (at `sources`) that says nothing in a user's file.
// errors: ConfigError with the place.
void refuse_unused(const ReproduceTable& table, const TableKeys& keys, const ConfigSource& file,
                   const std::vector<ConfigSource>& sources, const TableRequest& request) {
  const auto check = [&](const ConfigSource& at, const char* key, bool used, std::string_view why) {
    if (!used && at.value.contains(key) && stands_in(file, at.place(key)))
      fail<ConfigError>("{}: {} says nothing here: {} (leave it out)", at.place(key), key, why);
  };
  const auto any_row = [&](const auto& holds) { return std::ranges::any_of(table.rows, holds); };
  const bool reads_text = any_row([](const auto& row) { return task_reads(row.config.data, "order"); });
  const auto makes_pieces = [&](const ReproduceRow& row) {
    return reads_pieces(request) || row.config.data.tokenizer == kOwnVocabulary;
  };
  if (!request.data.empty() &&
      !any_row([](const ReproduceRow& row) { return task_reads(row.config.data, "path"); }))
    fail<ConfigError>("reproduce: no row of {} reads a text (leave out --data)", file.name);
  const bool has_windows = file.value.contains("lengths") && !keys.generated;
  check(file, "folder", false, "the rows' folder has the name of the file");
  check(file, "chart_factor", !keys.chart.empty(), "there is no chart");
  check(file, "windows", has_windows, "it is of lengths of windows of a text");
  check(file, "lengths", keys.generated || reads_text, "the task makes data, which generated = true says");
  check(file, "text", reads_text, "no row reads a text");
  check(file, "pieces", any_row(makes_pieces), "no row has data.tokenizer \"pieces.model\"");
  for (std::size_t i = 0; i < sources.size(); ++i) {
    const bool at_scale = part(sources[i].value, "pieces").contains(value_name(request.scale));
    check(sources[i], "pieces", !at_scale || makes_pieces(table.rows[i]), "its tokenizer makes none");
    check(sources[i], "longest", has_windows, "it is the longest of windows of a text");
  }
}

// A key of a row that the table which a user's file begins from sets again at the scale: the row's value would be lost.
// errors: ConfigError with both places.
void refuse_lost_keys(const ConfigSource& file, const ConfigSource& row, const char* scale) {
  const ConfigSource at_scale = file.part(scale), row_at_scale = row.part(scale);
  for (const char* section : {"model", "data", "train"})
    for (const auto& [key, value] : part(row.value, section).items()) {
      const std::string full = fmt::format("{}.{}", section, key);
      const std::string here = row.place(full), there = at_scale.place(full);
      if (!part(at_scale.value, section).contains(key) || part(row_at_scale.value, section).contains(key) ||
          !stands_in(file, here) || stands_in(file, there))
        continue;
      fail<ConfigError>(
          "{}: the row's {} is lost, since {} sets it again at scale {} (write {}.{} = {} in the row)", here,
          full, there, scale, scale, full, value.dump());
    }
}

// The text with its values in place of {steps} and so on; a brace itself is written twice.
// errors: ConfigError for what else stands in braces.
std::string filled(const std::string& text, const std::map<std::string, std::string>& values,
                   const std::string& place) {
  std::string made;
  for (std::size_t at = 0; at < text.size(); ++at) {
    const char c = text[at];
    const bool brace = c == '{' || c == '}';
    if (!brace || text.substr(at + 1, 1) == text.substr(at, 1)) {
      made += c;
      if (brace) ++at;
      continue;
    }
    const std::size_t end = text.find('}', at);
    const std::string name = text.substr(at + 1, c == '}' || end == std::string::npos ? 0 : end - at - 1);
    const auto found = values.find(name);
    if (found == values.end()) {
      std::vector<std::string> names;
      for (const auto& [known, value] : values) names.push_back(known);
      fail<ConfigError>("{}: {} has {} in braces ({}one of {}; a brace itself is written twice)", place,
                        quote_text(text), quote_text(name), suggest_value(name, names),
                        fmt::join(names, ", "));
    }
    made += found->second;
    at = end;
  }
  return made;
}

// A row of the file, which stands at `source`.
ReproduceRow row_from(const TableKeys& table, const RowKeys& row, const ConfigSource& file,
                      const ConfigSource& source, const TableRequest& request) {
  ReproduceRow made;
  made.place = source.name;
  RunConfig& config = made.config;
  if (!row.preset.empty()) {
    try {
      config.model = paper_config(row.preset, "reproduce");
    } catch (const ConfigError& unknown) {
      fail<ConfigError>("{}: {}", source.place("preset"), unknown.what());
    }
  }
  config.model.vocab = config.model.n_out = 0;  // the data fill them in
  config.train.eval_batches = 0;                // the numbers of a table are exact
  config.data.path = request.data;
  const char* scale = value_name(request.scale);
  if (request.of_user) refuse_lost_keys(file, source, scale);
  bool gave_family = false, gave_model = false;
  GivenKeys given;
  for (const ConfigSource& settings : {file, source, file.part(scale), source.part(scale)}) {
    set_keys(config, settings);
    gave_family = gave_family || part(settings.value, "model").contains("family");
    gave_model = gave_model || part(settings.value, "model").contains("model");
    add_model_keys(given, settings.value);
  }
  if (row.preset.empty()) imply_names(config.model, gave_family, gave_model);
  // In a table of one's own what follows from the model follows as in `train --model X`.
  if (request.of_user && request.table.empty() && row.preset.empty()) {
    try {
      choose_sizes(config.model, given);
    } catch (const ConfigError& refused) {
      fail<ConfigError>("{}: {}", source.place("model"), refused.what());
    }
  }
  const ModelConfig& model = config.model;
  const std::map<std::string, std::string> values = {{"steps", std::to_string(model.steps)},
                                                     {"chunk", std::to_string(model.chunk)},
                                                     {"repeats", std::to_string(model.repeats)},
                                                     {"window", std::to_string(model.window)},
                                                     {"states", std::to_string(model.states)}};
  made.name = filled(row.name, values, source.place("name"));
  made.title = row.title.empty() ? made.name : filled(row.title, values, source.place("title"));
  if (is_for_scale(table.published_at, request.scale)) made.published = row.published;
  made.against = row.against;
  made.weights_of = row.weights_of;
  made.longest = row.longest;
  made.off_is_meant = row.recurrence_off;
  made.pieces = row.pieces.at(request.scale);
  if (made.pieces == 0) made.pieces = table.pieces.at(request.scale);
  made.batches = row.evaluation.at(request.scale);
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
void add_text(ReproduceTable& table, const TextKeys& text, const TableRequest& request) {
  const std::string path = data_path(request, text.entry);
  ReproduceText& plan = table.text;
  plan.generated_bytes = text.generated_bytes.at(request.scale);
  if (path.empty() && plan.generated_bytes == 0)
    fail<IoError>("reproduce: {} needs {} (--data PATH, or EDDY_DATA_DIR with {})", table.name, text.needs,
                  text.entry);
  std::string digest = text.digest.at(request.scale);
  if (digest.empty()) digest = text.sha256;
  plan.source_bytes = text.source_bytes.at(request.scale);
  if (request.scale != Scale::tiny) check_digest(table, path, digest, plan.source_bytes);
  if (path.empty())
    table.data = "stories that Eddy makes";
  else if (!text.of_paper || (!request.data.empty() && (digest.empty() || request.scale == Scale::tiny)))
    table.data = path;
  if (!table.data.empty()) table.title += fmt::format(", on {}", table.data);
  const TextKind kind =
      value_named<TextKind>(text.kind.empty() ? request.task : text.kind).value_or(TextKind::repeat);
  std::error_code error;
  if (kind == TextKind::file && plan.source_bytes > 0 && fs::is_regular_file(path, error) &&
      fs::file_size(path, error) > static_cast<std::uintmax_t>(plan.source_bytes)) {
    plan.kind = kind;
    plan.source = path;
    return;
  }
  if ((kind == TextKind::documents || kind == TextKind::file) && !path.empty()) {  // read as they are
    for (ReproduceRow& row : table.rows) row.config.data.path = path;
    return;
  }
  plan.kind = kind == TextKind::file ? TextKind::plain : kind;  // there is no file: stories in its place
  plan.source = path;
  if (!reads_pieces(request)) plan.most_bytes = text.most_bytes.at(request.scale);
}

// Adds the notes whose conditions hold, which stand in the file under `key`.
// errors: ConfigError with the place.
void add_notes(ReproduceTable& table, const std::vector<TableNote>& notes, const ConfigSource& file,
               const char* key, const TableRequest& request) {
  const std::vector<std::string> holds = {request.task, reads_pieces(request) ? "pieces" : "bytes",
                                          table.text.kind && table.text.source.empty() ? "made" : "given"};
  for (std::size_t i = 0; i < notes.size(); ++i) {
    const auto& [text, when] = notes[i];
    if (!std::all_of(when.begin(), when.end(), [&](const std::string& condition) {
          return std::find(holds.begin(), holds.end(), condition) != holds.end();
        }))
      continue;
    table.notes.push_back(
        filled(text, {{"reference", table.reference}, {"most_bytes", std::to_string(table.text.most_bytes)}},
               file.place(fmt::format("{}.{}.text", key, i))));
  }
}

// Refuses a row that is to run the weights of none that is trained, and names those that lead from one to the next.
[[noreturn]] void fail_untrained(const ReproduceTable& table, const ReproduceRow& row,
                                 const std::vector<std::string>& trained, const std::string& place) {
  std::vector<std::string> names, parts;
  bool ring = false;
  for (auto at = table.rows.begin() + (&row - table.rows.data());
       !ring && at != table.rows.end() && !at->weights_of.empty();) {
    names.push_back(at->name);
    parts.push_back(fmt::format("{} of {}", at->name, at->weights_of));
    const std::string& next = at->weights_of;
    ring = std::find(names.begin(), names.end(), next) != names.end();
    at = std::find_if(table.rows.begin(), table.rows.end(),
                      [&](const auto& other) { return other.name == next; });
  }
  const std::string path = fmt::format("{}{}", ring ? ": in a ring, " : ": ", fmt::join(parts, ", "));
  fail<ConfigError>("{}: weights_of is {}, which is no row that is trained{} ({})", place,
                    quote_text(row.weights_of), ring || parts.size() > 1 ? path : "",
                    ring || trained.empty()
                        ? "leave weights_of out of one row, which is trained then"
                        : suggest_value(row.weights_of, trained) +
                              fmt::format("rows without weights_of: {}", fmt::join(trained, ", ")));
}

// What the rows say of one another, and their names, which are those of folders. `sources`: where each row stands.
// errors: ConfigError with the place.
void check_rows(const ReproduceTable& table, const std::vector<ConfigSource>& sources,
                const ConfigSource& file) {
  if (table.rows.empty()) fail<ConfigError>("{}: the table has no row at this scale", file.name);
  std::vector<std::string> names, trained;
  for (const ReproduceRow& row : table.rows) {
    names.push_back(row.name);
    if (row.weights_of.empty()) trained.push_back(row.name);
  }
  for (std::size_t i = 0; i < table.rows.size(); ++i) {
    const ReproduceRow& row = table.rows[i];
    const bool plain = std::all_of(row.name.begin(), row.name.end(), [](unsigned char c) {
      return std::isalnum(c) != 0 || c == '-' || c == '_' || c == '.';
    });
    constexpr std::size_t kLongestName = 100;  // a seed and tuned values follow it
    if (row.name.empty() || row.name.front() == '.' || !plain || row.name.size() > kLongestName)
      fail<ConfigError>(
          "{}: the row's name is \"{}\" (at most {} letters, digits, - and _: it names a folder)", row.place,
          row.name, kLongestName);
    for (const char* const taken : {"tune", "claims", "text", "index.html", "budget.json"})
      if (row.name == taken)
        fail<ConfigError>("{}: the row's name is \"{}\", as a file or folder of every table (choose another)",
                          row.place, row.name);
    if (std::count(names.begin(), names.end(), row.name) > 1)
      fail<ConfigError>("{}: the name {} stands twice (each row has a name of its own)", row.place, row.name);
    if (!row.weights_of.empty() && std::find(trained.begin(), trained.end(), row.weights_of) == trained.end())
      fail_untrained(table, row, trained, sources[i].place("weights_of"));
    if (!row.against.empty() &&
        (row.against == row.name || std::find(names.begin(), names.end(), row.against) == names.end()))
      fail<ConfigError>("{}: against is {}, which is no other row of the table ({}rows: {})",
                        sources[i].place("against"), quote_text(row.against),
                        suggest_value(row.against, names), fmt::join(names, ", "));
  }
}

// The first column at a length of rows: "accuracy, %" becomes "accuracy at 64, %".
ReproduceColumn column_at(ReproduceColumn column, std::int64_t length) {
  column.title.insert(std::min(column.title.find(','), column.title.size()), fmt::format(" at {}", length));
  column.key += fmt::format("_{}", length);
  column.better.clear();  // rows are ranked by the length of training alone
  column.length = length;
  return column;
}

}  // namespace

ReproduceTable make_table(const std::string& name, const ConfigSource& source, TableRequest request) {
  const auto file = read_as<TableKeys>(source);
  check_form(file, source);
  if (file.generated && !request.data.empty())
    fail<ConfigError>("reproduce: the data of {} are made, not read (leave out --data)", name);
  ReproduceTable table;
  table.name = name;
  table.folder = file.folder.empty() ? name : file.folder;
  table.title = file.title;
  table.columns = file.columns;
  for (std::size_t i = 0; i < table.columns.size(); ++i)
    table.columns[i].place = source.place(fmt::format("columns.{}.key", i));
  std::vector<ConfigSource> sources;
  for (std::size_t i = 0; i < file.rows.size(); ++i) {
    const RowKeys& row = file.rows[i];
    const ConfigSource at = source.part(fmt::format("row.{}", i));
    if (!row.tables.empty() && request.table.empty())
      fail<ConfigError>(
          "{}: the table begins from none of this build, so its rows stand in it alone (leave out tables)",
          at.place("tables"));
    const bool elsewhere = !row.tables.empty() &&
                           std::find(row.tables.begin(), row.tables.end(), request.table) == row.tables.end();
    if (!is_for_scale(row.scales, request.scale) || elsewhere) continue;
    table.rows.push_back(row_from(file, row, source, at, request));
    sources.push_back(at);
    if (row.reference && !table.reference.empty())
      fail<ConfigError>("{}: a second row has reference = true, after {} (others are relative to one row)",
                        at.place("reference"), table.reference);
    if (row.reference) table.reference = table.rows.back().name;
  }
  divide_relative(table);
  if (reads_pieces(request)) remove_byte_numbers(table);
  check_rows(table, sources, source);
  const std::string& tokenizer = table.rows.front().config.data.tokenizer;
  if (request.tokenizer.empty()) request.tokenizer = tokenizer;
  const bool other_tokens = reads_pieces(request) && !tokenizer.ends_with(".model");
  if (other_tokens) table.folder += "-pieces";
  table.across = static_cast<std::size_t>(file.across);
  if (!request.across.empty())
    for (std::size_t i = 0; i < table.columns.size(); ++i)
      if (table.columns[i].key == request.across) table.across = i;
  if (table.across > 0 && table.across >= table.columns.size())
    fail<ConfigError>("{}: across is {} (0 to {}, the number of a column)", source.place("across"),
                      table.across, table.columns.size() - 1);
  table.chart_key = file.chart;
  table.chart_place = source.place("chart");
  table.chart_factor = file.chart_factor;
  table.generated = file.generated;
  table.seeds = file.seeds;
  if (file.tune) {
    table.tune = {tuned_keys(source.part("tune")), file.tune->by, file.tune->better, source.place("tune.by")};
    constexpr std::size_t kMostCombinations = 1024;
    std::size_t combinations = 1;
    for (const ReproduceTune::Key& key : table.tune.keys) {
      combinations *= key.values.size();
      if (combinations > kMostCombinations)
        fail<ConfigError>("{}: tune has more than {} combinations of values (fewer values, or keys)",
                          source.place("tune." + key.key), kMostCombinations);
    }
    for (std::size_t i = 0; i < table.rows.size(); ++i)
      if (table.rows[i].config.train.minutes > 0)
        fail<ConfigError>(
            "{}: the row {} has train.minutes, and tuning needs a number of steps (train.steps)",
            sources[i].place("train.minutes"), table.rows[i].name);
  }
  table.learned = file.learned;
  table.learned.place = source.place("learned.by");
  table.budget = {file.budget.equal, file.budget.of, file.budget.minutes.at(request.scale),
                  source.place("budget.of")};
  if (table.budget.minutes > 0 &&
      (!value_is(table.budget.equal, BudgetPart::time) || !table.budget.of.empty()))
    fail<ConfigError>("{}: budget.minutes is for equal = \"time\", in place of budget.of (leave one out)",
                      source.place("budget.minutes"));
  if (table.budget.minutes == 0 && part(source.value, "budget").contains("minutes"))
    fail<ConfigError>("{}: budget.minutes has none at scale {} (add {} = MINUTES to it)",
                      source.place("budget.minutes"), value_name(request.scale), value_name(request.scale));
  if (!table.budget.equal.empty())
    for (const ReproduceTune::Key& key : table.tune.keys)
      if (changes_cost(key.key))
        fail<ConfigError>(
            "{}: {} changes what a step costs, and the table has a budget of equal {} (tune other keys)",
            source.place("tune." + key.key), key.key, table.budget.equal);
  if (request.of_user) {
    refuse_unread(table, sources, source, value_name(request.scale));
    refuse_unused(table, file, source, sources, request);
  }
  table.evaluation.batch = 0;
  table.evaluation.split = value_named<Split>(file.evaluation.split).value();
  table.evaluation.batches = file.evaluation.batches.at(request.scale);
  table.sampled_batches = file.sampled_batches.at(request.scale);
  table.windows = file.windows.at(request.scale);
  table.lengths = file.lengths.at(request.scale);
  if (!table.lengths.empty()) table.last = table.lengths.front();
  for (const std::int64_t length : table.lengths)
    if (table.generated)
      table.columns.push_back(column_at(table.columns.front(), length));
    else
      table.columns.push_back({.title = fmt::format("last {} of {}", table.last, length),
                               .key = fmt::format("last_{}", length),
                               .length = length});
  if (file.text) add_text(table, *file.text, request);
  add_notes(table, file.notes, source, "notes", request);
  if (request.scale != Scale::paper) add_notes(table, file.small_notes, source, "small_notes", request);
  table.has_scales = file.has_scales();
  if (!table.has_scales) return table;
  const bool of_paper = std::any_of(file.rows.begin(), file.rows.end(),
                                    [](const RowKeys& row) { return !row.published.empty(); });
  if (request.scale == Scale::small && of_paper)
    table.notes.emplace_back("scale small: sizes and steps are ours, not the paper's, for a few CPU cores");
  if (request.scale == Scale::tiny)
    table.notes.emplace_back("scale tiny: to see that everything runs; the numbers mean nothing");
  return table;
}

}  // namespace eddy::app
