// TOML by toml++, JSON by the strict reader. Only this file includes toml++. It is compiled here,
// header-only, rather than linked: some texts break an assertion inside its parser (3.3), which would end the
// process wherever assertions are on. Compiled here, a broken assertion throws and becomes an error about the
// file.
#include "train/config/config_file.h"

#include <nlohmann/json.hpp>
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
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "tensor/base/format.h"
#include "tensor/files/strict_json.h"

namespace eddy {
namespace {

using nlohmann::json;

constexpr std::size_t kMaxFileBytes = 1 << 20;
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
        if (depth < 2) places_.emplace(full, place_of(name_, key.source()));
        object[std::string(key.str())] = convert(child, full, depth + 1);
      }
      return object;
    }
    if (const toml::array* array = node.as_array()) {
      json list = json::array();
      for (const toml::node& child : *array) list.push_back(convert(child, path, depth + 1));
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

std::string read_whole(const std::string& path) {
  std::error_code unknown;
  if (std::filesystem::is_directory(path, unknown)) fail<IoError>("config: {} is a folder", path);
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  if (!file) fail<IoError>("config: cannot open {}: {}", path, std::strerror(errno));
  std::string text(kMaxFileBytes + 1, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (file.bad()) fail<IoError>("config: cannot read {}", path);
  text.resize(static_cast<std::size_t>(file.gcount()));
  if (text.size() > kMaxFileBytes)
    fail<ConfigError>("{}: the file is larger than {} bytes", path, kMaxFileBytes);
  return text;
}

}  // namespace

ConfigSource config_from_toml(std::string_view text, const std::string& name) {
  if (const auto dots = std::count(text.begin(), text.end(), '.'); dots > kMaxDots)
    fail<ConfigError>("{}: {} dots in the file (at most {}: dotted keys nest tables)", name, dots, kMaxDots);
  ConfigSource source{name, {}, {}};
  try {
    const toml::table table = toml::parse(text, name);
    source.value = Converter(name, source.places).convert(table, "", 0);
  } catch (const toml::parse_error& error) {
    fail<ConfigError>("{}: {}", place_of(name, error.source()), error.description());
  } catch (const TomlAssertion& error) {
    fail<ConfigError>("{}: the text is not TOML (the parser gave up at: {})", name, error.what());
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
  const std::string text = read_whole(path);
  if (path.ends_with(".toml")) return config_from_toml(text, path);
  if (path.ends_with(".json")) return config_from_json(text, path);
  fail<ConfigError>("{}: the file's ending says neither .toml nor .json", path);
}

}  // namespace eddy
