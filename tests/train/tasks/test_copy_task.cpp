// The copy tasks: what examples are made of, the curriculum against the published trace, and what the task
// says and refuses.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <set>
#include <string>
#include <utility>

#include "tensor/base/error.h"
#include "tests/support/tasks.h"
#include "train/tasks/copy_data.h"
#include "train/tasks/task.h"

namespace {

using namespace eddy;
using namespace eddy::training;
using namespace eddy::test;

constexpr std::int64_t kSymbols = 16;

CopyExamples draw(bool selective, std::int64_t rows = 50, std::int64_t noise = 40, std::uint64_t step = 3) {
  return copy_examples(random_key(5, "test.copy", step), 0, rows, kSymbols, noise, selective);
}

RunConfig copy_config(std::int64_t noise, std::int64_t noise_max) {
  RunConfig config;
  config.model.model = "block_accumulate";
  config.model.readout = "tail";
  config.model.block = 32;
  config.data.name = "copy";
  config.data.noise = noise;
  config.data.extensions.get<CopyKeys>().noise_max = noise_max;
  return config;
}

}  // namespace

TEST_CASE("a copy example is its symbols and noise and markers") {
  const CopyExamples examples = draw(false);
  const std::int64_t length = 2 * kSymbols + 40;
  std::set<std::int32_t> seen;
  for (std::int64_t row = 0; row < 50; ++row) {
    const std::int32_t* tokens = examples.tokens.data() + row * length;
    for (std::int64_t i = 0; i < kSymbols; ++i) {
      CHECK(tokens[i] == examples.targets[static_cast<std::size_t>(row * kSymbols + i)]);
      CHECK(tokens[i] >= 1);
      CHECK(tokens[i] <= 14);
      seen.insert(tokens[i]);
      CHECK(tokens[kSymbols + 40 + i] == kCopyMarker);
    }
    CHECK(std::all_of(tokens + kSymbols, tokens + kSymbols + 40, [](std::int32_t t) { return t == 0; }));
  }
  CHECK(seen.size() == 14);
}

TEST_CASE("a selective example holds its symbols in order at places that differ and cover everything") {
  const CopyExamples examples = draw(true, 400);
  const std::int64_t length = 2 * kSymbols + 40;
  std::set<std::int64_t> places;
  for (std::int64_t row = 0; row < 400; ++row) {
    const std::int32_t* tokens = examples.tokens.data() + row * length;
    std::int64_t found = 0;
    for (std::int64_t at = 0; at < kSymbols + 40; ++at) {
      if (tokens[at] == 0) continue;
      REQUIRE(found < kSymbols);
      CHECK(tokens[at] == examples.targets[static_cast<std::size_t>(row * kSymbols + found)]);
      places.insert(at);
      ++found;
    }
    CHECK(found == kSymbols);
    CHECK(std::all_of(tokens + kSymbols + 40, tokens + length,
                      [](std::int32_t t) { return t == kCopyMarker; }));
  }
  CHECK(places.size() == kSymbols + 40);
}

TEST_CASE("copy examples depend on key and row alone") {
  const CopyExamples whole = draw(true, 8), again = draw(true, 8), other = draw(true, 8, 40, 4);
  CHECK(whole.tokens == again.tokens);
  CHECK(whole.tokens != other.tokens);
  const CopyExamples second = copy_examples(random_key(5, "test.copy", 3), 4, 4, kSymbols, 40, true);
  CHECK(
      std::equal(second.tokens.begin(), second.tokens.end(), whole.tokens.begin() + 4 * (2 * kSymbols + 40)));
  CHECK_THROWS_AS(copy_examples(random_key(5, "test.copy", 3), 0, 0, kSymbols, 40, true), ValueError);
}

TEST_CASE("no noise at all still makes an example") {
  const CopyExamples examples = draw(true, 2, 0);
  CHECK(std::equal(examples.targets.begin(), examples.targets.begin() + kSymbols, examples.tokens.begin()));
}

TEST_CASE("the curriculum follows the published trace") {
  struct Row {
    double loss;
    std::int64_t noise;
    double rate;
  };
  const Row rows[] = {{.90, 32, 5.000000e-4},   {.25, 64, 4.960938e-4},   {.10, 128, 4.883423e-4},
                      {.28, 256, 4.730816e-4},  {.31, 256, 4.730816e-4},  {.20, 512, 4.435140e-4},
                      {.15, 1024, 3.880747e-4}, {.20, 2048, 2.910561e-4}, {.25, 4096, 3.219069e-5},
                      {1.0, 4096, 3.219069e-5}, {.10, 4096, 1.384882e-5}, {.02, 4096, 2.881648e-6},
                      {.05, 4096, 2.881648e-6}};
  CopyCurriculum curriculum;
  for (const Row& row : rows) {
    curriculum.update(row.loss);
    CHECK(curriculum.noise == row.noise);
    CHECK(std::abs(curriculum.rate - row.rate) <= 1e-6 * row.rate);
  }
}

