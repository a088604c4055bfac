// Images: exact grey values, both forms of files, and every way in which a file can be wrong.
#include <doctest/doctest.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <set>
#include <string>

#include "autograd/tape.h"
#include "models/eddy/registry.h"
#include "tensor/base/error.h"
#include "tests/support/errors.h"
#include "tests/support/files.h"
#include "tests/support/processes.h"
#include "tests/support/tasks.h"
#include "train/app/reproduce/reproduce.h"
#include "train/app/reproduce/run.h"
#include "train/files/text_file.h"
#include "train/tasks/block_sizes.h"
#include "train/tasks/cifar.h"
#include "train/tasks/task.h"

namespace {

using namespace eddy;
using namespace eddy::training;
using namespace eddy::app;
using namespace eddy::test;
namespace fs = std::filesystem;

// Records from `first_image` on, each with pixels of its own up to 256 of them.
std::string grey_records(int count, int first_label = 0, int first_image = 0) {
  std::string bytes;
  for (int i = 0; i < count; ++i) {
    bytes += static_cast<char>((first_label + i) % 10);
    for (int p = 0; p < 1024; ++p) bytes += static_cast<char>(((first_image + i) * 7 + p) & 255);
  }
  return bytes;
}

// The five batches, of four images each.
void write_training_images(const TempFolder& folder) {
  for (int i = 1; i <= 5; ++i)
    folder.write("data_batch_" + std::to_string(i) + ".bin", grey_records(4, i, 4 * i));
}

std::string message_of(const std::string& path) {
  GreyImages images;
  try {
    read_cifar_file(path, images);
  } catch (const Error& error) {
    CHECK(images.count() == 0);
    return error.what();
  }
  return "";
}

RunConfig tiny_config(const TempFolder& folder) {
  RunConfig config;
  config.data.name = "cifar10";
  config.data.path = folder.path();
  config.data.extensions.get<BlockKeys>() = {16, 48};
  config.model.model = "block_forget";
  config.train.batch = 4;
  return config;
}

ModelConfig tiny_image_model() {
  ModelConfig model;
  model.model = "block_forget";
  model.dim = 8;
  model.heads = 2;
  model.block = 32;
  model.readout = "last";
  model.tied = false;
  model.vocab = 256;
  model.n_out = 10;
  return model;
}

// A task that is only measured.
std::unique_ptr<Task> six_test_images(const TempFolder& folder) {
  folder.write("test_batch.bin", grey_records(6));
  return task_of(tiny_config(folder), false);
}

}  // namespace

TEST_CASE("grey values are those of the integer formula") {
  CHECK(grey_of(255, 0, 0) == 76);
  CHECK(grey_of(0, 255, 0) == 150);
  CHECK(grey_of(0, 0, 255) == 29);
  CHECK(grey_of(1, 2, 3) == 2);
  CHECK(grey_of(10, 200, 30) == 124);
  CHECK(grey_of(254, 177, 164) == 199);
  CHECK(grey_of(255, 255, 255) == 255);
}

TEST_CASE("coloured records become grey ones") {
  const TempFolder folder;
  std::string bytes;
  for (int i = 0; i < 3; ++i) {
    bytes += static_cast<char>(i);
    bytes += std::string(1024, static_cast<char>(10 + i)) + std::string(1024, static_cast<char>(200)) +
             std::string(1024, static_cast<char>(30));
  }
  GreyImages images;
  read_cifar_file(folder.write("colour.bin", bytes), images);
  REQUIRE(images.count() == 3);
  CHECK(images.labels[2] == 2);
  for (const std::uint8_t value : images.image(0)) CHECK(value == 124);
}

TEST_CASE("grey records are taken as they are") {
  const TempFolder folder;
  GreyImages images;
  read_cifar_file(folder.write("grey.bin", grey_records(5)), images);
  REQUIRE(images.count() == 5);
  CHECK(images.labels[4] == 4);
  CHECK(images.image(4)[3] == (4 * 7 + 3));
}

