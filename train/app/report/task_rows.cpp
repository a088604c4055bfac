// Rows as the task gives them for training, by another seed.
#include "train/app/report/task_rows.h"

#include <span>
#include <string_view>
#include <utility>

#include "tensor/base/format.h"
#include "train/tasks/task.h"

namespace eddy::app {
using namespace training;
namespace {

// Tokens as numbers, with spaces between where one may have two digits.
class NumberedTokens final : public Tokenizer {
 public:
  explicit NumberedTokens(std::int64_t count) : count_(count) {}

  std::string name() const override { return "numbers"; }
  std::int64_t vocab_size() const override { return count_; }
  std::vector<std::int32_t> encode(std::string_view) const override {
    fail<ValueError>("tokenizer numbers: it shows tokens and reads no text");
  }
  std::string to_json() const override { return R"({"name":"numbers"})"; }

 private:
  void append_text(std::string& text, std::int32_t id) const override {
    text += fmt::format("{}{}", id, count_ > 10 ? " " : "");
  }
  std::int64_t count_;
};

}  // namespace

TaskRows rows_of_task(const char* where, const LoadedRun& run, const std::string& path, std::int64_t rows,
                      std::int64_t most) {
  TaskArguments arguments;
  arguments.config = run.config;
  arguments.config.train.batch = rows;
  ++arguments.config.train.seed;  // other rows than those of training
  arguments.run = path;
  expect_data_of(run, arguments);
  const std::unique_ptr<Task> task = make_task(std::move(arguments));
  TaskRows read;
  read.tokens.resize(static_cast<std::size_t>(rows));
  read.answers.resize(read.tokens.size());
  read.tokenizer = std::make_unique<NumberedTokens>(run.model->config().vocab);
  for (std::int64_t step = 0; std::ssize(read.tokens.front()) < most; ++step) {
    const Batch batch = task->next(step, 0);
    const std::int64_t time = batch.tokens.dim(1);
    if (batch.targets.dim(1) != time)
      fail<ValueError>(
          "{}: {} was trained on the task {}, which has {} for {} tokens (tasks with an answer behind each token are read)",
          where, path, run.config.data.name,
          batch.targets.dim(1) == 1 ? "one answer" : "answers at the end alone", time);
    if (step > 0 && (batch.begin != RowsBegin::none || time != read.segment)) break;
    read.segment = time;
    for (std::size_t row = 0; row < read.tokens.size(); ++row) {
      const auto add = [&](std::vector<std::int32_t>& to, const Tensor& from) {
        const std::int32_t* const begin = from.data<std::int32_t>() + static_cast<std::int64_t>(row) * time;
        to.insert(to.end(), begin, begin + time);
      };
      add(read.tokens[row], batch.tokens);
      add(read.answers[row], batch.targets);
    }
    if (!task->carries_state()) break;
  }
  read.carries_state = task->carries_state();
  return read;
}

}  // namespace eddy::app
