// TOML by toml++, JSON by the strict reader. Only this file includes toml++. It is compiled here,
// header-only, rather than linked: some texts break an assertion inside its parser (3.3), which would end the
// process wherever assertions are on. Compiled here, a broken assertion throws and becomes an error about the
// file.
#include "train/config/config_file.h"

#include <stdexcept>

namespace {
struct TomlAssertion : std::runtime_error {
  using std::runtime_error::runtime_error;
};
[[noreturn]] void toml_assertion_broken(const char* condition) {
  throw TomlAssertion(condition);
}
}  // namespace

// With NDEBUG toml++ would turn its assertions into assumptions, and a broken one into undefined behaviour.
#pragma push_macro("NDEBUG")
#undef NDEBUG
#undef TOML_SHARED_LIB
#undef TOML_HEADER_ONLY
#define TOML_HEADER_ONLY 1
#define TOML_ASSERT(condition) ((condition) ? void() : toml_assertion_broken(#condition))
#include <toml++/toml.h>
#pragma pop_macro("NDEBUG")

#include <algorithm>

#include "tensor/base/format.h"
#include "tensor/files/input_file.h"
#include "tensor/files/strict_json.h"
#include "tensor/memory/readable_bytes.h"
#include "train/files/text_encoding.h"

namespace eddy::training {
namespace {

using nlohmann::json;

constexpr std::int64_t kMaxFileBytes = 1 << 20;
constexpr int kMaxDepth = 16;
// Each dot of a dotted TOML key opens a table inside a table, which toml++ frees by recursion: their number
// bounds the depth of the stack.
constexpr std::int64_t kMaxDots = 4096;

std::string place_of(const std::string& name, const toml::source_region& source) {
  return fmt::format("{}:{}:{}", name, source.begin.line, source.begin.column);
}

// Turns TOML nodes into JSON and notes where the sections and their keys stand.
class Converter {
 public:
  Converter(const std::string& name, std::map<std::string, std::string>& places)
      : name_(name), places_(places) {}

  json convert(const toml::node& node, const std::string& path, int depth) {
    if (depth > kMaxDepth)
      fail<ConfigError>("{}: nested deeper than {} tables", place_of(name_, node.source()), kMaxDepth);
    if (const toml::table* table = node.as_table()) {
      json object = json::object();
      for (const auto& [key, child] : *table) {
        const std::string full = depth == 0 ? std::string(key.str()) : path + "." + std::string(key.str());
        places_.emplace(full, place_of(name_, key.source()));
        object[std::string(key.str())] = convert(child, full, depth + 1);
      }
      return object;
    }
    if (const toml::array* array = node.as_array()) {
      json list = json::array();
      for (const toml::node& child : *array) {
        const std::string full = fmt::format("{}.{}", path, list.size());
        places_.emplace(full, place_of(name_, child.source()));
        list.push_back(convert(child, full, depth + 1));
      }
      return list;
    }
    if (const auto* text = node.as_string()) return text->get();
    if (const auto* integer = node.as_integer()) return integer->get();
    if (const auto* real = node.as_floating_point()) return real->get();
    if (const auto* flag = node.as_boolean()) return flag->get();
    fail<ConfigError>("{}: {} is a date or a time (a config has numbers, texts, true, false and lists)",
                      place_of(name_, node.source()), path);
  }

