// Cuts a text, and gathers batches of a task.
#include "train/app/inspect/inspected_stream.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "models/eddy/registry.h"
#include "tensor/base/format.h"
#include "tensor/files/strict_json.h"
#include "train/run/checkpoint.h"

namespace eddy::app {
using namespace training;
namespace {

// Rows of a task whose rows stand alone are read so many times as long as in training: 2 to 16 times, and about
// 4,096 tokens at most.
std::int64_t times_longer(std::int64_t trained) {
  return std::clamp<std::int64_t>(4096 / trained, 2, 16);
}

// A task that gives one row at a time.
std::shared_ptr<Task> one_row_task(const LoadedRun& run, std::int64_t sequence, std::int64_t seed) {
  TaskArguments arguments;
  arguments.config = run.config;
  arguments.config.train.batch = 1;
  arguments.config.train.micro_batches = 1;
  arguments.config.train.accumulate = 1;
  arguments.config.train.seed = seed;
  arguments.config.data.offset = "zero";
  if (sequence > 0) arguments.config.train.sequence = sequence;
  std::shared_ptr<Task> task = make_task(std::move(arguments));
  if (!task->carries_state() && !run.state.task.empty()) {
    const std::string file = (run.checkpoint / "state.json").string();
    task->load(json_of_text(run.state.task, file), file);
  }
  return task;
}

// Whether the model reads rows of that length with a state that does not grow.
bool keeps_state_over(const Model& model, std::int64_t time) {
  try {
    model.check_length(time, false);
    return model.remaining_context({}) < 0 &&
           stream_bytes(model.full_config(), time) == stream_bytes(model.full_config(), 2 * time);
  } catch (const Error&) {  // as for a table of positions
    return false;
  }
}

}  // namespace

Batch InspectedStream::batch(std::int64_t from, std::int64_t time) const {
  const std::int64_t end = std::ssize(tokens), valid = std::min(time, end - from);
  const auto part = [&](const std::vector<std::int32_t>& ids, std::int64_t begin, std::int64_t stop) {
    return std::vector<std::int32_t>(ids.begin() + begin, ids.begin() + std::min(stop, end));
  };
  std::vector<std::int32_t> input = part(tokens, from, from + valid);
  std::vector<std::int32_t> target =
      is_text() ? part(tokens, from + 1, from + valid + 1) : part(answers, from, from + valid);
  input.resize(static_cast<std::size_t>(time), 0);
  target.resize(static_cast<std::size_t>(time), kNotScored);
  if (targets > 0) target.erase(target.begin(), target.end() - targets);
  const auto call = static_cast<std::size_t>(from / segment);
  const bool fresh = begins.empty() ? from == 0 : begins[call] != 0;
  Batch made = make_batch(1, std::move(input), std::move(target), {fresh && from % segment == 0 ? 1 : 0});
  made.block = block;
  made.tail = tail;
  return made;
}

InspectedStream text_stream(std::span<const std::int32_t> tokens, const TokenReading& reading) {
  InspectedStream stream;
  stream.tokens.assign(tokens.begin(), tokens.end());
  stream.segment = reading.segment;
  stream.carried = reading.carry_state;
  return stream;
}

TaskStream task_stream(const LoadedRun& run, std::int64_t tokens, std::int64_t seed) {
  std::shared_ptr<Task> task = one_row_task(run, 0, seed);
  if (task->tokenizer() != nullptr)
    fail<ValueError>("inspect: the task {} reads texts (name one by --text FILE)", run.config.data.name);
  TaskStream made;
  InspectedStream& stream = made.stream;
  stream.carried = task->carries_state();
  if (const std::int64_t trained = task->row_length(); !stream.carried && trained > 0) {
    const std::int64_t longer = times_longer(trained) * trained;
    if (keeps_state_over(*run.model, longer)) {
      task = one_row_task(run, longer, seed);
      if (task->row_length() == longer) stream.apart = trained;
    }
  }
  for (std::int64_t step = 0; std::ssize(stream.tokens) < tokens; ++step) {
    const Batch batch = task->next(step, 0);
    const std::vector<std::int32_t> ids = raw::contiguous(batch.tokens).to_vector<std::int32_t>();
    const std::vector<std::int32_t> answers = raw::contiguous(batch.targets).to_vector<std::int32_t>();
    const auto time = std::ssize(ids), targets = std::ssize(answers);
    if (step > 0 && time != stream.segment)
      fail<ValueError>("inspect: the task {} gives rows of {} and of {} tokens (all of one length)",
                       run.config.data.name, stream.segment, time);
    stream.segment = time;
    stream.targets = targets < time ? targets : 0;
    stream.block = batch.block;
    stream.tail = batch.tail;
    stream.tokens.insert(stream.tokens.end(), ids.begin(), ids.end());
    stream.answers.insert(stream.answers.end(), static_cast<std::size_t>(time - targets), kNotScored);
    stream.answers.insert(stream.answers.end(), answers.begin(), answers.end());
    stream.begins.push_back(step == 0 || !stream.carried || batch.begin != RowsBegin::none ? 1 : 0);
  }
  made.name = task->name();
  made.token_text = [task](std::int32_t id) {
    const std::string name = task->token_name(id);
    if (name.empty()) return fmt::format("{} ", id);
    return name.size() > 1 ? name + " " : name;
  };
  made.answer_text = [task](std::int32_t id) {
    const std::string name = task->answer_name(id);
    return name.empty() ? fmt::format("{}", id) : name;
  };
  return made;
}

}  // namespace eddy::app
