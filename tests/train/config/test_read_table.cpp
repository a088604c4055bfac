// Tables of data: keys, tables within tables and lists of tables, and what is refused.
#include <doctest/doctest.h>

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "tensor/base/error.h"
#include "tests/support/errors.h"
#include "train/config/config_file.h"

using namespace eddy;
using namespace eddy::training;
using namespace eddy::test;

namespace {

struct Note {
  std::string text;
  std::int64_t page = 0;
};
void describe(KeyList& keys, Note& note) {
  keys.add("text", note.text, "What it says").required();
  keys.add("page", note.page, "Where it stands", {1});
}

struct Box {
  std::int64_t width = 0;
};
void describe(KeyList& keys, Box& box) {
  keys.add("width", box.width, "Width", {1, 9});
}

struct Book {
  std::string title;
  std::vector<std::string> kinds;
  std::map<std::string, std::vector<std::string>> words;
  Box box;
  std::optional<Box> other;
  std::vector<Note> notes;
  std::vector<Box> boxes;
};
void describe(KeyList& keys, Book& book) {
  keys.add("title", book.title, "Title").required();
  keys.add("kinds", book.kinds, "Kinds", {"novel", "poem"});
  keys.add("words", book.words, "Other words for a word");
  keys.ignore({"elsewhere"});
  keys.add_table("box", book.box, "a table, as {width = 3}");
  keys.add_table("other", book.other, "a table, as {width = 3}");
  keys.add_list("notes", book.notes, "a list of texts, or of {text, page}").or_values();
  keys.add_list("boxes", book.boxes, "a list of boxes").required();
}

Book read_book(const std::string& toml) {
  return read_as<Book>(config_from_toml(toml, "book.toml"));
}

std::string book_error(const std::string& rest) {
  return error_of<ConfigError>([&] { read_book("title = \"a\"\nboxes = [{width = 2}]\n" + rest); });
}

}  // namespace

TEST_CASE("a table of data fills a struct, with the tables and the lists in it") {
  const Book book = read_book(R"(
title = "a"
kinds = "poem"
elsewhere = 3
words = {big = "large", small = ["little", "tiny"]}
box = {width = 4}
notes = ["short", {text = "long", page = 7}]
[[boxes]]
width = 1
[[boxes]]
)");
  CHECK(book.title == "a");
  CHECK(book.kinds == std::vector<std::string>{"poem"});
  CHECK(book.words.at("big") == std::vector<std::string>{"large"});
  CHECK(book.words.at("small") == std::vector<std::string>{"little", "tiny"});
  CHECK(book.box.width == 4);
  CHECK_FALSE(book.other);
  REQUIRE(book.notes.size() == 2);
  CHECK(book.notes[0].text == "short");
  CHECK(book.notes[1].page == 7);
  REQUIRE(book.boxes.size() == 2);
  CHECK(book.boxes[1].width == 0);
}

TEST_CASE("a table within a table is there only if it is given") {
  const Book book = read_book("title = \"a\"\nboxes = [{}]\nother = {width = 2}\n");
  REQUIRE(book.other);
  CHECK(book.other->width == 2);
}

TEST_CASE("what a table of data cannot hold is refused with its place") {
  struct Mistake {
    const char *line, *told;
  };
  for (const auto& [line, told] : {
           Mistake{"titel = 3",
                   "book.toml:3:1: unknown key \"titel\" (nearest: title; all: title, kinds, words, box"},
           {"box = {widht = 3}",
            "book.toml:3:8: unknown key \"widht\" in [box] (nearest: width; all: width)"},
           {"box = {width = 10}",
            "book.toml:3:8: box.width is 10, which is out of range (a whole number, 1 to 9)"},
           {"box = 3", "book.toml:3:1: box is 3 (a table, as {width = 3})"},
           {"kinds = [\"novl\"]",
            "book.toml:3:1: kinds is [\"novl\"], which it cannot be (nearest: novel; a list of novel, poem)"},
           {"words = {a = 3}",
            "book.toml:3:10: words is a table, which has the wrong type (a table of texts"},
           {"notes = [true]", "book.toml:3:10: notes is true (a list of texts, or of {text, page})"},
           {"notes = [{page = 1}]", "book.toml:3:10: the key notes.text is missing (a text)"},
           {"notes = [\"a\", 0]", "notes.page is 0, which is out of range"},
       }) {
    CAPTURE(line);
    CHECK_MESSAGE(contains(book_error(line), told), book_error(line));
  }
  CHECK(contains(error_of<ConfigError>([] { read_book("boxes = [{}]"); }),
                 "book.toml: the key title is missing (a text)"));
  CHECK(contains(error_of<ConfigError>([] { read_book("title = \"a\""); }), "the key boxes is missing"));
  CHECK(
      contains(error_of<ConfigError>([] { read_book("title = \"a\"\nboxes = []"); }), "boxes is [] (a list"));
  CHECK(
      contains(error_of<ConfigError>([] { read_book("title = \"a\"\nboxes = [1]"); }), "boxes is 1 (a list"));
}