 private:
  const std::string& name_;
  std::map<std::string, std::string>& places_;
};

// Line and column, from 1, of a byte position that a parser counts from 1.
std::string place_in_text(const std::string& name, std::string_view text, std::int64_t position) {
  if (position < 0) return name;
  const std::string_view before = text.substr(
      0, std::min(text.size(), static_cast<std::size_t>(std::max<std::int64_t>(position - 1, 0))));
  const auto line = 1 + std::count(before.begin(), before.end(), '\n');
  const std::size_t start = before.rfind('\n');
  const std::size_t column = start == std::string_view::npos ? before.size() + 1 : before.size() - start;
  return fmt::format("{}:{}:{}", name, line, column);
}

// Refuses characters beyond ASCII where toml++ 3.3 asks whether they are white space: its answer for many of
// them (accented letters, Greek, Cyrillic, Hiragana) is undefined behaviour. It asks outside of strings and
// comments, where TOML itself allows none; behind a backslash in a """ string; and while it looks for the end
// of a value that is no string, which may hold quotes. So where a text has such characters, a quote begins a
// string: in the middle of a word it is refused.
// errors: ConfigError with line and column.
void refuse_odd_unicode(const std::string& name, std::string_view text) {
  const auto beyond_ascii = [&](std::size_t at) {
    return at < text.size() && static_cast<unsigned char>(text[at]) >= 0x80;
  };
  const auto refuse = [&](std::size_t at, const char* what) {
    fail<ConfigError>("{}: {}", place_in_text(name, text, static_cast<std::int64_t>(at) + 1), what);
  };
  std::size_t at = text.starts_with("\xef\xbb\xbf") ? 3 : 0;  // a byte order mark
  if (std::none_of(text.begin(), text.end(), [](char c) { return static_cast<unsigned char>(c) >= 0x80; }))
    return;
  bool word = false;   // inside a bare key or value
  bool value = false;  // behind the '=' of a line, its brackets included
  int depth = 0;
  while (at < text.size()) {
    const char c = text[at];
    if (beyond_ascii(at))
      refuse(
          at,
          "a character beyond ASCII outside of quotes and comments (put a text in quotes; keys have none)");
    if (c == '#') {
      at = std::min(text.find('\n', at), text.size());
      continue;
    }
    if (c != '"' && c != '\'') {
      const bool opens = c == '[' || c == '{', closes = c == ']' || c == '}';
      if (opens && !word) ++depth;
      if (closes) depth = std::max(depth - 1, 0);
      const bool ends_key = c == '=' && !value;
      if (c == '=') value = true;
      if (c == '\n' && depth == 0) value = false;
      const bool ends = closes || ends_key || c == ',' || c == ' ' || c == '\t' || c == '\r' || c == '\n';
      word = !ends && (word || !(opens || c == '='));
      ++at;
      continue;
    }
    if (word) refuse(at, "a quote in the middle of a word (put a blank before it)");
    const bool basic = c == '"', lines = text.substr(at, 3) == std::string(3, c);
    const std::string end(lines ? 3 : 1, c);
    at += end.size();
    while (at < text.size() && text.substr(at, end.size()) != end) {
      if (!lines && text[at] == '\n') break;  // not closed: the parser stops here
      const bool escape = basic && text[at] == '\\';
      at += escape ? 2 : 1;
      if (!escape || !lines) continue;
      const std::size_t behind = text.find_first_not_of(" \t\r\n", at - 1);
      if (behind != std::string_view::npos && beyond_ascii(behind))
        refuse(behind, "a character beyond ASCII behind a backslash (begin with another, or leave it out)");
    }
    at = std::min(at + end.size(), text.size());
    for (int more = 0; lines && more < 2 && at < text.size() && text[at] == c; ++more) ++at;
  }
}

}  // namespace

ConfigSource config_from_toml(std::string_view text, const std::string& name) {
  if (const auto dots = std::count(text.begin(), text.end(), '.'); dots > kMaxDots)
    fail<ConfigError>("{}: {} dots in the file (at most {}: dotted keys nest tables)", name, dots, kMaxDots);
  refuse_odd_unicode(name, text);
  ConfigSource source{name, {}, {}};
  try {
    const toml::table table = toml::parse(text, name);
    source.value = Converter(name, source.places).convert(table, "", 0);
  } catch (const toml::parse_error& error) {
    fail<ConfigError>("{}: {}", place_of(name, error.source()), error.description());
  } catch (const TomlAssertion&) {
    fail<ConfigError>("{}: the text is not TOML, at a place that the parser does not tell", name);
  }
  return source;
}

ConfigSource config_from_json(std::string_view text, const std::string& name) {
  constexpr JsonLimits kLimits{.depth = kMaxDepth, .values = 1'000'000};
  JsonResult result = parse_strict_json(text, kLimits);
  if (!result.ok()) fail<ConfigError>("{}: {}", place_in_text(name, text, result.position), result.problem);
  return {name, std::move(result.value), {}};
}

ConfigSource read_config_file(const std::string& path) {
  const InputFile file(path);
  if (file.bytes() > kMaxFileBytes)
    fail<ConfigError>("{}: the file is larger than {} (no configuration is)", path,
                      readable_bytes(kMaxFileBytes));
  const std::string text = decode_text(file.text(), path);
  if (path.ends_with(".toml")) return config_from_toml(text, path);
  if (path.ends_with(".json")) return config_from_json(text, path);
  fail<ConfigError>(
      "{}: the file's ending says neither .toml nor .json (a configuration; a text, or a folder of texts, is given "
      "by --data)",
      path);
}

}  // namespace eddy::training
