// Described structs: one description of a struct's keys gives their checks, help, command line flags and their
// form in files. A struct is described by one function:
//
//   void describe(KeyList& keys, TrainConfig& c) {
//     keys.section("train");
//     keys.add("steps", c.steps, "Optimizer steps", {1, 1'000'000'000}).common();
//     keys.add("window", c.window, "Tokens that a token sees").read_by("slide block_recurrent");
//   }
//
// A struct of a file of data, such as a table of a paper, is described in the same way, without sections: its keys
// stand in one table, and may be tables and lists of tables again.
//
//   void describe(KeyList& keys, Column& c) {
//     keys.add("title", c.title, "Title").required();
//   }
//   void describe(KeyList& keys, Page& c) {
//     keys.add_list("columns", c.columns, "a list of tables, each with a title").required();
//   }
//
// The struct's own initial values are the defaults. Reading files and flags is above: train/config/config.h.
#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace eddy {

// The whole numbers that a key takes.
struct IntRange {
  // The bounds, which belong to it.
  std::int64_t low = std::numeric_limits<std::int64_t>::min();
  std::int64_t high = std::numeric_limits<std::int64_t>::max();
  // Whether a value lies in it.
  bool holds(std::int64_t value) const { return value >= low && value <= high; }
};

// The real numbers that a key takes.
struct RealRange {
  // The bounds.
  double low = -std::numeric_limits<double>::infinity();
  double high = std::numeric_limits<double>::infinity();
  bool low_open = false, high_open = false;  // whether the bound itself is excluded; infinity always is
  // Whether a value lies in it.
  bool holds(double value) const;
};
// A probability that is not 1.
inline constexpr RealRange kBelowOne{.low = 0, .high = 1, .high_open = true};

// The keys of a section that someone has given.
using GivenKeys = std::set<std::string, std::less<>>;

// Who needs a key: every run, some runs, or only those that reproduce a quirk of published code.
enum class KeyUse { common, special, paper_quirk };

// What a run is that goes on with another value of a key: none, since it cannot; one with other results than the run
// had with the first value; or the same run, whose results are what they were to be.
enum class KeyChange { refused, other_results, same_run };

// One described key.
struct ConfigField {
  using Texts = std::vector<std::string>;  // a file may give a single text in place of a list
  // The field of the struct that the key sets.
  using Target = std::variant<bool*, std::int64_t*, double*, std::string*, std::vector<std::int64_t>*, Texts*,
                              std::map<std::string, Texts>*>;

  std::string section{}, key{}, help{};  // help: a sentence without its full stop
  Target target;                         // what it sets
  IntRange ints{};                       // for integers, and for each element of a list
  RealRange reals{};                     // for real numbers
  std::vector<std::string> allowed{};    // for texts; "*.x" allows all that end in ".x"; empty: any text
  bool needed = false;                   // whether a table without it is refused
  KeyUse use = KeyUse::special;          // who needs it
  KeyChange change = KeyChange::other_results;  // what another value makes of a run
  std::string readers{};  // families, models or tasks, separated by blanks, "-lstm" excludes one; empty: all

  // Each sets what it is named by.
  ConfigField& common();                    // KeyUse::common
  ConfigField& paper_quirk();               // KeyUse::paper_quirk
  ConfigField& required();                  // needed
  ConfigField& changes_results();           // KeyChange::other_results
  ConfigField& changes_nothing();           // KeyChange::same_run
  ConfigField& read_by(std::string names);  // readers
  // Whether the model `name` of a family reads this key; for a key of [data]: whether the task `name` does.
  bool is_read_by(std::string_view family, std::string_view name) const;

  // "train.steps".
  std::string full_key() const { return section.empty() ? key : section + "." + key; }
  // "true or false", "a whole number, at least 1", ...: completes an error text and the help.
  std::string rule() const;
  // Whether a text is one of those allowed.
  bool allows(std::string_view text) const;
  // Checks the struct's value against the rule.
  // errors: ConfigError naming the key, its value and the rule.
  void check() const;
};

