// The running product in a group, and associative recall: their rows, their answers and their sizes.
#include <doctest/doctest.h>

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tensor/base/error.h"
#include "tests/support/errors.h"
#include "tests/support/tasks.h"
#include "train/config/config.h"
#include "train/config/run_config.h"
#include "train/tasks/task.h"

namespace {

using namespace eddy;
using namespace eddy::training;
using namespace eddy::test;

using Ids = std::vector<std::int32_t>;

RunConfig config_of(const std::map<std::string, std::string>& data, std::int64_t length) {
  RunConfig config;
  config.model.model = "unit_forget";
  config.model.dim = 8;
  config.model.layers = 1;
  config.model.heads = 2;
  config.model.context = length;
  config.train.batch = 40;
  keys_of(config).read_texts(data);
  return config;
}

// What two elements give, read from the rows: a product depends on them alone.
std::map<std::pair<std::int32_t, std::int32_t>, std::int32_t> products_in(Task& task, int batches) {
  std::map<std::pair<std::int32_t, std::int32_t>, std::int32_t> products;
  for (int b = 0; b < batches; ++b) {
    const Batch batch = task.next(b, 0);
    const Ids tokens = batch.tokens.to_vector<std::int32_t>(),
              answers = batch.targets.to_vector<std::int32_t>();
    const auto length = static_cast<std::size_t>(task.row_length());
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      if (i % length == 0) {
        CHECK(answers[i] == tokens[i]);
        continue;
      }
      const auto [known, is_new] = products.try_emplace({answers[i - 1], tokens[i]}, answers[i]);
      CHECK(known->second == answers[i]);
    }
  }
  return products;
}

}  // namespace

TEST_CASE("groups: answers are products of a group of the named order") {
  const std::map<std::string, std::int32_t> orders = {
      {"z2", 2}, {"z3", 3}, {"s3", 6}, {"a5", 60}, {"s5", 120}};
  for (const auto& [group, order] : orders) {
    CAPTURE(group);
    RunConfig config = config_of({{"data.name", "groups"}, {"data.group", group}}, 40);
    const std::unique_ptr<Task> task = task_of(config);
    task->set_model_sizes(config.model);
    CHECK(config.model.vocab == order);
    CHECK(config.model.n_out == order);
    const bool small = order <= 6;
    const auto products = products_in(*task, small ? 1 : 3);
    bool commutes = true;
    for (const auto& [pair, product] : products) {
      CHECK(product < order);
      if (pair.first == 0) CHECK(product == pair.second);  // element 0 is the identity
      if (pair.second == 0) CHECK(product == pair.first);
      const auto other = products.find({pair.second, pair.first});
      if (other != products.end()) commutes = commutes && other->second == product;
    }
    CHECK(commutes == (group[0] == 'z'));
    if (!small) continue;
    REQUIRE(std::ssize(products) == order * order);
    for (std::int32_t a = 0; a < order; ++a)
      for (std::int32_t b = 0; b < order; ++b)
        for (std::int32_t c = 0; c < order; ++c)
          CHECK(products.at({products.at({a, b}), c}) == products.at({a, products.at({b, c})}));
  }
}

TEST_CASE("groups: what the configuration cannot be is refused") {
  CHECK(contains(error_of<ConfigError>([] {
                   config_of({{"data.name", "groups"}, {"data.group", "s4"}}, 8);
                 }),
                 "data.group"));
  RunConfig config = config_of({{"data.name", "groups"}, {"data.group", "s3"}}, 8);
  config.model.vocab = 5;
  CHECK(contains(error_of<ConfigError>([&] { task_of(config)->set_model_sizes(config.model); }),
                 "s3 has 6 elements"));
}

TEST_CASE("mqar: each question asks for a key of its row, and the answer is the value beside it") {
  RunConfig config = config_of({{"data.name", "mqar"}, {"data.pairs", "5"}, {"data.alphabet", "9"}}, 24);
  const std::unique_ptr<Task> task = task_of(config);
  task->set_model_sizes(config.model);
  CHECK(config.model.vocab == 18);
  const Batch batch = task->next(0, 0);
  const Ids tokens = batch.tokens.to_vector<std::int32_t>(),
            answers = batch.targets.to_vector<std::int32_t>();
  REQUIRE(tokens.size() == 40 * 24);
  std::map<std::int32_t, int> asked;
  for (std::size_t row = 0; row < 40; ++row) {
    std::map<std::int32_t, std::int32_t> values;
    for (std::size_t t = 0; t < 24; ++t) {
      const std::size_t at = 24 * row + t;
      if (t < 10) {
        CHECK(answers[at] == -1);
        CHECK((tokens[at] < 9) == (t % 2 == 0));
        if (t % 2 == 1) values[tokens[at - 1]] = tokens[at];
      } else {
        REQUIRE(values.contains(tokens[at]));
        CHECK(answers[at] == values.at(tokens[at]));
        ++asked[tokens[at]];
      }
    }
    CHECK(values.size() == 5);  // the keys differ
  }
  CHECK(asked.size() == 9);
  CHECK(task->next(0, 0).tokens.to_vector<std::int32_t>() == tokens);
  CHECK(task->next(1, 0).tokens.to_vector<std::int32_t>() != tokens);
}

TEST_CASE("mqar: rows that have no room for questions and keys that cannot differ are refused") {
  const RunConfig full = config_of({{"data.name", "mqar"}, {"data.pairs", "4"}}, 8);
  CHECK(contains(error_of<ConfigError>([&] { task_of(full); }), "data.pairs is 4 and a row has 8 tokens"));
  const RunConfig few = config_of({{"data.name", "mqar"}, {"data.pairs", "4"}, {"data.alphabet", "3"}}, 32);
  CHECK(contains(error_of<ConfigError>([&] { validate(few); }), "the keys of a row differ"));
}