TEST_CASE("a file with wrong sizes or labels is refused with its place") {
  const TempFolder folder;
  CHECK(message_of(folder.write("cut.bin", grey_records(3).substr(0, 3000))).find("3000 bytes") !=
        std::string::npos);
  CHECK(message_of(folder.write("empty.bin", "")).find("0 bytes") != std::string::npos);
  std::string bad = grey_records(3);
  bad[1025] = 17;
  CHECK(message_of(folder.write("label.bin", bad)).find("record 1 has label 17") != std::string::npos);
  CHECK(message_of(folder.path("none.bin")).find("none.bin") != std::string::npos);
}

TEST_CASE("a missing batch is named") {
  const TempFolder folder;
  folder.write("test_batch.bin", grey_records(4));
  CHECK(read_cifar(folder.path(), false).test.count() == 4);
  CHECK_THROWS_WITH_AS(read_cifar(folder.path(), true), doctest::Contains("data_batch_1.bin is missing"),
                       IoError);
  CHECK_THROWS_WITH_AS(read_cifar(folder.path("nowhere"), true), doctest::Contains("no test_batch.bin"),
                       IoError);
}

TEST_CASE("image batches are distinct and drawn by step and blocks cover their range") {
  const TempFolder folder;
  write_training_images(folder);
  folder.write("test_batch.bin", grey_records(6));
  TaskArguments arguments;
  arguments.config = tiny_config(folder);
  const std::unique_ptr<Task> task = make_task(std::move(arguments));
  std::set<std::int64_t> blocks;
  std::set<std::vector<std::int32_t>> images;
  std::map<std::int32_t, int> labels;
  for (std::int64_t step = 0; step < 600; ++step) {
    const Batch batch = task->next(step, 0);
    blocks.insert(batch.block);
    std::set<std::vector<std::int32_t>> rows;
    for (int row = 0; row < 4; ++row) {
      ++labels[batch.targets.data<std::int32_t>()[row]];
      const std::int32_t* tokens = batch.tokens.data<std::int32_t>() + row * 1024;
      rows.insert(std::vector<std::int32_t>(tokens, tokens + 1024));
    }
    CHECK(rows.size() == 4);
    images.merge(rows);
  }
  CHECK(images.size() == 20);
  CHECK(blocks.size() == 33);
  CHECK(*blocks.begin() == 16);
  CHECK(*blocks.rbegin() == 48);
  CHECK(labels.size() == 8);
  const Batch one = task->next(7, 0), again = task->next(7, 0), other = task->next(8, 0);
  const auto tokens = [](const Batch& b) {
    return std::vector<std::int32_t>(b.tokens.data<std::int32_t>(), b.tokens.data<std::int32_t>() + 4096);
  };
  CHECK(tokens(one) == tokens(again));
  CHECK(tokens(one) != tokens(other));
}

TEST_CASE("a run on images goes on with the same images only") {
  const TempFolder folder;
  write_training_images(folder);
  folder.write("test_batch.bin", grey_records(6));
  const RunConfig config = tiny_config(folder);
  const std::string trained_on = task_of(config)->data_sha256();
  const auto made_again = [&](bool training, const std::string& expected) {
    TaskArguments arguments;
    arguments.config = config;
    arguments.training = training;
    arguments.expected_sha256 = expected;
    arguments.run = "run";
    return make_task(std::move(arguments));
  };
  for (const bool training : {true, false}) CHECK_NOTHROW(made_again(training, trained_on));
  folder.write("data_batch_3.bin", grey_records(4, 3, 13));
  CHECK(contains(error_of<ConfigError>([&] { made_again(true, trained_on); }), "are not those of run"));
  CHECK_NOTHROW(made_again(false, trained_on));
  folder.write("test_batch.bin", grey_records(6, 1));
  CHECK(contains(error_of<ConfigError>([&] { made_again(false, trained_on); }), "are not those of run"));
}

