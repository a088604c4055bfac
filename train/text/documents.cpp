// Cutting at separators in place, and reading lines of JSON.
#include "train/text/documents.h"

#include <algorithm>
#include <cctype>
#include <nlohmann/json.hpp>
#include <utility>

#include "tensor/base/format.h"
#include "tensor/files/json_text.h"
#include "tensor/files/strict_json.h"
#include "train/words/human_text.h"

namespace eddy::training {
namespace {

using nlohmann::json;

// The separator of a key, in which "\n" and "\t" stand for a newline and a tab, as shells pass them on.
std::string unescaped(const std::string& key) {
  std::string text;
  for (std::size_t at = 0; at < key.size(); ++at) {
    const char next = key[at] == '\\' && at + 1 < key.size() ? key[at + 1] : '\0';
    const bool escaped = next == 'n' || next == 't';
    text += !escaped ? key[at] : next == 'n' ? '\n' : '\t';
    at += escaped ? 1 : 0;
  }
  return text;
}

bool is_blank(std::string_view text) {
  return std::all_of(text.begin(), text.end(),
                     [](char c) { return std::isspace(static_cast<unsigned char>(c)) != 0; });
}

// The line that begins at `at`, without its end.
std::string_view line_at(std::string_view text, std::size_t at) {
  return text.substr(at, std::min(text.find('\n', at), text.size()) - at);
}

// The object of a line; null for anything else.
json object_of(std::string_view line) {
  if (line.find('{') == std::string_view::npos) return nullptr;
  JsonResult read = parse_strict_json(line);
  return read.ok() && read.value.is_object() ? std::move(read.value) : json();
}

// The documents of texts that come one after another.
class Cutting {
 public:
  Cutting(std::string separator, bool end_lines, std::size_t bytes)
      : separator_(std::move(separator)), end_lines_(end_lines) {
    all_.text.reserve(bytes);
  }

  void add(std::string_view text) {
    for (std::size_t begin = 0; begin < text.size();) {
      const std::size_t at = separator_.empty() ? std::string_view::npos : text.find(separator_, begin);
      if (at == std::string_view::npos) return add_document(text.substr(begin));
      add_document(text.substr(begin, at - begin));
      const bool begins_line = at == 0 || text[at - 1] == '\n';
      begin = at + separator_.size();
      if (!begins_line) continue;
      const std::string_view rest = text.substr(begin);
      begin += rest.starts_with('\n') ? 1 : rest.starts_with("\r\n") ? 2 : 0;
    }
  }
  Documents take() { return std::move(all_); }

 private:
  void add_document(std::string_view text) {
    if (is_blank(text)) return;
    all_.text += text;
    if (end_lines_ && text.back() != '\n') all_.text += '\n';
    all_.ends.push_back(all_.text.size());
  }

