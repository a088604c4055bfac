// The form of the comments and texts in the sources: tags of docstrings begin a line, formulas stand on lines
// of their own, and no line is the remainder of another that a formatter broke. Comments have 120 columns: prose may
// be reflowed to them, formulas, tables and lists keep their lines.
#include <doctest/doctest.h>

#include <algorithm>
#include <cctype>
#include <iterator>
#include <regex>
#include <sstream>
#include <string>
#include <vector>

#include "tests/tree/source_tree.h"

namespace {

using namespace eddy::test;

// ---- rules

// The most columns of a line of a comment. clang-format does not hold comments to its own limit.
constexpr std::size_t kCommentColumns = 120;
// The folders whose comments keep it.

// What stands behind the // of a line, with its blanks; "" where there is no comment.
std::string comment_of(const std::string& line) {
  char quote = 0;
  for (std::size_t i = 0; i + 1 < line.size(); ++i) {
    if (quote != 0) {
      if (line[i] == '\\')
        ++i;
      else if (line[i] == quote)
        quote = 0;
    } else if (line[i] == '"' ||
               (line[i] == '\'' && (i == 0 || std::isalnum(static_cast<unsigned char>(line[i - 1])) == 0))) {
      quote = line[i];
    } else if (line[i] == '/' && line[i + 1] == '/') {
      return line.substr(i + 2);
    }
  }
  return "";
}

// Whether a tag of docstrings, or a list of them, stands behind the end of a sentence in the same line.
bool has_tag_inside(const std::string& comment) {
  if (comment.find(':') == std::string::npos) return false;
  static const std::regex pattern(
      R"([.;:)\]]\s+(shapes|dtypes|units|aliasing|errors|grad|source)((,| and) (shapes|dtypes|units|aliasing|errors|grad|source))*:(\s|$))");
  return std::regex_search(comment, pattern);
}

// Whether two equations stand side by side with nothing between them: three or more = that no comma,
// semicolon, colon, end of a sentence, "and", "with" or column of a table sets apart. What stands in brackets
// does not count, and a chain a = b = c has two.
bool has_glued_equations(const std::string& comment) {
  if (std::count(comment.begin(), comment.end(), '=') < 3) return false;
  static const std::regex pattern(R"(( *)([^ ]+))");  // a word and the blanks before it
  int depth = 0, equations = 0;
  for (std::sregex_iterator match(comment.begin(), comment.end(), pattern), end; match != end; ++match) {
    const std::string word = (*match)[2].str();
    if (word == "and" || word == "with" || ((*match)[1].length() >= 3 && word != "=")) equations = 0;
    if (depth == 0 && word == "=" && ++equations == 3) return true;
    for (const char c : word) {
      if (std::string("([{").find(c) != std::string::npos) ++depth;
      if (std::string(")]}").find(c) != std::string::npos) depth = std::max(0, depth - 1);
    }
    if (depth == 0 && std::string(",;:.").find(word.back()) != std::string::npos) equations = 0;
  }
  return false;
}

// Whether a line of prose, one blank behind its //, has two or more blanks between words.
bool has_gap(const std::string& comment) {
  if (comment.size() < 2 || comment[0] != ' ' || comment[1] == ' ') return false;
  const std::size_t end = comment.find_last_not_of(' ');
  return comment.substr(1, end).find("  ") != std::string::npos;
}

// Whether `line` is what was left of the line before when a formatter broke it: one or two words amid a
// paragraph, the first of which found no room in the line before.
bool is_remainder(const std::string& before, const std::string& line, const std::string& after) {
  const std::size_t indent = line.find_first_not_of(' ');
  const auto is_prose = [&](const std::string& text) {
    return text.size() > indent + 3 && text.find("// ") == indent && text[indent + 3] != ' ';
  };
  if (indent == std::string::npos || !is_prose(before) || !is_prose(line) || !is_prose(after) ||
      after.find_first_not_of(' ') != indent)
    return false;
  std::istringstream stream(line.substr(indent + 3));
  const std::vector<std::string> words{std::istream_iterator<std::string>(stream), {}};
  if (words.size() > 2 || std::string(".:;").find(words.back().back()) != std::string::npos) return false;
  return before.size() + 1 + words.front().size() > kCommentColumns;
}

// What the string literal at the end of a line holds; "" when there is none.
std::string literal_at_end(const std::string& line) {
  if (line.empty() || line.back() != '"' || !comment_of(line).empty()) return "";
  std::size_t begin = std::string::npos;
  bool open = false;
  for (std::size_t i = 0; i < line.size(); ++i) {
    if (open && line[i] == '\\') {
      ++i;
    } else if (line[i] == '"') {
      open = !open;
      if (open) begin = i + 1;
    }
  }
  return open || begin == std::string::npos ? "" : line.substr(begin, line.size() - 1 - begin);
}

// What the string literal at the beginning of a line holds; "" when there is none.
std::string literal_at_begin(const std::string& line) {
  const std::size_t begin = line.find_first_not_of(' ');
  if (begin == std::string::npos || line[begin] != '"') return "";
  for (std::size_t i = begin + 1; i < line.size(); ++i) {
    if (line[i] == '\\')
      ++i;
    else if (line[i] == '"')
      return line.substr(begin + 1, i - begin - 1);
  }
  return "";
}

// Whether a piece of a text is one word of less than 40 letters. One that ends a line of the text may be.
bool is_lone_word(const std::string& piece) {
  const std::size_t first = piece.find_first_not_of(' '), last = piece.find_last_not_of(' ');
  if (first == std::string::npos || piece.ends_with("\\n")) return false;
  const std::string word = piece.substr(first, last - first + 1);
  return word.find(' ') == std::string::npos && word.size() < 40 &&
         std::any_of(word.begin(), word.end(), [](unsigned char c) { return std::isalnum(c) != 0; });
}

// Whether two lines hold pieces of one text, of which one is a lone word.
bool has_lone_word(const std::string& line, const std::string& after) {
  const std::string left = literal_at_end(line), right = literal_at_begin(after);
  return !left.empty() && !right.empty() && !left.ends_with("\\n") &&
         (is_lone_word(left) || is_lone_word(right));
}

// Whether a line with a comment has too many columns.
bool is_too_long(const std::string& line) {
  return line.size() > kCommentColumns && !comment_of(line).empty();
}

// What is wrong with a file, a line for each: "12: what: the line".
std::vector<std::string> faults_of(const std::vector<std::string>& lines) {
  std::vector<std::string> faults;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    const auto add = [&](const char* what) {
      faults.push_back(std::to_string(i + 1) + ": " + what + ": " + lines[i]);
    };
    const std::string comment = comment_of(lines[i]);
    if (has_tag_inside(comment)) add("a tag does not begin its line");
    if (has_glued_equations(comment)) add("equations without anything between them");
    if (has_gap(comment)) add("a gap between words");
    if (i > 0 && i + 1 < lines.size() && is_remainder(lines[i - 1], lines[i], lines[i + 1]))
      add("the remainder of the line before");
    if (i + 1 < lines.size() && has_lone_word(lines[i], lines[i + 1]))
      add("a text is cut behind or before a single word");
  }
  return faults;
}

}  // namespace

