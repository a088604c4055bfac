// Where documents begin: separators, and lines of JSON.
#include "train/text/documents.h"

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "tensor/base/error.h"
#include "tests/support/errors.h"
#include "train/config/run_config.h"

namespace {

using namespace eddy;
using namespace eddy::training;
using namespace eddy::test;

using DocumentTexts = std::vector<std::string>;

DocumentTexts cut(const std::string& text, const CutRule& rule, bool end_lines = false,
                  const std::string& file = "f.txt") {
  const Documents documents = documents_in(text, rule, file, end_lines);
  DocumentTexts all;
  for (std::size_t i = 0; i < documents.count(); ++i) all.emplace_back(documents[i]);
  return all;
}

const CutRule kMark{kEndOfText, ""};
const CutRule kField{"", "text"};

}  // namespace

TEST_CASE("documents: a text without its separator is one document as it is") {
  CHECK(cut("a\n\n", kMark) == DocumentTexts{"a\n\n"});
  CHECK(cut("a\n\n", {}) == DocumentTexts{"a\n\n"});
  CHECK(cut("a", kMark, true) == DocumentTexts{"a"});
  CHECK(cut("", kMark) == DocumentTexts{""});
}

TEST_CASE("documents: a separator is no part of a document and goes with its line") {
  CHECK(cut("one\n<|endoftext|>\ntwo\n<|endoftext|>\n", kMark) == DocumentTexts{"one\n", "two\n"});
  CHECK(cut("one\r\n<|endoftext|>\r\ntwo", kMark) == DocumentTexts{"one\r\n", "two"});
  CHECK(cut("one<|endoftext|>two", kMark) == DocumentTexts{"one", "two"});
  CHECK(cut("one<|endoftext|>\ntwo", kMark) == DocumentTexts{"one", "\ntwo"});
  CHECK(cut("<|endoftext|>\none<|endoftext|> \n<|endoftext|>", kMark) == DocumentTexts{"one"});
  CHECK(cut("a\n\n\nb\n\nc", {"\n\n", ""}) == DocumentTexts{"a", "\nb", "c"});
}

TEST_CASE("documents: those that are joined end with a newline") {
  CHECK(cut("one<|endoftext|>two\n<|endoftext|>\nthree", kMark, true) ==
        DocumentTexts{"one\n", "two\n", "three\n"});
}

TEST_CASE("documents: the key of the separator has newlines and tabs as shells pass them on") {
  DataConfig config;
  CHECK(cut_rule(config) == kMark);
  config.separator = "\\n---\\n\\t\\x";
  CHECK(cut_rule(config).separator == "\n---\n\t\\x");
  config.document = "folder";
  CHECK(!cut_rule(config).cuts());
}

TEST_CASE("documents: each line of JSON is one") {
  const std::string text = R"({"id": 1, "text": "a\n\"b\""})"
                           "\n\n"
                           R"({"text": null, "id": 2})"
                           "\n"
                           R"({"text": "c\u00e9", "id": 3})";
  CHECK(cut(text, kField, false, "f.jsonl") == DocumentTexts{"a\n\"b\"", "c\u00e9"});
  CHECK(cut(text, kField) == DocumentTexts{"a\n\"b\"", "c\u00e9"});  // by their look
  CHECK(cut(text, {}, false, "f.jsonl") == DocumentTexts{text});
  CHECK(cut("{plain\n", kField) == DocumentTexts{"{plain\n"});
  CHECK(cut(R"({"text": "a<|endoftext|>b"})", {kEndOfText, "text"}) == DocumentTexts{"a", "b"});
}

TEST_CASE("documents: a line of JSON without the text is named with the fields that there are") {
  const auto refusal = [](const std::string& text) {
    return error_of<FormatError>([&] { cut(text, kField, false, "f.jsonl"); });
  };
  CHECK(contains(refusal("{\"text\": \"a\"}\n{\"body\": \"b\", \"id\": 2}\n"),
                 R"(f.jsonl, line 2: there is no field "text" (data.json_field; there are "body", "id"))"));
  CHECK(contains(refusal("{\"text\": \"a\"}\n{\"text\": \n"), "f.jsonl, line 2: no JSON"));
  CHECK(contains(refusal("{\"text\": 3}\n"), "holds no text"));
  CHECK(contains(refusal("[1]\n"), "the line is no object"));
}

TEST_CASE("documents: an array of JSON objects is known by its first one") {
  CHECK(first_in_json_array(R"([{"text": "a}\"{"}, {}])") == R"({"text": "a}\"{"})");
  CHECK(first_in_json_array("\n[\n  {\n\"a\": {\"b\": 1}\n}\n]\n") == "{ \"a\": {\"b\": 1} }");
  for (const char* other :
       {"", "[", "[1, 2]", "[{", "[{}", "[{plain}, {}]", "[{} and so on", "{\"a\": [{}]}", "a [{}]"})
    CHECK_MESSAGE(first_in_json_array(other).empty(), other);
}

TEST_CASE("documents: pages, JSON, tables and bytes of zero are no plain text") {
  const auto says = [](const std::string& text, const std::string& name, const std::string& part) {
    const std::string markup = markup_of(text, name);
    CHECK_MESSAGE((part.empty() ? markup.empty() : markup.find(part) != std::string::npos), markup);
  };
  says("\n<!DOCTYPE html><html>", "a.txt", "a web page");
  says("<HTML><body>", "a.txt", "a web page");
  says("<?xml version='1.0'?>", "a.txt", "XML");
  says("{\n  \"cells\": []", "a.ipynb", "JSON");
  says("{\n  \"cells\": []", "a.txt", "");
  says("[\"a text\", \"another\"]", "a.json", "JSON");
  says("[{\"text\": \"of an object\"}]", "a.json", "");
  says("id,text\n", "a.csv", "a table");
  says(std::string("words\0\0", 7), "a.txt", "2 bytes of zero");
  says("<mediawiki xmlns=", "enwik8", "");
  says("", "a.txt", "");
}

TEST_CASE("documents: the field that most likely holds the text is found") {
  CHECK(likely_text_field("{\"id\": \"longer than it\", \"text\": \"it\"}\n{}") == "text");
  CHECK(likely_text_field("{\"id\": \"a\", \"story\": \"Once there was\"}") == "story");
  CHECK(likely_text_field("{\"id\": 3}").empty());
  CHECK(likely_text_field("no JSON").empty());
  CHECK(!is_json_lines("{\"a\": 1}\nplain", "f.txt"));
  CHECK(!is_json_lines("{\n  \"a\": 1\n}\n", "f.json"));
}