TEST_CASE("a loss that is not finite leaves the curriculum alone") {
  CopyCurriculum curriculum;
  CHECK_FALSE(curriculum.update(std::numeric_limits<double>::quiet_NaN()));
  CHECK(curriculum.noise == 32);
  CHECK(curriculum.rate == 5e-4);
}

TEST_CASE("the paper's rule ties the rate to the context") {
  CopyCurriculum curriculum;
  curriculum.paper_rule = true;
  curriculum.begin();
  CHECK(std::abs(curriculum.rate - 5e-4 * (1 - 0.5 * 64 / 4128)) <= 1e-12);
  CHECK_FALSE(curriculum.update(0.5));
  CHECK(std::abs(curriculum.rate - 5e-4 * (1 - 0.5 * 64 / 4128)) <= 1e-12);
  CHECK(curriculum.update(0.1));
  CHECK(std::abs(curriculum.rate - 5e-4 * (1 - 0.5 * 96 / 4128)) <= 1e-12);
  curriculum.noise = 2048;
  CHECK(curriculum.update(0.2));
  CHECK(std::abs(curriculum.rate - 5e-4 * 0.5 * (1 - std::exp(-0.2))) <= 1e-12);
}

TEST_CASE("a block is half the noise up to the largest") {
  CHECK(copy_block(32, 32) == 16);
  CHECK(copy_block(64, 32) == 32);
  CHECK(copy_block(4096, 32) == 32);
  CHECK(copy_block(2, 32) == 1);
}

TEST_CASE("a copy task says that its first blocks are smaller than model.block") {
  RunConfig config = copy_config(8, 64);
  const auto told = [&] { return task_of(config)->summary(); };
  CHECK(told().find("noise 8: blocks of 4 (model.block is 32)") != std::string::npos);
  CHECK(task_of(config)->next(0, 0).block == 4);
  config.model.block = 4;
  CHECK(told().find("blocks") == std::string::npos);
  config.model.block = 32;
  config.model.model = "regular";
  CHECK(told().find("blocks") == std::string::npos);
}

TEST_CASE("a copy task of a model without a readout scores the same targets among all positions") {
  RunConfig tail = copy_config(8, 8), all = tail;
  all.model.family = "staircase";
  all.model.model = "lstm";
  const Batch few = task_of(tail)->next(0, 0), many = task_of(all)->next(0, 0);
  CHECK(many.targets.shape() == many.tokens.shape());
  CHECK(many.scored == few.scored);
  const std::int64_t before = many.tokens.dim(1) - kSymbols;
  CHECK(raw::copy(raw::narrow(many.targets, 1, before, kSymbols)).to_vector<std::int32_t>() ==
        few.targets.to_vector<std::int32_t>());
  for (const std::int32_t target :
       raw::copy(raw::narrow(many.targets, 1, 0, before)).to_vector<std::int32_t>())
    CHECK(target == kNotScored);
}

TEST_CASE("a copy task refuses noise and a context and a vocabulary that do not fit") {
  CHECK_THROWS_WITH_AS(task_of(copy_config(1, 64)), doctest::Contains("data.noise is 1 "), ConfigError);
  CHECK_THROWS_WITH_AS(task_of(copy_config(65, 64)),
                       doctest::Contains("data.noise is 65 and data.noise_max 64"), ConfigError);
  const RunConfig config = copy_config(8, 64);
  const std::unique_ptr<Task> task = task_of(config);
  ModelConfig model = config.model;
  model.vocab = 8;
  CHECK_THROWS_WITH_AS(task->set_model_sizes(model), doctest::Contains("model.vocab is 8"), ConfigError);
  model = config.model;
  model.readout = "all";
  CHECK_THROWS_WITH_AS(task->set_model_sizes(model), doctest::Contains("model.readout is \"all\""),
                       ConfigError);
  model = config.model;
  model.positions = true;
  model.context = 95;  // 2 * 16 symbols and 64 of noise
  CHECK_THROWS_WITH_AS(task->set_model_sizes(model), doctest::Contains("the longest example has 96 tokens"),
                       ConfigError);
  model.context = 96;
  task->set_model_sizes(model);
  CHECK(model.vocab == kCopyAlphabet);
  CHECK(model.n_out == kCopyAlphabet);
}