  const std::string separator_;
  const bool end_lines_;
  Documents all_;
};

// Adds the text of each line of JSON.
void add_lines(Cutting& cutting, std::string_view text, const std::string& field, const std::string& file) {
  std::size_t number = 1;
  for (std::size_t at = 0; at < text.size(); ++number) {
    const std::string_view line = line_at(text, at);
    at += line.size() + 1;
    if (is_blank(line)) continue;
    const JsonResult read = parse_strict_json(line);
    const auto refuse = [&](const std::string& why) {
      fail<FormatError>("data: {}, line {}: {}", printable(file), number, why);
    };
    if (!read.ok()) refuse(fmt::format("no JSON: {} (every line is to be an object)", read.problem));
    const auto found = read.value.is_object() ? read.value.find(field) : read.value.end();
    if (found == read.value.end()) {
      std::string others;
      if (read.value.is_object())
        for (const auto& [key, value] : read.value.items())
          others += (others.empty() ? "" : ", ") + quote_text(key);
      refuse(fmt::format("there is no field {} (data.json_field; {})", quote_text(field),
                         others.empty() ? "the line is no object" : "there are " + others));
    }
    if (found->is_null()) continue;
    if (!found->is_string())
      refuse(fmt::format("the field {} holds no text (data.json_field names another)", quote_text(field)));
    cutting.add(found->get_ref<const std::string&>());
  }
}

}  // namespace

std::string_view Documents::operator[](std::size_t index) const {
  const std::size_t begin = index == 0 ? 0 : ends[index - 1];
  return std::string_view(text).substr(begin, ends[index] - begin);
}

CutRule cut_rule(const DataConfig& config) {
  if (value_is(config.document, DocumentUnit::folder)) return {};
  return {unescaped(config.separator), config.json_field};
}

Documents documents_in(std::string text, const CutRule& rule, const std::string& file, bool end_lines) {
  const bool lines = !rule.json_field.empty() && is_json_lines(text, file);
  const bool cut = !rule.separator.empty() && text.find(rule.separator) != std::string::npos;
  if (!lines && !cut) {
    Documents whole{std::move(text), {}};
    whole.ends.push_back(whole.text.size());
    return whole;
  }
  Cutting cutting(rule.separator, end_lines, text.size());
  if (lines)
    add_lines(cutting, text, rule.json_field, file);
  else
    cutting.add(text);
  return cutting.take();
}

Documents documents_of(const TextFile& file, const CutRule& rule, bool end_lines) {
  return documents_in(text_of(file), file.joined.empty() ? rule : CutRule{}, shown_path(file), end_lines);
}

bool is_json_lines(std::string_view text, std::string_view name) {
  if (name.ends_with(".jsonl") || name.ends_with(".ndjson")) return true;
  if (!text.starts_with('{')) return false;
  const std::string_view first = line_at(text, 0);
  if (!object_of(first).is_object()) return false;
  const std::string_view second = line_at(text, std::min(first.size() + 1, text.size()));
  return is_blank(second) || object_of(second).is_object();
}

std::string first_in_json_array(std::string_view text) {
  constexpr std::string_view kBlank = " \t\r\n";
  const auto next = [&](std::size_t from) {
    return std::min(text.find_first_not_of(kBlank, from), text.size());
  };
  const std::size_t open = next(0), begin = next(open + 1);
  if (begin >= text.size() || text[open] != '[' || text[begin] != '{') return "";
  std::size_t end = begin;
  int depth = 0;
  bool quoted = false;
  do {
    const char c = text[end];
    if (c == '"') quoted = !quoted;
    if (quoted && c == '\\') ++end;
    if (!quoted) depth += c == '{' ? 1 : c == '}' ? -1 : 0;
    ++end;
  } while (depth > 0 && end < text.size());
  const std::size_t after = next(end);
  if (after == text.size() || (text[after] != ',' && text[after] != ']')) return "";
  std::string object(text.substr(begin, end - begin));
  std::replace(object.begin(), object.end(), '\n', ' ');  // between its values: a string has none
  return object_of(object).is_object() ? object : "";
}

std::string markup_of(std::string_view text, std::string_view name) {
  constexpr std::size_t kLongest = 16;  // of the beginnings below
  std::string begin(text.substr(std::min(text.find_first_not_of(" \t\r\n"), text.size()), kLongest));
  std::transform(begin.begin(), begin.end(), begin.begin(),
                 [](char c) { return static_cast<char>(std::tolower(static_cast<unsigned char>(c))); });
  if (begin.starts_with("<!doctype html") || begin.starts_with("<html"))
    return "is a web page and is read with its tags (pandoc -t plain makes a text of it)";
  if (begin.starts_with("<?xml")) return "is XML and is read with its tags (write its texts out first)";
  const std::string fields = " (write its texts out first, as lines of JSON, which --data.json_field reads)";
  const bool is_list =
      begin.starts_with('[') && first_in_json_array(text).empty();  // of other things than objects
  if ((name.ends_with(".json") || name.ends_with(".ipynb")) && (begin.starts_with('{') || is_list))
    return "is JSON and is read as it stands, with its braces and keys" + fields;
  if (name.ends_with(".csv") || name.ends_with(".tsv"))
    return "is a table and is read as it stands, with all its columns" + fields;
  if (const auto zeros = std::count(text.begin(), text.end(), '\0'); zeros > 0)
    return fmt::format(
        "holds {} {} of zero, as binary files do, and is read with them (check that it is a text)",
        grouped(zeros), plural(zeros, "byte"));
  return "";
}

std::string likely_text_field(std::string_view text) {
  const json object = object_of(line_at(text, 0));
  if (!object.is_object()) return "";
  std::string likely;
  std::size_t longest = 0;
  for (const auto& [key, value] : object.items()) {
    if (!value.is_string()) continue;
    if (key == "text" || key == "content") return key;
    if (const std::size_t length = value.get_ref<const std::string&>().size(); length > longest) {
      longest = length;
      likely = key;
    }
  }
  return likely;
}

}  // namespace eddy::training
