// Gathers the batches of a task, by another seed than that of training.
#include "train/app/report/task_rows.h"

#include <span>
#include <string_view>
#include <utility>

#include "tensor/base/format.h"
#include "tensor/files/strict_json.h"
#include "train/step/batch.h"

namespace eddy::app {
using namespace training;
namespace {

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

std::shared_ptr<Task> task_of_rows(const LoadedRun& run, const std::string& path,
                                   const TaskReading& reading) {
  TaskArguments arguments;
  arguments.config = run.config;
  TrainConfig& train = arguments.config.train;
  train.batch = reading.rows;
  train.micro_batches = 1;
  train.accumulate = 1;
  // Unsigned, since train.seed may be the largest number.
  train.seed = static_cast<std::int64_t>(static_cast<std::uint64_t>(train.seed) +
                                         static_cast<std::uint64_t>(reading.seed));
  if (reading.sequence > 0) train.sequence = reading.sequence;
  arguments.config.data.offset = value_name(StreamOffset::zero);
  arguments.run = path;
  expect_data_of(run, arguments);
  std::shared_ptr<Task> task = make_task(std::move(arguments));
  // What a curriculum has reached. Positions in streams are not taken: these rows begin at the beginning.
  if (!task->carries_state() && !run.state.task.empty()) {
    const std::string file = (run.checkpoint / "state.json").string();
    task->load(json_of_text(run.state.task, file), file);
  }
  return task;
}

}  // namespace

TaskRows rows_of_task(const char* where, const LoadedRun& run, const std::string& path,
                      const TaskReading& reading) {
  if (run.tokenizer)
    fail<ValueError>("{}: the task {} reads texts (name one by --text FILE)", where, run.config.data.name);
  const std::shared_ptr<Task> task = task_of_rows(run, path, reading);
  TaskRows read;
  read.task = task;
  read.carries_state = task->carries_state();
  read.tokens.resize(static_cast<std::size_t>(reading.rows));
  read.answers.resize(read.tokens.size());
  for (std::int64_t step = 0; std::ssize(read.tokens.front()) < reading.tokens; ++step) {
    const Batch batch = task->next(step, 0);
    const std::int64_t time = batch.tokens.dim(1), targets = batch.targets.dim(1);
    const bool begins = step == 0 || !read.carries_state || batch.begin != RowsBegin::none;
    if (reading.one_state && step > 0 && (begins || time != read.segment)) break;
    if (step > 0 && time != read.segment)
      fail<ValueError>("{}: the task {} gives rows of {} and of {} tokens (all of one length)", where,
                       run.config.data.name, read.segment, time);
    read.segment = time;
    read.targets = targets < time ? targets : 0;
    read.block = batch.block;
    read.tail = batch.tail;
    read.begins.push_back(begins ? 1 : 0);
    const std::vector<std::int32_t> ids = raw::contiguous(batch.tokens).to_vector<std::int32_t>(),
                                    answers = raw::contiguous(batch.targets).to_vector<std::int32_t>();
    for (std::size_t row = 0; row < read.tokens.size(); ++row) {
      const auto part = [row](const std::vector<std::int32_t>& from, std::int64_t width) {
        return std::span(from).subspan(row * static_cast<std::size_t>(width),
                                       static_cast<std::size_t>(width));
      };
      const auto of_row = part(ids, time), answers_of_row = part(answers, targets);
      read.tokens[row].insert(read.tokens[row].end(), of_row.begin(), of_row.end());
      read.answers[row].insert(read.answers[row].end(), static_cast<std::size_t>(time - targets), kNotScored);
      read.answers[row].insert(read.answers[row].end(), answers_of_row.begin(), answers_of_row.end());
    }
  }
  return read;
}

std::unique_ptr<Tokenizer> number_tokens(std::int64_t vocab) {
  return std::make_unique<NumberedTokens>(vocab);
}

}  // namespace eddy::app
