// The tour keeps its promise: what a chapter names to read is there, by name, and is at most 500 lines. A row of its
// table has a file and what to read of it:
//
//   `autograd/tape.cpp` | `run_node`, `run_backward`       functions, classes, macros: from their comment to their end
//   `autograd/gradcheck.h` | the first comment             the comment at the top
//   `autograd/README.md` | "One picture"                   a section of a page
//   `examples/02_tensor.cpp` | all of it                   the file
#include <doctest/doctest.h>

#include <algorithm>
#include <cctype>
#include <cstdint>
#include <filesystem>
#include <regex>
#include <set>
#include <string>
#include <vector>

#include "tests/tree/source_tree.h"

namespace {

using namespace eddy::test;
using TextLines = std::vector<std::string>;

constexpr std::int64_t kMostLines = 500;  // about half an hour

bool in_identifier(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_';
}

bool is_comment(const std::string& line) {
  const std::size_t begin = line.find_first_not_of(' ');
  return begin != std::string::npos && line.compare(begin, 2, "//") == 0;
}

// Whether a line begins the definition or the declaration of a name: "Tensor softmax(const Tensor& x" of `softmax`, but
// no call of it. Names may have the class in front: "UnitForget::run_fast".
bool begins_definition(const std::string& line, const std::string& name) {
  static const std::set<std::string> kinds{"struct", "class", "enum", "namespace", "#define"};
  static const std::set<std::string> others{"return", "else", "throw", "using", "case", "if", "for", "while"};
  static const std::string type_signs = "_:<>,&*[] ~";
  if (is_comment(line)) return false;
  for (std::size_t at = line.find(name); at != std::string::npos; at = line.find(name, at + 1)) {
    const std::size_t end = at + name.size();
    if (at == 0 || in_identifier(line[at - 1]) || (end < line.size() && in_identifier(line[end]))) continue;
    const std::string before = line.substr(0, at), after = line.substr(end);
    const std::size_t indent = before.find_first_not_of(' ');
    if (indent == std::string::npos || indent > 2) continue;  // a statement of a function
    const std::string first = before.substr(indent, before.find(' ', indent) - indent);
    if (kinds.contains(first)) {
      if (before.find('(') == std::string::npos) return true;
      continue;  // a parameter of a macro
    }
    const bool is_type = std::all_of(before.begin(), before.end(), [](char c) {
      return in_identifier(c) || type_signs.find(c) != std::string::npos;
    });
    if (others.contains(first) || !is_type || std::string(" &*:").find(before.back()) == std::string::npos)
      continue;
    if (after.starts_with("(") || after.starts_with(" =") || after.starts_with("{")) return true;
  }
  return false;
}

// The lines of what begins at a line, with the comment above it; `has_body` says whether there are braces.
std::int64_t lines_from(const TextLines& file, std::size_t begin, bool& has_body) {
  const bool macro = file[begin].starts_with("#define");
  int depth = 0;
  std::size_t end = begin;
  has_body = macro;
  for (; end + 1 < file.size(); ++end) {
    if (macro) {
      if (!file[end].ends_with("\\")) break;
      continue;
    }
    std::string code = file[end].substr(0, file[end].find("//"));
    while (code.ends_with(" ")) code.pop_back();
    depth += static_cast<int>(std::count(code.begin(), code.end(), '{') -
                              std::count(code.begin(), code.end(), '}'));
    has_body = has_body || code.find('{') != std::string::npos;
    if (has_body ? depth <= 0 : code.ends_with(";")) break;
  }
  while (begin > 0 && (is_comment(file[begin - 1]) || file[begin - 1].starts_with("template"))) --begin;
  return static_cast<std::int64_t>(end - begin) + 1;
}

// The lines of a name: of its first definition, or, where the file has none, of its first declaration; 0: not there.
std::int64_t lines_of_name(const TextLines& file, const std::string& name) {
  std::int64_t declared = 0;
  for (std::size_t i = 0; i < file.size(); ++i) {
    if (!begins_definition(file[i], name)) continue;
    bool has_body = false;
    const std::int64_t lines = lines_from(file, i, has_body);
    if (has_body) return lines;
    if (declared == 0) declared = lines;
  }
  return declared;
}

std::int64_t first_comment(const TextLines& file) {
  return std::find_if_not(file.begin(), file.end(), is_comment) - file.begin();
}

// The lines of a section of a page.
std::int64_t lines_of_section(const TextLines& page, const std::string& heading) {
  const auto begin = std::find_if(page.begin(), page.end(), [&](const std::string& line) {
    return line.starts_with("#") && line.substr(line.find_first_not_of("# ")) == heading;
  });
  if (begin == page.end()) return 0;
  return std::find_if(begin + 1, page.end(), [](const std::string& line) { return line.starts_with("#"); }) -
         begin;
}

// The lines that a row names. Names that are not in the file are added to `missing`; words with a / are commands.
std::int64_t lines_named(const TextLines& file, const std::string& what, TextLines& missing) {
  std::int64_t sum = 0;
  const auto add = [&](std::int64_t lines, const std::string& name) {
    if (lines == 0) missing.push_back(name);
    sum += lines;
  };
  if (what.find("all of it") != std::string::npos) add(std::ssize(file), "all of it");
  if (what.find("the first comment") != std::string::npos) add(first_comment(file), "the first comment");
  static const std::regex word("`([^`]+)`|\"([^\"]+)\"");
  for (std::sregex_iterator match(what.begin(), what.end(), word), end; match != end; ++match) {
    const std::string name = (*match)[1].str(), heading = (*match)[2].str();
    if (!heading.empty()) add(lines_of_section(file, heading), heading);
    if (!name.empty() && name.find('/') == std::string::npos) add(lines_of_name(file, name), name);
  }
  if (sum == 0 && missing.empty()) missing.push_back("what to read");
  return sum;
}

// The chapters: the pages of the tour whose names begin with a number.
TextLines chapters() {
  TextLines found;
  for (const auto& entry : std::filesystem::directory_iterator(in_tree("docs/tour")))
    if (const std::string name = entry.path().filename().string();
        name.ends_with(".md") && std::isdigit(static_cast<unsigned char>(name[0])) != 0)
      found.push_back("docs/tour/" + name);
  std::sort(found.begin(), found.end());
  return found;
}

}  // namespace

