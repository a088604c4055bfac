// Folders that bring their splits: train, valid and test.
#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "tensor/base/error.h"
#include "tests/support/errors.h"
#include "tests/support/files.h"
#include "tests/support/tasks.h"
#include "tests/support/threads.h"
#include "tests/support/tiny_run.h"
#include "train/tasks/task.h"
#include "train/tasks/text_data.h"
#include "train/text/text_files.h"

namespace {

using namespace eddy;
using namespace eddy::training;
using namespace eddy::test;

// Files of one letter each, so that a token says which split it is from.
std::string write_splits(const TempFolder& folder, const std::string& valid = "valid") {
  folder.write("data/train/sub/a.txt", std::string(60, 'a'));
  folder.write("data/train/b.txt", std::string(70, 'b'));
  folder.write("data/" + valid + "/v.txt", std::string(40, 'v'));
  folder.write("data/test/t.txt", std::string(50, 't'));
  folder.write("data/INDEX.tsv", "not a text to learn from");
  return folder.path("data");
}

RunConfig config_of(const TempFolder& folder, const std::string& order) {
  RunConfig config = tiny_run(folder, "run").config;
  config.data.path = write_splits(folder);
  config.data.order = order;
  config.data.tokenizer = "byte260";
  config.train.sequence = 8;
  config.train.batch = 2;
  config.train.eval_every = 1;  // what is evaluated needs a validation part
  return config;
}

}  // namespace

TEST_CASE("text splits: a folder with train and valid brings its splits in every order") {
  const TempFolder folder;
  for (const std::string order : {"windows", "stream", "documents"}) {
    CAPTURE(order);
    RunConfig config = config_of(folder, order);
    config.data.split = 0.01;  // has no say
    const std::unique_ptr<Task> task = task_of(config);
    CHECK(contains(task->summary(), order == "windows" ? "130 training and 40 validation tokens"
                                                       : "2 training and 1 validation"));
    for (std::int64_t step = 0; step < 12; ++step)
      for (const std::int32_t id : task->next(step, 0).tokens.to_vector<std::int32_t>()) {
        const bool of_training = id == 0 || id == 'a' + 3 || id == 'b' + 3;
        CHECK(of_training);
      }
  }
}

TEST_CASE("text splits: each split is measured for itself and the test only there") {
  const OneThread one;
  const TempFolder folder;
  for (const std::string order : {"windows", "stream", "documents"}) {
    CAPTURE(order);
    RunConfig config = config_of(folder, order);
    const std::unique_ptr<Task> training = task_of(config), task = task_of(config, false);
    CHECK(training->data_sha256() == task->data_sha256());
    ModelConfig sizes = config.model;
    task->set_model_sizes(sizes);
    const std::unique_ptr<Model> model = make_model(sizes, Dtype::f64);
    model->params().initialize(1);
    EvalOptions options;
    options.batch = 1;
    const auto tokens = [&](Split split) {
      options.split = split;
      return task->evaluate(*model, options).tokens;
    };
    // Documents lose one target in each segment of 8, the others the rest behind the last whole segment.
    CHECK(tokens(Split::valid) == (order == "documents" ? 35 : 32));
    CHECK(tokens(Split::test) == (order == "documents" ? 43 : 48));
    CHECK(tokens(Split::train) == (order == "windows" ? 128 : order == "stream" ? 56 + 64 : 52 + 61));
    options.split = Split::test;
    CHECK_THROWS_AS(training->evaluate(*model, options), ValueError);
  }
}

TEST_CASE("text splits: the digest follows names and contents of training and validation") {
  const TempFolder folder;
  RunConfig config = config_of(folder, "documents");
  const std::string before = task_of(config)->data_sha256();
  folder.write("data/test/t.txt", "another test");
  CHECK(task_of(config)->data_sha256() == before);
  folder.write("data/valid/v.txt", std::string(40, 'w'));
  CHECK(task_of(config)->data_sha256() != before);
}

