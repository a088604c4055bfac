// Texts of many documents: several paths, separators within a file, lines of JSON.
#include <doctest/doctest.h>

#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "ops/core/warnings.h"
#include "tensor/base/error.h"
#include "tests/support/errors.h"
#include "tests/support/files.h"
#include "tests/support/tasks.h"
#include "tests/train/tasks/text_arguments.h"
#include "train/tasks/text_data.h"

namespace {

using namespace eddy;
using namespace eddy::training;
using namespace eddy::test;

std::vector<std::string> parts_of(const TextData& data) {
  std::vector<std::string> parts;
  for (std::int64_t i = 0; i < data.parts(); ++i) parts.push_back(data.tokenizer->decode(data.part(i)));
  return parts;
}

using Parts = std::vector<std::string>;

}  // namespace

TEST_CASE("text documents: the mark sets documents apart in every order and one line says so") {
  const TempFolder folder;
  const std::string path = folder.write("s.txt", "first\n<|endoftext|>\nab<|endoftext|>third");
  const auto parts = [&](const std::string& order, const std::string& line) {
    TaskArguments arguments = text_arguments(path, order);
    std::ostringstream says;
    arguments.messages = &says;
    const TextData data = read_text_of(std::move(arguments));
    CHECK_MESSAGE(contains(says.str(), line), says.str());
    return parts_of(data);
  };
  CHECK(parts("windows", "3 documents, set apart by <|endoftext|>") == Parts{"first\nab\nthird\n"});
  CHECK(parts("stream", "3 documents, set apart by <|endoftext|>, 1 of them left out") ==
        Parts{"first\n", "third"});
  CHECK(parts("documents", "3 documents, set apart by <|endoftext|>") == Parts{"first\n", "ab", "third"});
}

TEST_CASE("text documents: a run goes on by the cut that it began with") {
  const TempFolder folder;
  const std::string path = folder.write("s.txt", "first\n<|endoftext|>\nsecond\n<|endoftext|>\nthird\n");
  for (const std::string order : {"windows", "stream", "documents"}) {
    CAPTURE(order);
    TaskArguments whole = text_arguments(path, order);
    whole.config.data.separator = "";
    const TextData before = read_text_of(std::move(whole));  // as a run of before there were separators
    const TextData cut = read_text_of(text_arguments(path, order));
    CHECK(before.tokens.size() > cut.tokens.size());
    for (const TextData* const data : {&before, &cut}) {
      TaskArguments again = text_arguments(path, order);
      again.expected_sha256 = data->sha256;
      again.expected_phases = text_phases_from_json(to_json(data->source_phases), "the state");
      const TextData found = read_text_of(std::move(again));
      CHECK(found.tokens == data->tokens);
      CHECK(found.ends == data->ends);
      CHECK(found.source_phases == data->source_phases);
    }
  }
}

TEST_CASE("text documents: own splits are those of the documents") {
  const TempFolder folder;
  folder.write("d/train/s.txt", "one\n<|endoftext|>\ntwo\n<|endoftext|>\nthree\n");
  folder.write("d/valid/s.txt", "four\n<|endoftext|>\nfive\n");
  const TextData data = read_text_of(text_arguments(folder.path("d"), "documents"));
  CHECK(data.train_parts == 3);
  CHECK(data.valid_parts == 2);
}

TEST_CASE("text documents: a separator of one's own that does not occur is refused") {
  const TempFolder folder;
  TaskArguments arguments = text_arguments(folder.write("s.txt", "one\n---\ntwo\n"), "documents");
  arguments.config.data.separator = "---";
  TaskArguments wrong = text_arguments(folder.path("s.txt"), "documents");
  wrong.config.data.separator = "===";
  CHECK(parts_of(read_text_of(std::move(arguments))) == Parts{"one\n", "two\n"});
  CHECK(contains(error_of<ConfigError>([&] { read_text_of(std::move(wrong)); }),
                 "data.separator is \"===\", which does not occur"));
}

TEST_CASE("text documents: the state begins anew at each") {
  const TempFolder folder;
  RunConfig config =
      text_arguments(folder.write("s.txt", "abcd<|endoftext|>efgh<|endoftext|>ijkl"), "documents").config;
  config.model.mask_token_zero = false;
  config.train.batch = 1;
  config.train.sequence = 4;
  config.train.eval_every = 0;
  config.data.split = 1;
  const auto task = task_of(config);
  for (int i = 0; i < 6; ++i) {
    const Batch batch = task->next(i, 0);
    CHECK(batch.start.item<std::int64_t>() == 1);
    CHECK(batch.scored == 3);
  }
}