TEST_CASE(
    "tour: a chapter names at most 500 lines, each name is in its file, and the chapter says where to stop") {
  static const std::regex row(R"(\| `([^`]+)` \| (.*) \| .* \|)");
  CHECK(chapters().size() == 10);
  for (const std::string& chapter : chapters()) {
    std::int64_t lines = 0;
    int rows = 0, stops = 0;
    for (const std::string& line : lines_of(chapter)) {
      stops += line.starts_with("**Stop here.**") ? 1 : 0;
      std::smatch match;
      if (!std::regex_match(line, match, row)) continue;
      ++rows;
      const std::string file = match[1].str();
      CHECK_MESSAGE(std::filesystem::is_regular_file(in_tree(file)), chapter << " names " << file);
      TextLines missing;
      lines += lines_named(lines_of(file), match[2].str(), missing);
      for (const std::string& name : missing)
        CHECK_MESSAGE(false, chapter << ": " << name << " is not in " << file);
    }
    CHECK_MESSAGE(lines <= kMostLines, chapter << " names " << lines << " lines (" << kMostLines
                                               << " at most: name functions, or fewer of them)");
    CHECK_MESSAGE(rows >= 4, chapter);
    CHECK_MESSAGE(stops == 1, chapter << " says \"Stop here\" " << stops << " times");
  }
}

TEST_CASE("tour: the example of gradients by hand sends its reader to the file that has the node of linear") {
  static const std::regex sends(R"(.* ([\w/]+\.cpp) for the node of `linear`.*)");
  int sent = 0;
  for (const std::string& line : lines_of("examples/03_autograd_by_hand.cpp")) {
    std::smatch match;
    if (!std::regex_match(line, match, sends)) continue;
    ++sent;
    const TextLines file = lines_of(match[1].str());
    CHECK_MESSAGE(std::any_of(file.begin(), file.end(),
                              [](const std::string& there) {
                                return there.find("record(\"linear\"") != std::string::npos;
                              }),
                  match[1].str());
  }
  CHECK(sent == 1);
}

TEST_CASE(
    "tour: lines are counted from a comment to the end of what it is about, and calls are no definitions") {
  const TextLines file{"// what the file is for,",
                       "// in two lines",
                       "",
                       "int twice(int x);",
                       "// doubles",
                       "template <class T>",
                       "T twice(T x) {",
                       "  if (x) {",
                       "    return x + x;  // }",
                       "  }",
                       "}",
                       "int Model::operator()(int x) { return twice(x); }",
                       "struct Pair {",
                       "  int a = twice(1);",
                       "};",
                       "#define EACH(ROW) \\",
                       "  ROW(a)           \\",
                       "  ROW(b)",
                       "void declared(",
                       "    int x);"};
  CHECK(lines_of_name(file, "twice") == 7);
  CHECK(lines_of_name(file, "Model::operator()") == 1);
  CHECK(lines_of_name(file, "Pair") == 3);
  CHECK(lines_of_name(file, "EACH") == 3);
  CHECK(lines_of_name(file, "declared") == 2);
  CHECK(lines_of_name(file, "wice") == 0);
  CHECK(lines_of_name(file, "ROW") == 0);
  CHECK(first_comment(file) == 2);
  TextLines missing;
  CHECK(lines_named(file, "`twice`, `gone`; then `build/it`", missing) == 7);
  CHECK(missing == TextLines{"gone"});
  missing.clear();
  CHECK(lines_named({"# A", "text", "## One", "a", "b", "## Two"}, "\"One\"", missing) == 3);
  CHECK(lines_named(file, "look around", missing) == 0);
  CHECK(missing == TextLines{"what to read"});
}