TEST_CASE("text splits: valid has other names and one split alone is none") {
  const TempFolder folder;
  RunConfig config = config_of(folder, "documents");
  std::string name = "data/valid";
  for (const char* const other : {"data/validation", "data/val", "data/dev"}) {
    std::filesystem::rename(folder.path(name), folder.path(other));
    CHECK(contains(task_of(config)->summary(), "2 training and 1 validation"));
    CHECK(!lacks_validation(folder.path("data")));
    name = other;
  }
  std::filesystem::rename(folder.path(name), folder.path("data/other"));
  CHECK(lacks_validation(folder.path("data")));
  CHECK(
      contains(task_of(config)->summary(), "3 training and 1 validation"));  // four files, cut by data.split
}

TEST_CASE("text splits: a split without enough text is refused") {
  const TempFolder folder;
  RunConfig config = config_of(folder, "windows");
  config.train.sequence = 40;
  CHECK(contains(error_of<ValueError>([&] { task_of(config); }), "130 training and 40 validation tokens"));
  folder.write("empty/train/a.txt", "text enough to be read");
  std::filesystem::create_directories(folder.path("empty/valid"));
  config.data.path = folder.path("empty");
  CHECK(contains(error_of<IoError>([&] { task_of(config); }), "no text in the folder"));
}

TEST_CASE("text splits: data.test keeps the end of one text for the test") {
  const OneThread one;
  const TempFolder folder;
  for (const std::string order : {"windows", "stream"}) {
    CAPTURE(order);
    RunConfig config = config_of(folder, order);
    config.data.path =
        folder.write("one.txt", std::string(320, 'a') + std::string(60, 'v') + std::string(20, 't'));
    config.data.split = 0.8;
    config.data.test = 0.05;
    config.train.batch = 1;
    const std::unique_ptr<Task> task = task_of(config);
    CHECK(contains(task->summary(), "320 training and 60 validation tokens"));
    for (std::int64_t step = 0; step < 40; ++step)
      for (const std::int32_t id : task->next(step, 0).tokens.to_vector<std::int32_t>()) CHECK(id == 'a' + 3);
    ModelConfig sizes = config.model;
    task->set_model_sizes(sizes);
    const std::unique_ptr<Model> model = make_model(sizes, Dtype::f64);
    model->params().initialize(1);
    const auto tokens = [&](Split split) {
      EvalOptions options;
      options.split = split;
      options.batch = 1;
      return task->evaluate(*model, options).tokens;
    };
    CHECK(tokens(Split::train) == 312);
    CHECK(tokens(Split::valid) == 56);
    CHECK(tokens(Split::test) == 16);
    CHECK(tokens(Split::all) == 392);
    config.data.test = 0.02;
    CHECK(
        contains(error_of<ValueError>([&] { task_of(config); }), "72 tokens to validate and 8 for the test"));
    config.data.test = 0.19;
    CHECK(
        contains(error_of<ValueError>([&] { task_of(config); }), "4 tokens to validate and 76 for the test"));
    config.data.test = 0.2;
    CHECK(contains(error_of<ConfigError>([&] { validate(config); }), "leave nothing to validate"));
    config.data.path = write_splits(folder);
    CHECK(contains(error_of<ConfigError>([&] { task_of(config); }), "brings its own splits"));
  }
}

TEST_CASE("text splits: data.test keeps the last files of a folder for the test") {
  const TempFolder folder;
  for (int i = 0; i < 10; ++i)
    folder.write("files/" + std::to_string(i) + ".txt", std::string(40, static_cast<char>('a' + i)));
  for (const std::string order : {"stream", "documents"}) {
    CAPTURE(order);
    RunConfig config = config_of(folder, order);
    config.data.path = folder.path("files");
    config.data.split = 0.7;
    config.data.test = 0.2;
    const std::unique_ptr<Task> task = task_of(config);
    CHECK(contains(task->summary(), "7 training and 1 validation"));
    for (std::int64_t step = 0; step < 40; ++step)
      for (const std::int32_t id : task->next(step, 0).tokens.to_vector<std::int32_t>())
        CHECK(id < 'a' + 7 + 3);
    config.data.test = 0.05;
    CHECK(contains(error_of<ValueError>([&] { task_of(config); }), "too few for data.test"));
  }
}
