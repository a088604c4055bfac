// docs/formats.md beside the code: each row names a file and its version as the source has them that defines both, and
// the page has all of those that the code has.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <regex>
#include <set>
#include <string>
#include <vector>

#include "tests/tree/source_tree.h"

namespace {

using namespace eddy::test;
using Texts = std::vector<std::string>;

const std::string kPage = "docs/formats.md";

// What stands between backticks in a cell.
Texts quoted_in(const std::string& cell) {
  static const std::regex quoted("`([^`]+)`");
  Texts found;
  for (std::sregex_iterator match(cell.begin(), cell.end(), quoted), end; match != end; ++match)
    found.push_back((*match)[1].str());
  return found;
}

struct FormatRow {
  std::string name;     // of the file, without folders, as the code has it; empty: any
  std::string version;  // as the code has it, "1" or "\"eddy dump 1\""; empty: none of its own
  Texts sources;
};

// The name of a file as the code has it: "pieces-{}.model" of "text/pieces-*.model".
// Of one that ends in any text, what it begins with.
std::string name_in_code(const std::string& path) {
  std::string name = path.substr(path.rfind('/') + 1);
  const std::size_t star = name.find('*');
  if (star == std::string::npos) return name;
  return star + 1 == name.size() ? name.substr(0, star) : name.replace(star, 1, "{}");
}

// The rows of the page's tables.
std::vector<FormatRow> rows_of_page() {
  static const std::regex number("[0-9]+"), text("eddy [a-z]+ [0-9]+");
  std::vector<FormatRow> rows;
  for (const std::string& line : lines_of(kPage)) {
    if (!line.starts_with("| ") || line.find(" --- ") != std::string::npos) continue;
    Texts cells;
    for (std::size_t at = 1; at < line.size();) {
      const std::size_t end = line.find('|', at);
      cells.push_back(line.substr(at, end - at));
      at = end == std::string::npos ? line.size() : end + 1;
    }
    CHECK_MESSAGE(cells.size() == 5, line);
    if (cells.size() != 5 || cells[3] == " defined in ") continue;
    FormatRow row{"", "", quoted_in(cells[3])};
    if (const Texts names = quoted_in(cells[0]); !names.empty()) row.name = name_in_code(names[0]);
    if (const Texts versions = quoted_in(cells[2]); versions.size() == 1) {
      if (std::regex_match(versions[0], number)) row.version = versions[0];
      if (std::regex_match(versions[0], text)) row.version = '"' + versions[0] + '"';
    }
    rows.push_back(row);
  }
  return rows;
}

// The versions that a source defines: the values of its constants whose names end in Format.
std::set<std::string> versions_in(const std::string& source) {
  static const std::regex constant("constexpr [a-z_ ]+\\*? ?k\\w*Format = ([^;]+);");
  std::set<std::string> found;
  for (const std::string& line : lines_of(source)) {
    std::smatch match;
    if (std::regex_search(line, match, constant)) found.insert(match[1].str());
  }
  return found;
}

// Whether a source has this text as a string, or as the beginning of one; of "pieces-{}.documents" ".documents" does
// too, which replaces the ending of another.
bool has_text(const std::string& source, const std::string& name) {
  const std::size_t dot = name.find("{}.");
  const std::string ending = dot == std::string::npos ? name : name.substr(dot + 2) + '"';
  const Texts lines = lines_of(source);
  return std::any_of(lines.begin(), lines.end(), [&](const std::string& line) {
    return line.find('"' + name) != std::string::npos || line.find('"' + ending) != std::string::npos;
  });
}

}  // namespace

TEST_CASE("formats: the sources that the page names have each file and its version") {
  const std::vector<FormatRow> rows = rows_of_page();
  CHECK(rows.size() > 30);
  for (const FormatRow& row : rows) {
    CAPTURE(row.name);
    CAPTURE(row.version);
    REQUIRE(!row.sources.empty());
    CHECK((row.name.empty() ||
           std::any_of(row.sources.begin(), row.sources.end(),
                       [&](const std::string& source) { return has_text(source, row.name); })));
    for (const std::string& source : row.sources) {
      const std::set<std::string> versions = versions_in(source);
      CHECK_MESSAGE((row.version.empty() || versions.contains(row.version)),
                    source << " has another version");
    }
  }
}

TEST_CASE("formats: the page has each version that a source defines") {
  const std::vector<FormatRow> rows = rows_of_page();
  int versions = 0;
  for (const std::string& source : sources_below({"tensor", "autograd", "models", "train"}))
    for (const std::string& version : versions_in(source)) {
      ++versions;
      CHECK_MESSAGE(std::any_of(rows.begin(), rows.end(),
                                [&](const FormatRow& row) {
                                  return row.version == version && row.sources == Texts{source};
                                }),
                    kPage << " lacks the version " << version << " of " << source);
    }
  CHECK(versions >= 7);
}

TEST_CASE("formats: the page has each file that the sources of runs, tables and dumps name") {
  static const std::regex file(R"re("([a-z_]+[a-z_{}-]*\.(json|jsonl|safetensors|html|txt|model|log))")re");
  std::set<std::string> known;
  for (const FormatRow& row : rows_of_page()) known.insert(row.name);
  Texts sources =
      sources_below({"train/run", "train/record", "train/loops", "train/generate", "train/app/reproduce"});
  std::erase_if(sources, [](const std::string& source) { return !source.ends_with(".cpp"); });
  sources.insert(sources.end(), {"train/files/standard_input.h", "train/app/exchange/dump.cpp"});
  std::set<std::string> seen;
  for (const std::string& source : sources)
    for (const std::string& line : lines_of(source)) {
      const std::string code = line.substr(0, line.find("//"));
      for (std::sregex_iterator match(code.begin(), code.end(), file), end; match != end; ++match) {
        const std::string name = (*match)[1].str();
        seen.insert(name);
        CHECK_MESSAGE(known.contains(name), kPage << " lacks " << name << " of " << source);
      }
    }
  CHECK(seen.size() > 12);
}

TEST_CASE("formats: the page has each file of an export where it tells of exports") {
  const std::string source = "train/app/exchange/export.cpp";
  static const std::regex file(R"re("([a-z_]+\.(json|safetensors|model|py|gguf))")re");
  const Texts page = lines_of(kPage);
  std::set<std::string> seen;
  for (const std::string& line : lines_of(source))
    for (std::sregex_iterator match(line.begin(), line.end(), file), end; match != end; ++match)
      seen.insert((*match)[1].str());
  CHECK(seen.size() >= 7);
  for (const std::string& name : seen)
    CHECK_MESSAGE(std::any_of(page.begin(), page.end(),
                              [&](const std::string& line) {
                                return line.find('`' + name + '`') != std::string::npos &&
                                       line.find("export") != std::string::npos;
                              }),
                  kPage << " lacks " << name << " of " << source);
}
