// The writers of a table.
#include "train/app/views/table.h"

#include <doctest/doctest.h>

#include "tensor/base/error.h"
#include "tests/support/errors.h"
#include "tests/support/files.h"

using namespace eddy;
using namespace eddy::app;
using namespace eddy::test;

TEST_CASE("table: columns of text stand to the left and cells are safe for a terminal") {
  CHECK(to_text(Table{{"a", "long head"}, {{"\xc3\xa9\x1b", "x\ny"}, {"four", ""}}}) ==
        "a     long head\n\xc3\xa9\xef\xbf\xbd    x y\nfour\n");
}

TEST_CASE("table: numbers stand to the right behind a first column of names") {
  CHECK(to_text(Table{{"op", "ms"}, {{"matmul", "1.25"}, {"add", "10"}}, "lr"}) ==
        "op        ms\nmatmul  1.25\nadd       10\n");
}

TEST_CASE("table: each column stands as its letter says, and the last letter holds for the rest") {
  CHECK(to_text(Table{{"n", "of", "a", "b"}, {{"aa", "x", "10", "1"}}, "llr"}, 2) ==
        "  n   of   a  b\n  aa  x   10  1\n");
  CHECK(to_text(Table{{"id", "text"}, {{"7", "a"}, {"10", "b"}}, "rl"}) == "id  text\n 7  a\n10  b\n");
  for (const char* align : {"", "lc"})
    CHECK(contains(error_of<ValueError>([&] { to_text(Table{{}, {{"a", "b"}}, align}); }), "l or r"));
}

TEST_CASE("table: its lines come one by one for a list with more below each row") {
  CHECK(to_lines(Table{{"key", "of"}, {{"a", "b"}}}) == std::vector<std::string>{"key  of", "a    b"});
  CHECK(to_lines(Table{}).empty());
}

TEST_CASE("table: columns of Markdown stand between bars below a rule") {
  CHECK(to_markdown(Table{{"op", "ms"}, {{"d\u00e9j\u00e0", "10"}}}) ==
        "| op   | ms  |\n| ---- | --- |\n| d\u00e9j\u00e0 | 10  |\n");
}

TEST_CASE("table: a head is left out where there is none, and of nothing there is nothing") {
  CHECK(to_text(Table{{}, {{"a", "b"}}}) == "a  b\n");
  CHECK(to_text(Table{}).empty());
  CHECK(to_markdown(Table{}).empty());
  CHECK_FALSE(contains(to_html(Table{{}, {{"a"}}}), "<th"));
}

TEST_CASE("table: rows of different lengths are refused as text and shown in a page") {
  const Table table{{"a", "b"}, {{"c"}}};
  CHECK_THROWS_AS(to_text(table), ValueError);
  CHECK_THROWS_AS(to_markdown(table), ValueError);
  CHECK(contains(to_html(table), "<tr><td>c</td></tr>"));
}

TEST_CASE("table: a page tells numbers from words and escapes both") {
  const std::string html = to_html(Table{{"a"}, {{"264 B"}, {"<2>"}, {"--run"}}});
  CHECK(contains(html, "<td class=\"number\">264 B</td>"));
  CHECK(contains(html, "<td>&lt;2&gt;</td>"));
  CHECK(contains(html, "<span class=\"whole\">--run</span>"));
}
