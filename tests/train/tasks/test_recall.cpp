// The recall task: its documents, its segments, and what it measures.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "tensor/base/error.h"
#include "tests/support/errors.h"
#include "tests/support/tasks.h"
#include "tests/support/threads.h"
#include "train/step/train_step.h"
#include "train/tasks/recall_data.h"
#include "train/tasks/task.h"

namespace {

using namespace eddy;
using namespace eddy::training;
using namespace eddy::test;

RunConfig recall_config() {
  RunConfig config;
  config.model.family = "block_recurrent";
  config.model.model = "block_recurrent";
  config.model.recurrent_layers = {0};
  config.model.dim = 8;
  config.model.layers = 1;
  config.model.heads = 2;
  config.model.states = 3;
  config.model.segment = 8;
  config.model.window = 4;
  config.data.name = "recall";
  config.data.noise = 5;
  config.data.extensions.get<RecallKeys>().every = 3;
  config.data.extensions.get<RecallKeys>().segments = 3;
  config.train.batch = 2;
  return config;
}

}  // namespace

TEST_CASE("recall: a document tells a secret once and asks for it in its labels alone") {
  RecallShape shape;
  shape.secrets = 5;
  shape.noise = 9;
  shape.every = 4;
  shape.segment = 16;
  shape.segments = 2;
  CHECK(shape.vocab() == 15);
  CHECK(shape.questions() == std::vector<std::int64_t>{10, 14, 18, 22, 26, 30});
  const RecallDocuments documents = recall_documents(random_key(1, "test", 0), 0, 200, shape);
  std::vector<int> told(5);
  for (std::size_t row = 0; row < 200; ++row) {
    const std::int32_t* tokens = documents.tokens.data() + row * 32;
    const std::int32_t* labels = documents.labels.data() + row * 32;
    REQUIRE(tokens[0] >= 2);
    REQUIRE(tokens[0] < 7);
    ++told[static_cast<std::size_t>(tokens[0] - 2)];
    for (std::int64_t place = 1; place < 32; ++place) {
      const bool asked = place >= 10 && (place - 10) % 4 == 0;
      const bool fits = asked ? tokens[place] == kRecallQuestion && labels[place] == tokens[0]
                              : tokens[place] >= 7 && tokens[place] < 15 && labels[place] == kNotScored;
      CHECK(fits);
    }
  }
  // 200 draws over 5 values: mean 40, standard deviation 5.7; 5 of those are allowed.
  for (const int count : told) CHECK(std::abs(count - 40) <= 28);
  const RecallDocuments later = recall_documents(random_key(1, "test", 0), 7, 1, shape);
  CHECK(std::equal(later.tokens.begin(), later.tokens.end(), documents.tokens.begin() + 7 * 32));
}

TEST_CASE("recall: the segments of a document come one after the other and begin with a flag") {
  const std::unique_ptr<Task> task = task_of(recall_config());
  CHECK(task->carries_state());
  std::vector<std::int32_t> first_row;
  for (std::int64_t step = 0; step < 3; ++step) {
    const Batch batch = task->next(step, 0);
    CHECK(batch.tokens.shape() == Shape{2, 8});
    CHECK(batch.start.defined() == (step == 0));
    const std::vector<std::int32_t> tokens = batch.tokens.to_vector<std::int32_t>();
    first_row.insert(first_row.end(), tokens.begin(), tokens.begin() + 8);
  }
  const std::vector<std::int64_t> questions = RecallShape{4, 5, 3, 8, 3}.questions();
  for (std::size_t i = 0; i < first_row.size(); ++i)
    CHECK((first_row[i] == kRecallQuestion) ==
          (std::find(questions.begin(), questions.end(), static_cast<std::int64_t>(i)) != questions.end()));
  CHECK(task->next(3, 0).start.defined());
  CHECK(task->next(1, 0).tokens.to_vector<std::int32_t>() ==
        task->next(1, 0).tokens.to_vector<std::int32_t>());
  CHECK(task->next(0, 0).tokens.to_vector<std::int32_t>() !=
        task->next(3, 0).tokens.to_vector<std::int32_t>());
}

TEST_CASE("recall: what does not fit is refused") {
  RunConfig config = recall_config();
  config.data.noise = 7;
  CHECK(contains(error_of<ConfigError>([&] { task_of(config); }), "noise + 1 < segment"));
  config = recall_config();
  const std::unique_ptr<Task> task = task_of(config);
  config.model.vocab = 20;
  CHECK(
      contains(error_of<ConfigError>([&] { task->set_model_sizes(config.model); }), "recall has 14 tokens"));
  config = recall_config();
  task->set_model_sizes(config.model);
  const std::unique_ptr<Model> model = make_model(config.model, Dtype::f64);
  EvalOptions options;
  options.split = Split::train;
  CHECK(contains(error_of<ValueError>([&] { task->evaluate(*model, options); }), "no split"));
  CHECK_THROWS_AS(recall_documents(random_key(1, "t", 0), 0, 0, {}), ValueError);
  CHECK_THROWS_AS(recall_documents(random_key(1, "t", 0), 0, 1, {4, 31, 7, 32, 2}), ValueError);
}

TEST_CASE("recall: an evaluation says the loss after a border and at each place") {
  const OneThread one;
  RunConfig config = recall_config();
  const std::unique_ptr<Task> task = task_of(config);
  task->set_model_sizes(config.model);
  const std::unique_ptr<Model> model = make_model(config.model, Dtype::f64);
  model->params().initialize(1);
  EvalOptions options;
  options.batch = 3;
  options.batches = 6;  // two documents in each row
  options.by_position = true;
  const EvalResult result = task->evaluate(*model, options);
  CHECK(result.tokens == 2 * 3 * 6);
  CHECK(result.carried);
  double nats = 0, border = 0;
  for (std::size_t place = 0; place < result.position_loss.size(); ++place) {
    nats += result.position_loss[place];
    if (place == 9 || place == 18) border += result.position_loss[place];  // the first asked in parts 2 and 3
    CHECK(result.position_count[place] == (place >= 6 && place % 3 == 0 ? 6 : 0));
  }
  CHECK(std::abs(nats / 36 - result.loss) <= 1e-12);
  CHECK(std::abs(border / 12 - extra(result, "after_border")) <= 1e-12);
  options.clear_state = true;
  const EvalResult cleared = task->evaluate(*model, options);
  CHECK(cleared.loss != result.loss);
  // The first segment has nothing to clear.
  CHECK(cleared.position_loss[6] == result.position_loss[6]);
  CHECK(cleared.position_loss[9] != result.position_loss[9]);
}
