// Checks the values of a table's file, key by key.
#include "train/app/reproduce/table_values.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tensor/base/format.h"

namespace eddy::app {
using namespace training;
namespace {
namespace table_values {

using nlohmann::json;

constexpr const char* kScales[] = {"tiny", "small", "paper"};
constexpr const char* kSections[] = {"model", "data", "train"};

// A kind of value: its rule in words, and whether a value is of it.
struct Kind {
  const char* rule;
  bool (*holds)(const json&);
};

bool is_scale(const json& value) {
  return std::any_of(std::begin(kScales), std::end(kScales),
                     [&](const char* scale) { return value == scale; });
}
bool is_count(const json& value) {
  return value.is_number_integer() && value >= 0;
}
// A table with one of these for each scale.
bool by_scale(const json& value, bool (*holds)(const json&)) {
  if (!value.is_object()) return false;
  for (const auto& [scale, one] : value.items())
    if (!is_scale(scale) || !holds(one)) return false;
  return true;
}
bool all_of(const json& value, bool (*holds)(const json&)) {
  return value.is_array() && std::all_of(value.begin(), value.end(), holds);
}

const Kind kText{"a text", [](const json& v) { return v.is_string(); }};
const Kind kYesNo{"true or false", [](const json& v) { return v.is_boolean(); }};
const Kind kCount{"a whole number, 0 or more", is_count};
const Kind kFactor{"a number other than 0",
                   [](const json& v) { return v.is_number() && v != 0 && std::isfinite(v.get<double>()); }};
const Kind kDecimals{"a whole number, 0 to 12", [](const json& v) { return is_count(v) && v <= 12; }};
const Kind kScaleList{"a list of tiny, small or paper", [](const json& v) { return all_of(v, is_scale); }};
const Kind kCounts{"a table of whole numbers by scale, as {small = 400}",
                   [](const json& v) { return by_scale(v, is_count); }};
const Kind kLengthLists{"a table of lists by scale, as {small = [256, 512]}", [](const json& v) {
                          return by_scale(v, [](const json& one) {
                            return all_of(one, [](const json& n) { return is_count(n) && n > 0; });
                          });
                        }};
const Kind kNotes{"a list of texts, or of {text, when}", [](const json& v) {
                    return all_of(v, [](const json& note) {
                      return note.is_string() || (note.is_object() && note.contains("text"));
                    });
                  }};
const Kind kPublished{"a list with a number for each column; also a text, or {value, remark}",
                      [](const json& v) {
                        return all_of(v, [](const json& cell) {
                          return cell.is_number() || cell.is_string() ||
                                 (cell.is_object() && cell.size() == 2 && cell.contains("remark") &&
                                  cell.contains("value") && cell.at("value").is_number());
                        });
                      }};
const Kind kTexts{"a table of texts by scale, as {small = \"md5:...\"}",
                  [](const json& v) { return by_scale(v, [](const json& one) { return one.is_string(); }); }};
const Kind kNames{"a list of texts",
                  [](const json& v) { return all_of(v, [](const json& one) { return one.is_string(); }); }};
const Kind kSplit{"train, valid or test",
                  [](const json& v) { return v == "train" || v == "valid" || v == "test"; }};

struct KeyKind {
  const char* key;
  const Kind& kind;
};

std::string shown(const json& value) {
  constexpr std::size_t kMost = 60;
  std::string text = value.dump(-1, ' ', false, json::error_handler_t::replace);
  if (text.size() > kMost) text = text.substr(0, kMost) + "...";
  return text;
}

void check(const ConfigSource& table, std::initializer_list<KeyKind> keys) {
  for (const auto& [key, kind] : keys)
    if (const auto found = table.value.find(key); found != table.value.end() && !kind.holds(*found))
      fail<ConfigError>("{}: {} is {} ({})", table.place(key), key, shown(*found), kind.rule);
}

// The sections of a run's keys that a scale sets: [small.model] and so on.
void check_scales(const ConfigSource& table) {
  for (const char* scale : kScales) {
    if (!table.value.contains(scale)) continue;
    const ConfigSource of_scale = table.part(scale);
    if (!of_scale.value.is_object()) fail<ConfigError>("{}: {} is not a table", table.place(scale), scale);
    const std::vector<std::string> known(std::begin(kSections), std::end(kSections));
    for (const auto& [key, value] : of_scale.value.items())
      if (std::find(known.begin(), known.end(), key) == known.end())
        fail<ConfigError>("{}: {} has no table \"{}\" (nearest: {}; all: {})", of_scale.place(key), scale,
                          key, nearest_match(key, known), fmt::join(known, ", "));
  }
}

void check_evaluation(const ConfigSource& file) {
  if (!file.value.contains("evaluation")) return;
  const ConfigSource evaluation = file.part("evaluation");
  if (!evaluation.value.is_object())
    fail<ConfigError>("{}: evaluation is {} (a table, as {{split = \"valid\", small = 400}})",
                      file.place("evaluation"), shown(evaluation.value));
  const std::vector<std::string> known = {"split", "tiny", "small", "paper"};
  for (const auto& [key, value] : evaluation.value.items())
    if (std::find(known.begin(), known.end(), key) == known.end())
      fail<ConfigError>("{}: evaluation has no key \"{}\" (nearest: {}; all: {})", evaluation.place(key), key,
                        nearest_match(key, known), fmt::join(known, ", "));
  check(evaluation, {{"split", kSplit}, {"tiny", kCount}, {"small", kCount}, {"paper", kCount}});
}

void check_text(const ConfigSource& file) {
  if (!file.value.contains("text")) return;
  const ConfigSource text = file.part("text");
  for (const char* needed : {"entry", "needs"})
    if (!text.value.is_object() || !text.value.contains(needed))
      fail<ConfigError>("{}: [text] has no {} (a table of one's own names its text by path in [data])",
                        file.place("text"), needed);
  check(text, {{"entry", kText},
               {"needs", kText},
               {"sha256", kText},
               {"digest", kTexts},
               {"kind", kText},
               {"of_paper", kYesNo},
               {"source_bytes", kCounts},
               {"generated_bytes", kCounts},
               {"most_bytes", kCounts}});
}

}  // namespace table_values
}  // namespace

void check_values(const ConfigSource& file) {
  using namespace table_values;
  check(file, {{"title", kText},
               {"folder", kText},
               {"chart", kText},
               {"chart_factor", kFactor},
               {"across", kCount},
               {"generated", kYesNo},
               {"published_at", kScaleList},
               {"sampled_batches", kCounts},
               {"windows", kCounts},
               {"pieces", kCounts},
               {"lengths", kLengthLists},
               {"notes", kNotes},
               {"small_notes", kNotes}});
  check_evaluation(file);
  check_text(file);
  check_scales(file);
  const auto each = [&](const char* list, const auto& visit) {
    if (const auto found = file.value.find(list); found != file.value.end())
      for (std::size_t i = 0; i < found->size(); ++i) visit(file.part(fmt::format("{}.{}", list, i)));
  };
  each("columns", [](const ConfigSource& column) {
    check(column, {{"title", kText},
                   {"key", kText},
                   {"factor", kFactor},
                   {"relative", kYesNo},
                   {"decimals", kDecimals}});
  });
  each("row", [](const ConfigSource& row) {
    check(row, {{"name", kText},
                {"title", kText},
                {"preset", kText},
                {"published", kPublished},
                {"weights_of", kText},
                {"longest", kCount},
                {"scales", kScaleList},
                {"reference", kYesNo},
                {"pieces", kCounts},
                {"evaluation", kCounts},
                {"tables", kNames}});
    check_scales(row);
  });
}

}  // namespace eddy::app