TEST_CASE("the report of images shows them with what they are and what they are taken for") {
  const TempFolder folder;
  const std::unique_ptr<Task> task = six_test_images(folder);
  CHECK(task->summary().find("6 test images") != std::string::npos);
  CHECK(task->summary().find("the whole set has 50000 and 10000") != std::string::npos);
  ModelConfig config;
  config.readout = "last";
  config.dim = 8;
  config.heads = 2;
  config.mlp_dim = 16;
  config.layers = 1;
  config.tied = false;
  config.context = 1024;
  task->set_model_sizes(config);
  const std::unique_ptr<Model> model = make_model(config, Dtype::f32);
  model->params().initialize(1);
  // Every image is taken for the first class, which one of the six is.
  raw::fill(detach(model->params().get("head.weight").value), 0);
  const std::vector<ReportSection> sections = task->report(*model);
  REQUIRE(sections.size() == 1);
  std::map<std::string, int> captions;
  int wrong = 0;
  for (const Picture& picture : sections[0].pictures) {
    ++captions[picture.caption];
    if (!picture.good) ++wrong;
  }
  CHECK(sections[0].pictures.size() == 6);
  CHECK(captions["airplane"] == 1);
  CHECK(captions["cat, taken for airplane"] == 1);
  CHECK(wrong == 5);
}

TEST_CASE("a model with logits at all positions is scored and shown at the last one") {
  const TempFolder folder;
  folder.write("test_batch.bin", grey_records(6));
  write_training_images(folder);
  RunConfig last = tiny_config(folder);
  last.data.extensions.get<BlockKeys>() = {};
  RunConfig all = last;
  all.model.family = "block_recurrent";
  all.model.model = "slide";
  all.model.dim = 8;
  all.model.heads = 2;
  all.model.window = all.model.segment = all.model.context = 256;
  const std::unique_ptr<Task> task = task_of(all);
  const Batch few = task_of(last)->next(0, 0), many = task->next(0, 0);
  CHECK(few.targets.shape() == Shape{4, 1});
  CHECK(many.targets.shape() == Shape{4, 1024});
  CHECK(many.scored == few.scored);
  for (std::int64_t row = 0; row < 4; ++row)
    CHECK(many.targets.data<std::int32_t>()[row * 1024 + 1023] == few.targets.data<std::int32_t>()[row]);

  // A class for each grey value, of which the first ten are those of the images.
  const std::unique_ptr<Model> model = model_for(*task, all.model);
  CHECK(model->config().n_out == 256);
  task->set_model_sizes(all.model);
  CHECK_NOTHROW(task->set_model_sizes(all.model));  // as a resumed run does
  const EvalResult result = task->evaluate(*model, {.split = Split::test, .batch = 4});
  CHECK(result.tokens == 6);
  CHECK(std::isfinite(result.loss));
  const std::vector<ReportSection> sections = task->report(*model);
  REQUIRE(sections.size() == 1);
  CHECK(contains(sections[0].pictures[0].caption, "taken for "));
}

TEST_CASE("a model that does not fit images is refused") {
  const TempFolder folder;
  const std::unique_ptr<Task> task = six_test_images(folder);
  ModelConfig model;
  CHECK_THROWS_AS(task->set_model_sizes(model), ConfigError);
  model = {};
  model.readout = "last";
  model.positions = true;
  model.context = 1000;
  CHECK_THROWS_WITH_AS(task->set_model_sizes(model), doctest::Contains("1024 tokens"), ConfigError);
  model.context = 1024;
  task->set_model_sizes(model);
  CHECK(model.vocab == 256);
  CHECK(model.n_out == 10);
}

