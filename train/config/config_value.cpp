// Checks by type. Numbers are never rounded: 6.0 is no whole number here, and 1e3 is a real one.
#include "train/config/config.h"

#include <fmt/ranges.h>
#include <algorithm>
#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>

#include "tensor/base/format.h"
#include "tensor/files/json_text.h"

namespace eddy {
namespace {

using nlohmann::json;
using IntList = std::vector<std::int64_t>;

template <class T>
bool holds(const ConfigField& field) {
  return std::holds_alternative<T*>(field.target);
}

std::string int_rule(const IntRange& range) {
  constexpr IntRange kAll;
  const bool low = range.low != kAll.low, high = range.high != kAll.high;
  if (low && high) return fmt::format("{} to {}", range.low, range.high);
  if (low) return fmt::format("at least {}", range.low);
  if (high) return fmt::format("at most {}", range.high);
  return "64 bits";
}

std::string real_rule(const RealRange& range) {
  const bool low = std::isfinite(range.low), high = std::isfinite(range.high);
  const std::string from = fmt::format("{} {}", range.low_open ? "above" : "at least", range.low);
  const std::string to = fmt::format("{} {}", range.high_open ? "below" : "at most", range.high);
  if (low && high) return from + " and " + to;
  if (low) return from;
  return high ? to : "finite";
}

// An integer of JSON as int64, or nothing when it is another type or too large.
std::optional<std::int64_t> as_int(const json& value) {
  if (value.is_number_unsigned() && value.get<std::uint64_t>() > static_cast<std::uint64_t>(INT64_MAX))
    return std::nullopt;
  if (!value.is_number_integer()) return std::nullopt;
  return value.get<std::int64_t>();
}

bool in_range(const std::optional<std::int64_t>& value, const IntRange& range) {
  return value && *value >= range.low && *value <= range.high;
}

bool in_range(double value, const RealRange& range) {
  if (!std::isfinite(value)) return false;
  const bool above = range.low_open ? value > range.low : value >= range.low;
  const bool below = range.high_open ? value < range.high : value <= range.high;
  return above && below;
}

// A value as an error shows it. Containers are not printed: they can be long.
std::string shown(const json& value) {
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
    parts.push_back(element.is_structured() ? "..." : shown(element));
  }
  return fmt::format("[{}]", fmt::join(parts, ", "));
}

[[noreturn]] void refuse(const ConfigField& field, const std::string& value, const char* problem,
                         const std::string& place) {
  fail<ConfigError>("{}: {} is {}, {} ({})", place, field.full_key(), value, problem, field.rule());
}

bool right_type(const ConfigField& field, const json& value) {
  if (holds<bool>(field)) return value.is_boolean();
  if (holds<std::int64_t>(field)) return value.is_number_integer();
  if (holds<double>(field)) return value.is_number();
  if (holds<std::string>(field)) return value.is_string();
  return value.is_array() &&
         std::all_of(value.begin(), value.end(), [](const json& e) { return e.is_number_integer(); });
}

template <class T>
std::optional<json> number_from(std::string_view text) {
  T value{};
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || stop != end || text.empty()) return std::nullopt;
  return value;
}

std::optional<json> list_from(std::string_view text) {
  json list = json::array();
  for (std::size_t begin = 0; !text.empty() && begin <= text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    const auto value = number_from<std::int64_t>(text.substr(begin, end - begin));
    if (!value) return std::nullopt;
    list.push_back(*value);
    begin = end + 1;
  }
  return list;
}

}  // namespace

std::string ConfigField::rule() const {
  if (holds<bool>(*this)) return "true or false";
  if (holds<std::int64_t>(*this)) return "a whole number, " + int_rule(ints);
  if (holds<double>(*this)) return "a number, " + real_rule(reals);
  if (holds<IntList>(*this)) return "a list of whole numbers, each " + int_rule(ints);
  return allowed.empty() ? "a text" : fmt::format("one of {}", fmt::join(allowed, ", "));
}

void ConfigField::check(const json& value, const std::string& place) const {
  if (!right_type(*this, value)) refuse(*this, shown(value), "which has the wrong type", place);
  bool good = true;
  if (holds<std::int64_t>(*this)) {
    good = in_range(as_int(value), ints);
  } else if (holds<double>(*this)) {
    good = in_range(value.get<double>(), reals);
  } else if (holds<IntList>(*this)) {
    good = std::all_of(value.begin(), value.end(), [&](const json& e) { return in_range(as_int(e), ints); });
  } else if (holds<std::string>(*this) && !allowed.empty()) {
    const auto& text = value.get_ref<const std::string&>();
    const auto fits = [&](const std::string& one) {  // "*.model" allows all that end so
      return text == one || (one.starts_with("*") && text.ends_with(one.substr(1)));
    };
    if (std::none_of(allowed.begin(), allowed.end(), fits))
      refuse(*this, shown(value), fmt::format("nearest: {}", nearest_match(text, allowed)).c_str(), place);
  }
  if (!good) refuse(*this, shown(value), "which is out of range", place);
}

json ConfigField::read_text(const std::string& text, const std::string& place) const {
  std::optional<json> value;
  if (holds<std::string>(*this)) value = text;
  if (holds<bool>(*this) && (text == "true" || text == "false")) value = text == "true";
  if (holds<std::int64_t>(*this)) value = number_from<std::int64_t>(text);
  if (holds<double>(*this)) value = number_from<double>(text);
  if (holds<IntList>(*this)) value = list_from(text);
  if (!value) refuse(*this, quote_text(text), "which has the wrong type", place);
  return *value;
}

void ConfigField::assign(const json& value) const {
  std::visit([&](auto* place) { *place = value.get<std::remove_pointer_t<decltype(place)>>(); }, target);
}

}  // namespace eddy