TEST_CASE("text documents: lines of JSON are read by their field and named without it") {
  const TempFolder folder;
  const std::string path =
      folder.write("d.jsonl", "{\"text\":\"one\\ntwo\",\"by\":\"x\"}\n{\"text\":\"three\"}\n");
  const auto with = [&](const std::string& field) {
    TaskArguments arguments = text_arguments(path, "documents");
    arguments.config.data.json_field = field;
    return arguments;
  };
  static_cast<void>(take_warnings());
  CHECK(parts_of(read_text_of(with("text"))) == Parts{"one\ntwo", "three"});
  CHECK(take_warnings().empty());
  read_text_of(with(""));
  const auto warnings = take_warnings();
  REQUIRE(warnings.size() == 1);
  CHECK_MESSAGE(contains(warnings[0], "--data.json_field text"), warnings[0]);
  CHECK(contains(error_of<FormatError>([&] { read_text_of(with("body")); }), "no field \"body\""));
}

TEST_CASE("text documents: an array of JSON is read as it stands and named with what makes lines of it") {
  const TempFolder folder;
  const std::string text = "[\n {\"by\": \"x\", \"story\": \"one\"},\n {\"story\": \"two\"}\n]\n",
                    path = folder.write("d.json", text);
  static_cast<void>(take_warnings());
  CHECK(parts_of(read_text_of(text_arguments(path, "documents"))) == Parts{text});
  const auto warnings = take_warnings();
  REQUIRE(warnings.size() == 1);
  CHECK_MESSAGE(contains(warnings[0], "jq -c '.[]' " + path + " > " + folder.path("d.jsonl")), warnings[0]);
  CHECK_MESSAGE(contains(warnings[0], "--data.json_field story"), warnings[0]);
  const std::string refused = error_of<ConfigError>([&] {
    TaskArguments arguments = text_arguments(path, "documents");
    arguments.config.data.json_field = "story";
    read_text_of(std::move(arguments));
  });
  CHECK_MESSAGE(contains(refused, "d.json is an array; lines are made"), refused);
  read_text_of(text_arguments(folder.write("d.jsonl", text), "documents"));
  const auto of_lines = take_warnings();
  REQUIRE(of_lines.size() == 1);
  CHECK_MESSAGE(contains(of_lines[0], " > " + folder.path("d.lines.jsonl")), of_lines[0]);
}

TEST_CASE("text documents: several paths and patterns are read as a folder of them") {
  const TempFolder folder;
  folder.write("b.txt", "second");
  folder.write("a.txt", "first");
  folder.write("c.txt", "");
  folder.write("sub/d.txt", "fourth");
  const auto files = [&](const std::vector<std::string>& names) {
    DataPaths paths;
    for (const std::string& name : names) paths.push_back(folder.path(name));
    return parts_of(read_text_of(text_arguments(paths, "documents")));
  };
  CHECK(files({"b.txt", "a.txt"}) == Parts{"second", "first"});
  CHECK(files({"*.txt"}) == Parts{"first", "second"});
  CHECK(files({"sub", "a.txt", "sub/d.txt"}) == Parts{"fourth", "first"});
  const TextData data = read_text_of(text_arguments(folder.path("?.txt"), "documents"));
  TaskArguments again = text_arguments("?.txt", "documents");
  again.expected_sha256 = data.sha256;
  again.expected_phases = data.source_phases;
  again.folders = {folder.path()};
  CHECK(read_text_of(std::move(again)).tokens == data.tokens);
  CHECK(contains(error_of<IoError>([&] { files({"a.txt", "none.txt"}); }), "none.txt"));
}

TEST_CASE("text documents: one folder as one document is not cut") {
  const TempFolder folder;
  folder.write("r/one/a.py", "print('<|endoftext|>')\n");
  folder.write("r/two/b.py", "pass\n");
  TaskArguments arguments = text_arguments(folder.path("r"), "documents");
  arguments.config.data.document = "folder";
  CHECK(parts_of(read_text_of(std::move(arguments))) == Parts{"print('<|endoftext|>')\n", "pass\n"});
}