TEST_CASE("blocks that no step or no model can take are refused before training") {
  const TempFolder folder;
  write_training_images(folder);
  folder.write("test_batch.bin", grey_records(6));
  const auto make = [&](std::int64_t block_min, std::int64_t block_max, const char* model, bool training) {
    TaskArguments arguments;
    arguments.config = tiny_config(folder);
    arguments.config.data.extensions.get<BlockKeys>() = {block_min, block_max};
    arguments.config.model.model = model;
    arguments.training = training;
    return make_task(std::move(arguments));
  };
  CHECK_THROWS_WITH_AS(make(48, 16, "block_forget", true), doctest::Contains("block_max 16"), ConfigError);
  CHECK_THROWS_WITH_AS(make(0, 48, "block_forget", true), doctest::Contains("data.block_min is 0"),
                       ConfigError);
  CHECK_THROWS_WITH_AS(make(16, 48, "regular", true), doctest::Contains("regular has no blocks"),
                       ConfigError);
  CHECK(make(1, 48, "block_forget", true)->next(0, 0).block >= 1);
  CHECK(make(0, 0, "regular", true)->next(0, 0).block == 0);
  CHECK(make(16, 48, "regular", false) != nullptr);
}

TEST_CASE("random test batches estimate the loss of all and depend on the seed alone") {
  const TempFolder folder;
  folder.write("test_batch.bin", grey_records(30));
  TaskArguments arguments;
  arguments.config = tiny_config(folder);
  arguments.config.model = tiny_image_model();
  arguments.training = false;
  const ModelConfig config = arguments.config.model;
  const std::unique_ptr<Task> task = make_task(std::move(arguments));
  const std::unique_ptr<Model> model = make_model(config);
  model->params().initialize(1);
  EvalOptions options;
  options.split = Split::test;
  options.batch = 8;
  const EvalResult all = task->evaluate(*model, options);
  CHECK(all.tokens == 30);
  CHECK(std::isnan(all.standard_error));
  options.batches = 10;
  const EvalResult estimate = task->evaluate(*model, options), again = task->evaluate(*model, options);
  CHECK(estimate.tokens == 80);
  CHECK(estimate.standard_error > 0);
  CHECK(std::abs(estimate.loss - all.loss) < 6 * estimate.standard_error);
  CHECK(estimate.loss == again.loss);
  CHECK(estimate.metrics == again.metrics);
  options.seed = 5;
  CHECK(task->evaluate(*model, options).loss != estimate.loss);
}

TEST_CASE("table 4 shows all test images beside the estimate of the paper and its run shows images") {
  const TempFolder folder;
  write_training_images(folder);
  folder.write("test_batch.bin", grey_records(30));
  ReproduceOptions options;
  options.table = "recurrent-transformers/table-4";
  options.scale = "tiny";
  options.rows = {"block"};
  options.data = folder.path();
  options.runs = folder.path("runs");
  options.set = {{"train.threads", "1"}, {"train.steps", "2"}};
  std::string text;
  {
    const test::Quiet quiet;
    CHECK(reproduce(options, [&](std::string_view told) { text += told; }) == ReproduceEnd::done);
  }
  for (const char* part : {"accuracy of all test images, %, ours", "estimated accuracy, %, paper", "43.09",
                           "the estimate is of 3 random batches of 4, seed 1337"})
    CHECK_MESSAGE(text.find(part) != std::string::npos, part);
  const ReproduceTable table = plan_table(options);
  for (const ReproduceRow& row : table.rows) {
    if (row.name != "block") continue;
    const RowResult result = row_state(table, row, options.runs).result.value();
    for (const char* key : {"loss", "accuracy", "sampled_loss", "sampled_accuracy"})
      CHECK_MESSAGE(std::isfinite(result.values.at(key)), key);
    CHECK(result.values.at("loss") != result.values.at("sampled_loss"));
    CHECK(result.measured.starts_with("test, 2 batches of 4 rows; 3 random ones, seed 1337"));
  }
  const std::string report =
      read_text_file(fs::path(folder.path("runs")) / table.folder / "block" / "report.html");
  CHECK(report.find("taken for") != std::string::npos);
}
