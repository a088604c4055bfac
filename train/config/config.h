// Described structs: one description of a struct's keys gives its defaults, checks, help, command line flags
// and its reading and writing as JSON. A struct is described by one function:
//
//   void describe(ConfigKeys& keys, TrainConfig& c) {
//     keys.section("train");
//     keys.add("steps", c.steps, "Optimizer steps", {1, 1'000'000'000}).everyday();
//     keys.add("window", c.window, "Tokens that a token sees").read_by("slide block_recurrent");
//   }
//
// Those of a run take help, range and readers from keys.toml (run_config.cpp).
// The struct's own initial values are the defaults. Files have one table per section; flags are
// `--train.steps 100`.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <limits>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace eddy {

struct ConfigSource;  // a config as it was read: train/config/config_file.h

struct IntRange {
  std::int64_t low = std::numeric_limits<std::int64_t>::min();
  std::int64_t high = std::numeric_limits<std::int64_t>::max();
};

struct RealRange {
  double low = -std::numeric_limits<double>::infinity();
  double high = std::numeric_limits<double>::infinity();
  bool low_open = false, high_open = false;  // whether the bound itself is excluded; infinity always is
};
inline constexpr RealRange kBelowOne{.low = 0, .high = 1, .high_open = true};

// Who needs a key: every run, some runs, or only those that reproduce an oddity of published code.
enum class KeyUse { everyday, special, oddity };

// One described key.
struct ConfigField {
  using Target = std::variant<bool*, std::int64_t*, double*, std::string*, std::vector<std::int64_t>*>;

  std::string section{}, key{}, help{};  // help: a sentence without its full stop
  Target target;
  IntRange ints{};                     // for integers, and for each element of a list
  RealRange reals{};                   // for real numbers
  std::vector<std::string> allowed{};  // for texts; "*.x" allows all that end in ".x"; empty: any text
  KeyUse use = KeyUse::special;
  std::string readers{};  // families, models or tasks, separated by blanks, "-lstm" excludes one; empty: all

  ConfigField& everyday();
  ConfigField& read_by(std::string names);
  // Whether the model `name` of a family reads this key; for a key of [data]: whether the task `name` does.
  bool is_read_by(std::string_view family, std::string_view name) const;

  std::string full_key() const { return section + "." + key; }
  // "true or false", "a whole number, at least 1", ...: completes an error text and the help.
  std::string rule() const;
  // The struct's current value: as JSON, and as a flag gives it.
  nlohmann::json value() const;
  std::string text() const;
  // Checks a value against the rule, and assigns one that was checked.
  // errors: ConfigError "place: key: value (rule)" for a wrong type, and a value that is not allowed.
  void check(const nlohmann::json& value, const std::string& place) const;
  void assign(const nlohmann::json& value) const;
  // The JSON value of a flag's text; a list is written "1,2,3".
  // errors: ConfigError for a wrong type.
  nlohmann::json read_text(const std::string& text, const std::string& place) const;
};

// The described keys of one or more structs, pointing into them: they must outlive this object.
class ConfigKeys {
 public:
  // Begins a section: later calls of add() and ignore() belong to it.
  void section(const std::string& name);
  // Describes a key of the section. The reference is valid until the next call.
  ConfigField& add(const char* key, bool& target, const char* help) {
    return add({.key = key, .help = help, .target = &target});
  }
  ConfigField& add(const char* key, std::int64_t& target, const char* help, IntRange range = {}) {
    return add({.key = key, .help = help, .target = &target, .ints = range});
  }
  ConfigField& add(const char* key, std::vector<std::int64_t>& target, const char* help,
                   IntRange range = {}) {
    return add({.key = key, .help = help, .target = &target, .ints = range});
  }
  ConfigField& add(const char* key, double& target, const char* help, RealRange range = {}) {
    return add({.key = key, .help = help, .target = &target, .reals = range});
  }
  ConfigField& add(const char* key, std::string& target, const char* help,
                   std::vector<std::string> allowed = {}) {
    return add({.key = key, .help = help, .target = &target, .allowed = std::move(allowed)});
  }
  // Adds a key of the section with all that is known of it.
  ConfigField& add(ConfigField field);
  // Keys of the section that read() ignores: another reader uses them.
  void ignore(std::initializer_list<const char*> keys);

  const std::vector<ConfigField>& fields() const { return fields_; }
  const std::vector<std::string>& sections() const { return sections_; }

  // Writes the values of a config into the structs; missing keys keep their values. Everything is checked
  // before anything changes.
  // errors: ConfigError with the place, the key, the value and the rule; for an unknown key the nearest known
  // one.
  void read(const ConfigSource& source);
  // Writes values given as texts, full key to text, as command line flags give them.
  // errors: as read.
  void read_texts(const std::map<std::string, std::string>& texts);
  // All values as JSON, one object per section.
  nlohmann::json to_json() const;

 private:
  const ConfigField* find(const std::string& full_key) const;
  bool ignored(const std::string& full_key) const;
  std::string meant_key(const std::string& key, const std::string& section) const;
  [[noreturn]] void refuse_key(const std::string& place, const std::string& section,
                               const std::string& key) const;

  std::vector<std::string> sections_;
  std::vector<ConfigField> fields_;
  std::vector<std::string> ignored_;  // full keys
};

// The keys of a described struct.
template <class C>
ConfigKeys keys_of(C& config) {
  ConfigKeys keys;
  describe(keys, config);
  return keys;
}

// The candidate with the smallest edit distance to `text` (the first of equals), or "" without candidates.
std::string nearest_match(std::string_view text, const std::vector<std::string>& candidates);

}  // namespace eddy
