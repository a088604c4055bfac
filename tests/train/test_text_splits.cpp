// Folders that bring their splits: train, valid and test.
#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "text_test.h"
#include "tiny_run.h"
#include "train/task.h"
#include "train/text_data.h"

namespace {

using namespace eddy;
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
  return config;
}

std::unique_ptr<Task> task_of(const RunConfig& config, bool training = true) {
  TaskArguments arguments;
  arguments.config = config;
  arguments.training = training;
  return make_task(std::move(arguments));
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
    task->fit(sizes);
    const std::unique_ptr<Model> model = make_model(sizes, Dtype::f64);
    model->params().initialize(1);
    EvalOptions options;
    options.batch = 1;
    const auto tokens = [&](const std::string& split) {
      options.split = split;
      return task->evaluate(*model, options).tokens;
    };
    // Documents lose one target in each segment of 8, the others the rest behind the last whole segment.
    CHECK(tokens("valid") == (order == "documents" ? 35 : 32));
    CHECK(tokens("test") == (order == "documents" ? 43 : 48));
    CHECK(tokens("train") == (order == "windows" ? 128 : order == "stream" ? 56 + 64 : 52 + 61));
    options.split = "test";
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

TEST_CASE("text splits: validation is another name for valid and one split alone is none") {
  const TempFolder folder;
  RunConfig config = config_of(folder, "documents");
  std::filesystem::rename(folder.path("data/valid"), folder.path("data/validation"));
  CHECK(contains(task_of(config)->summary(), "2 training and 1 validation"));
  std::filesystem::rename(folder.path("data/validation"), folder.path("data/other"));
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