TEST_CASE("comments: a comment begins behind two slashes that stand in no literal") {
  CHECK(comment_of("int x;  // why") == " why");
  CHECK(comment_of("// all of it") == " all of it");
  CHECK(comment_of(R"(text = "https://example.org";)") == "");
  CHECK(comment_of(R"(text = "\"//";  // seen)") == " seen");
  CHECK(comment_of("c = '\"';  // seen") == " seen");
  CHECK(comment_of("n = 1'000;  // seen") == " seen");
  CHECK(comment_of("a / b") == "");
}

TEST_CASE("comments: a tag behind a sentence is found and a tag in front is not") {
  CHECK(has_tag_inside(" The chain over all steps. shapes: x [time, batch, D]"));
  CHECK(has_tag_inside(" dtypes: f32, f64. grad: x, qkv and all weights; the carried"));
  CHECK(has_tag_inside(" as x [..., width]; dtypes, errors: as unit_norm"));
  CHECK(has_tag_inside(" 0 where the target is `ignore`. shapes and errors: as"));
  CHECK(!has_tag_inside(" shapes: x [time, batch, D]"));
  CHECK(!has_tag_inside(" dtypes, errors: as attention"));
  CHECK(!has_tag_inside(" A time in its two largest units: 3m 20s"));
  CHECK(!has_tag_inside(" Ends in an error. The source: a paper"));
}

TEST_CASE("comments: equations without anything between them are found and lists and chains are not") {
  CHECK(has_glued_equations(
      "   0 o   = vx + g (vh - vx) r_t = x_t + o Wo^T h_t = r_t + act(LN2(r_t) Wup^T) Wdown^T kh, vh = LN1(h_t)"));
  CHECK(has_glued_equations(" a = b c = d e = f"));
  CHECK(!has_glued_equations(" a = b, c = d, e = f"));
  CHECK(!has_glued_equations(" a = b; c = d; e = f"));
  CHECK(
      !has_glued_equations(" dx = rstd (g - n mean(g n)) with g = dy weight and n = x rstd. dx may be dy."));
  CHECK(!has_glued_equations("   B_0 = x_0     A_t = p/2 + h_{t-1}     B_t = p/2 + x_t     A_n = h_{n-1}"));
  CHECK(!has_glued_equations("   a     = b = c"));
  CHECK(!has_glued_equations(" every x (a = 1 b = 2 c = 3) of it"));
  CHECK(
      !has_glued_equations(" di = dc' g i (1 - i), df = dc' c f (1 - f), dg = dc' i (1 - g^2), dc = dc' f."));
  CHECK(!has_glued_equations(" ====== a headline ======"));
}

TEST_CASE("comments: a gap is found in prose and not in tables") {
  CHECK(has_gap(" Wk^T, LN1(h_t) Wv^T          read by step t + 1"));
  CHECK(!has_gap("   rows     read by step t + 1"));
  CHECK(!has_gap(" Plain prose. It goes on."));
  CHECK(!has_gap(" blanks at the end  "));
  CHECK(!has_gap(""));
}

TEST_CASE("comments: the remainder of a broken line is found and a short line by choice is not") {
  const std::string full = "  // " + std::string(110, 'x'), next = "  // and goes on for a while";
  CHECK(is_remainder(full, "  // remainder of", next));
  CHECK(!is_remainder(full, "  // a sentence.", next));
  CHECK(!is_remainder(full, "  // three words here", next));
  CHECK(!is_remainder("  // short", "  // remainder", next));
  CHECK(!is_remainder(full, "  // remainder", "  int x;"));
  CHECK(!is_remainder("x // " + std::string(104, 'x'), "  // remainder", "y // the next one"));
  CHECK(!is_remainder(full, "// remainder", next));
  CHECK(!is_remainder(full, "  //   y = x", "  //   z = y"));
  CHECK(!is_remainder("", "", ""));
}

TEST_CASE("comments: a line with a comment beyond the limit is found and a long text is not") {
  CHECK(is_too_long("// " + std::string(118, 'x')));
  CHECK(is_too_long("int x;  // " + std::string(110, 'x')));
  CHECK(!is_too_long("// " + std::string(117, 'x')));
  CHECK(!is_too_long("text = \"" + std::string(120, 'x') + "\";"));
}

TEST_CASE("comments: a text that is cut at a single word is found") {
  CHECK(has_lone_word(R"(  fail("a line of many words and ")", R"(       "one");)"));
  CHECK(has_lone_word(R"(       "one ")", R"(       "and many others after it");)"));
  CHECK(!has_lone_word(R"(  fail("a line of many words and ")", R"(       "two words");)"));
  CHECK(!has_lone_word(R"(  help("a line\n")", R"(       "another\n")"));
  CHECK(!has_lone_word(R"(  list = {"one",)", R"(       "two"};)"));
  CHECK(!has_lone_word(R"(  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 ")",
                       R"(      "{%0, %1}");)"));
  CHECK(!has_lone_word("#include \"a.h\"", "#include \"b.h\""));
}

TEST_CASE("comments: the headers and sources of the tree keep the rules") {
  const std::vector<std::string> files =
      sources_below({"tensor", "autograd", "ops", "cuda", "models", "train", "examples"});
  CHECK(files.size() > 300);
  for (const std::string& file : files)
    for (const std::string& fault : faults_of(lines_of(file))) FAIL_CHECK(file << ":" << fault);
}

TEST_CASE("comments: they have at most 120 columns") {
  for (const std::string& file :
       sources_below({"tensor", "autograd", "ops", "cuda", "models", "train", "examples", "tests"})) {
    const std::vector<std::string> lines = lines_of(file);
    for (std::size_t i = 0; i < lines.size(); ++i)
      CHECK_MESSAGE(!is_too_long(lines[i]), file << ":" << i + 1 << ": " << lines[i].size()
                                                 << " columns (120 at most): " << lines[i]);
  }
}

TEST_CASE("comments: the settings of clang-format leave comments and string literals as they are") {
  const std::vector<std::string> settings = lines_of(".clang-format");
  for (const char* setting : {"ReflowComments: false", "BreakStringLiterals: false"})
    CHECK_MESSAGE(std::count(settings.begin(), settings.end(), setting) == 1, setting);
}
