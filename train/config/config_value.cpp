// Checks by type. Numbers are never rounded: 6.0 is no whole number here, and 1e3 is a real one.
#include "train/config/config.h"

#include <fmt/ranges.h>
#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>

#include "tensor/base/format.h"
#include "tensor/base/number_text.h"
#include "tensor/files/json_text.h"
#include "train/words/human_text.h"
#include "train/words/suggest.h"

namespace eddy::training {
namespace {

using nlohmann::json;
using IntList = std::vector<std::int64_t>;
using Texts = ConfigField::Texts;

template <class T>
bool holds(const ConfigField& field) {
  return std::holds_alternative<T*>(field.target);
}

// An integer of JSON as int64, or nothing when it is another type or too large.
std::optional<std::int64_t> as_int(const json& value) {
  if (value.is_number_unsigned() && value.get<std::uint64_t>() > static_cast<std::uint64_t>(INT64_MAX))
    return std::nullopt;
  if (!value.is_number_integer()) return std::nullopt;
  return value.get<std::int64_t>();
}

bool in_range(const std::optional<std::int64_t>& value, const IntRange& range) {
  return value && range.holds(*value);
}

[[noreturn]] void refuse(const ConfigField& field, const std::string& value, const char* problem,
                         const std::string& place) {
  fail<ConfigError>("{}: {} is {}, {} ({})", place, field.full_key(), value, problem, field.rule());
}

// What is wrong with a text that is no number of a field's type: with the number that was meant where it has a unit or
// separators, or is a whole one written as a real one (10k, 10,000, 1e4 and 10000.0 are 10000).
std::string wrong_number(const ConfigField& field, std::string text) {
  const std::string wrong = "which has the wrong type";
  const bool whole = holds<std::int64_t>(field);
  if (!whole && !holds<double>(field)) return wrong;
  if (const auto meant = count_from(text); whole && meant && field.ints.holds(*meant))  // a text in a file
    return fmt::format("{}: write {}", wrong, *meant);
  std::erase_if(text, [whole](char c) { return c == '_' || c == ' ' || (whole && c == ','); });
  std::replace(text.begin(), text.end(), ',', '.');  // of a real number it is the point of many languages
  double number = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, error] = number_from(text.data(), end, number);
  const std::string_view unit(stop, static_cast<std::size_t>(end - stop));
  constexpr double kExact = 9007199254740992.0;  // 2^53
  if (error == std::errc::result_out_of_range || (whole && unit.empty() && std::abs(number) > kExact))
    return "which is out of range";
  if (error != std::errc()) return wrong;
  struct Unit {
    std::string_view name;
    double times, parts = 1;
  };
  constexpr Unit kUnits[] = {{"", 1},    {"%", 1, 100}, {"k", 1e3}, {"K", 1e3},
                             {"M", 1e6}, {"G", 1e9},    {"B", 1e9}};
  for (const Unit& known : kUnits) {
    if (unit != known.name) continue;
    number = number * known.times / known.parts;
    if (!whole) return field.reals.holds(number) ? fmt::format("{}: write {}", wrong, number) : wrong;
    if (!(std::abs(number) <= kExact) || number != std::floor(number)) return wrong;
    const auto exact = static_cast<std::int64_t>(number);
    return field.ints.holds(exact) ? fmt::format("{}: write {}", wrong, exact) : wrong;
  }
  return wrong;
}

bool is_texts(const json& value) {
  return value.is_string() ||
         (value.is_array() &&
          std::all_of(value.begin(), value.end(), [](const json& one) { return one.is_string(); }));
}

Texts texts_of(const json& value) {
  return value.is_array() ? value.get<Texts>() : Texts{value.get<std::string>()};
}

struct Assign {
  const json& value;
  template <class T>
  void operator()(T* place) const {
    *place = value.get<T>();
  }
  void operator()(Texts* place) const {
    *place = texts_of(value);
    if (*place == Texts{""}) place->clear();  // the one form of none
  }
  void operator()(std::map<std::string, Texts>* place) const {
    place->clear();
    for (const auto& [name, texts] : value.items()) place->emplace(name, texts_of(texts));
  }
};

std::optional<json> whole_from(std::string_view text) {
  const std::optional<std::int64_t> value = count_from(text);
  return value ? std::optional<json>(*value) : std::nullopt;
}

std::optional<json> real_from(std::string_view text) {
  double value{};
  const char* end = text.data() + text.size();
  const auto [stop, error] = number_from(text.data(), end, value);
  if (error != std::errc() || stop != end || text.empty()) return std::nullopt;
  return value;
}

std::optional<json> list_from(std::string_view text) {
  json list = json::array();
  for (std::size_t begin = 0; !text.empty() && begin <= text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    const auto value = whole_from(text.substr(begin, end - begin));
    if (!value) return std::nullopt;
    list.push_back(*value);
    begin = end + 1;
  }
  return list;
}

}  // namespace

