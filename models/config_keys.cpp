// Checks of described keys by their type, and their rules in words.
#include "models/config_keys.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <sstream>

#include "tensor/base/format.h"
#include "tensor/files/json_text.h"

namespace eddy {
namespace {

using IntList = std::vector<std::int64_t>;
using Texts = ConfigField::Texts;

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

}  // namespace

bool RealRange::holds(double value) const {
  if (!std::isfinite(value)) return false;
  return (low_open ? value > low : value >= low) && (high_open ? value < high : value <= high);
}

ConfigField& ConfigField::common() {
  use = KeyUse::common;
  return *this;
}
ConfigField& ConfigField::paper_quirk() {
  use = KeyUse::paper_quirk;
  return *this;
}
ConfigField& ConfigField::required() {
  needed = true;
  return *this;
}
ConfigField& ConfigField::changes_results() {
  change = KeyChange::other_results;
  return *this;
}
ConfigField& ConfigField::changes_nothing() {
  change = KeyChange::same_run;
  return *this;
}
ConfigField& ConfigField::read_by(std::string names) {
  readers = std::move(names);
  return *this;
}

bool ConfigField::is_read_by(std::string_view family, std::string_view name) const {
  bool included = false, names_any = false;
  std::istringstream words(readers);
  for (std::string word; words >> word;) {
    const bool excludes = word.starts_with("-");
    if (excludes) word.erase(0, 1);
    const bool is_meant =
        word == name || word == family || word == std::string(family) + "/" + std::string(name);
    if (excludes && is_meant) return false;
    included = included || (is_meant && !excludes);
    names_any = names_any || !excludes;
  }
  return included || !names_any;
}

std::string ConfigField::rule() const {
  struct Rule {
    const ConfigField& field;
    std::string operator()(const bool*) const { return "true or false"; }
    std::string operator()(const std::int64_t*) const { return "a whole number, " + int_rule(field.ints); }
    std::string operator()(const double*) const { return "a number, " + real_rule(field.reals); }
    std::string operator()(const IntList*) const {
      return "a list of whole numbers, each " + int_rule(field.ints);
    }
    std::string operator()(const std::string*) const {
      return field.allowed.empty() ? "a text" : fmt::format("one of {}", fmt::join(field.allowed, ", "));
    }
    std::string operator()(const Texts*) const {
      return field.allowed.empty() ? "a text, or a list of texts"
                                   : fmt::format("a list of {}", fmt::join(field.allowed, ", "));
    }
    std::string operator()(const std::map<std::string, Texts>*) const {
      return "a table of texts, or of lists of texts";
    }
  };
  return std::visit(Rule{*this}, target);
}

bool ConfigField::allows(std::string_view text) const {
  return allowed.empty() || std::any_of(allowed.begin(), allowed.end(), [&](const std::string& one) {
           return text == one || (one.starts_with("*") && text.ends_with(std::string_view(one).substr(1)));
         });
}

void ConfigField::check() const {
  const auto refuse = [&](const std::string& value) {
    fail<ConfigError>("config: {} is {} ({})", full_key(), value, rule());
  };
  if (const auto* const* whole = std::get_if<std::int64_t*>(&target); whole && !ints.holds(**whole))
    refuse(std::to_string(**whole));
  if (const auto* const* real = std::get_if<double*>(&target); real && !reals.holds(**real))
    refuse(fmt::format("{}", **real));
  if (const auto* const* text = std::get_if<std::string*>(&target); text && !allows(**text))
    refuse(quote_text(**text));
  if (const auto* const* texts = std::get_if<Texts*>(&target))
    for (const std::string& one : **texts)
      if (!allows(one)) refuse(quote_text(one));
  if (const auto* const* list = std::get_if<IntList*>(&target))
    for (const std::int64_t element : **list)
      if (!ints.holds(element)) refuse(fmt::format("[{}]", fmt::join(**list, ", ")));
}

ConfigTable& ConfigTable::required() {
  needed = true;
  return *this;
}
ConfigTable& ConfigTable::or_values() {
  short_form = true;
  return *this;
}

void KeyList::section(const std::string& name) {
  sections_.push_back(name);
}

ConfigField* KeyList::find(std::string_view section, std::string_view key) {
  const auto found = std::find_if(fields_.begin(), fields_.end(), [&](const ConfigField& field) {
    return field.key == key && field.section == section;
  });
  return found == fields_.end() ? nullptr : &*found;
}

ConfigField& KeyList::add(ConfigField field) {
  field.section = last_section();
  if (field.readers.empty()) field.readers = readers_;
  field.change = change_;
  if (find(field.section, field.key) != nullptr)
    fail<ConfigError>("config: {} is described twice (give the second key another name)", field.full_key());
  const ConfigField* const next = before_.empty() ? nullptr : find(field.section, before_);
  const auto place = next == nullptr ? fields_.end() : fields_.begin() + (next - fields_.data());
  return *fields_.insert(place, std::move(field));
}

ConfigTable& KeyList::add_table(ConfigTable table) {
  table.section = last_section();
  return tables_.emplace_back(std::move(table));
}

KeyList KeyList::part(const std::string& section) const {
  KeyList keys;
  keys.section(section);
  const auto take = [&](const auto& from, auto& to) {
    std::copy_if(from.begin(), from.end(), std::back_inserter(to),
                 [&](const auto& entry) { return entry.section == section; });
  };
  take(fields_, keys.fields_);
  take(tables_, keys.tables_);
  std::copy_if(ignored_.begin(), ignored_.end(), std::back_inserter(keys.ignored_),
               [&](const auto& entry) { return entry.first == section; });
  return keys;
}

void KeyList::ignore(std::initializer_list<const char*> keys) {
  for (const char* key : keys) ignored_.emplace_back(last_section(), key);
}

}  // namespace eddy