class KeyList;

// A key that holds a table with described keys of its own, or a list of such tables.
struct ConfigTable {
  std::string section{}, key{};  // its place
  std::string rule{};  // what it holds, "a list of tables, each with a title": completes an error text
  bool list = false;   // whether it holds several
  // Describes the keys of the table; of a list, those of its entry `index`, which it makes first.
  std::function<void(KeyList& keys, std::size_t index)> describe{};
  bool needed = false;      // whether a table without it is refused; a list then has an entry
  bool short_form = false;  // or_values

  ConfigTable& required();  // needed
  // An entry of the list may also be a single value: that of its first key that has this type.
  ConfigTable& or_values();
};

// The described keys of one or more structs, pointing into them: they must outlive this object.
class KeyList {
 public:
  // Begins a section: later keys belong to it.
  void section(const std::string& name);
  // Lists later keys before the key of that name; "": at the end again. Lists and helps have this order.
  void list_before(std::string name) { before_ = std::move(name); }
  // Later keys are read by these families, models or tasks, unless read_by says otherwise; "": by all.
  void usually_read_by(std::string names) { readers_ = std::move(names); }
  // With another value of later keys a run cannot go on, unless changes_results or changes_nothing say otherwise.
  void usually_fixed(bool fixed) { change_ = fixed ? KeyChange::refused : KeyChange::other_results; }
  // Describes a key of the section. The reference is valid until the next call.
  // errors: ConfigError for a key that the section has already.
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
  ConfigField& add(const char* key, std::vector<std::string>& target, const char* help,
                   std::vector<std::string> allowed = {}) {
    return add({.key = key, .help = help, .target = &target, .allowed = std::move(allowed)});
  }
  ConfigField& add(const char* key, std::map<std::string, ConfigField::Texts>& target, const char* help) {
    return add({.key = key, .help = help, .target = &target});
  }
  // Adds a key of the section with all that is known of it.
  ConfigField& add(ConfigField field);
  // Describes a key that holds a table, whose keys describe(keys, target) describes.
  template <class T>
  ConfigTable& add_table(const char* key, T& target, const char* rule) {
    return add_table({.key = key, .rule = rule, .describe = [&target](KeyList& keys, std::size_t) {
                        describe(keys, target);
                      }});
  }
  // The target has a value only where the key is given.
  template <class T>
  ConfigTable& add_table(const char* key, std::optional<T>& target, const char* rule) {
    return add_table({.key = key, .rule = rule, .describe = [&target](KeyList& keys, std::size_t) {
                        describe(keys, target.emplace());
                      }});
  }
  // The same of a list of tables.
  template <class T>
  ConfigTable& add_list(const char* key, std::vector<T>& target, const char* rule) {
    return add_table(
        {.key = key, .rule = rule, .list = true, .describe = [&target](KeyList& keys, std::size_t index) {
           target.resize(index);
           describe(keys, target.emplace_back());
         }});
  }
  // Keys of the section that another reader uses.
  void ignore(std::initializer_list<const char*> keys);

  // The keys, and those that hold tables, in the order of lists.
  const std::vector<ConfigField>& fields() const { return fields_; }
  const std::vector<ConfigTable>& tables() const { return tables_; }
  // Of each its section and its key.
  const std::vector<std::pair<std::string, std::string>>& ignored() const { return ignored_; }
  // The key of a section, or null.
  ConfigField* find(std::string_view section, std::string_view key);
  // What stands in one section.
  KeyList part(const std::string& section) const;
  const std::vector<std::string>& sections() const { return sections_; }

 private:
  ConfigTable& add_table(ConfigTable table);
  std::string last_section() const { return sections_.empty() ? "" : sections_.back(); }

  std::vector<std::string> sections_;
  std::vector<ConfigField> fields_;
  std::vector<ConfigTable> tables_;
  std::vector<std::pair<std::string, std::string>> ignored_;
  std::string before_, readers_;
  KeyChange change_ = KeyChange::other_results;
};

}  // namespace eddy