std::string shown_value(const json& value) {
  if (value.is_string()) return quote_text(value.get_ref<const std::string&>());
  if (value.is_object()) return "a table";
  if (value.is_number_float() && !std::isfinite(value.get<double>()))
    return fmt::format("{}", value.get<double>());  // JSON has no form for it and would print null
  if (!value.is_array()) return value.dump();
  std::vector<std::string> parts;
  for (const json& element : value) {
    if (parts.size() == 10) {
      parts.emplace_back("...");
      break;
    }
    parts.push_back(element.is_structured() ? "..." : shown_value(element));
  }
  return fmt::format("[{}]", fmt::join(parts, ", "));
}

bool has_type(const ConfigField& field, const json& value) {
  if (holds<bool>(field)) return value.is_boolean();
  if (holds<std::int64_t>(field)) return value.is_number_integer();
  if (holds<double>(field)) return value.is_number();
  if (holds<std::string>(field)) return value.is_string();
  if (holds<Texts>(field)) return is_texts(value);
  if (!holds<IntList>(field)) return value.is_object() && std::all_of(value.begin(), value.end(), is_texts);
  return value.is_array() &&
         std::all_of(value.begin(), value.end(), [](const json& e) { return e.is_number_integer(); });
}

void check_value(const ConfigField& field, const json& value, const std::string& place) {
  if (!has_type(field, value))
    refuse(field, shown_value(value),
           wrong_number(field, value.is_string() ? value.get<std::string>() : shown_value(value)).c_str(),
           place);
  const auto check_text = [&](const std::string& text) {
    if (!field.allows(text))
      fail<ConfigError>("{}: {} is {}, which it cannot be ({}{})", place, field.full_key(),
                        shown_value(value), suggest_value(text, field.allowed), field.rule());
  };
  bool good = true;
  if (holds<std::int64_t>(field)) {
    good = in_range(as_int(value), field.ints);
  } else if (holds<double>(field)) {
    good = field.reals.holds(value.get<double>());
  } else if (holds<IntList>(field)) {
    good = std::all_of(value.begin(), value.end(),
                       [&](const json& e) { return in_range(as_int(e), field.ints); });
  } else if (holds<std::string>(field) || holds<Texts>(field)) {
    for (const std::string& text : texts_of(value)) check_text(text);
  }
  if (!good) refuse(field, shown_value(value), "which is out of range", place);
}

json read_value(const ConfigField& field, const std::string& text, const std::string& place) {
  std::optional<json> value;
  if (holds<std::string>(field)) value = text;
  if (holds<Texts>(field)) {  // one, or a list as a file has it
    json list = text.starts_with('[') ? json::parse(text, nullptr, false) : json();
    value = list.is_array() && is_texts(list) ? std::move(list) : json(text);
  }
  if (holds<bool>(field) && (text == "true" || text == "false")) value = text == "true";
  if (holds<std::int64_t>(field)) value = whole_from(text);
  if (holds<double>(field)) value = real_from(text);
  if (holds<IntList>(field)) value = list_from(text);
  if (!value) refuse(field, quote_text(text), wrong_number(field, text).c_str(), place);
  return *value;
}

void assign_value(const ConfigField& field, const json& value) {
  std::visit(Assign{value}, field.target);
}

}  // namespace eddy::training
