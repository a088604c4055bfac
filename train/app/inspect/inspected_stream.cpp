// Cuts a text, and rows of a task that may be longer than in training.
#include "train/app/inspect/inspected_stream.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "models/eddy/registry.h"
#include "tensor/base/format.h"
#include "train/app/report/task_rows.h"

namespace eddy::app {
using namespace training;
namespace {

// Rows of a task whose rows stand alone are read so many times as long as in training: 2 to 16 times, and about
// 4,096 tokens at most.
std::int64_t times_longer(std::int64_t trained) {
  return std::clamp<std::int64_t>(4096 / trained, 2, 16);
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

TaskStream task_stream(const LoadedRun& run, const std::string& path, std::int64_t tokens,
                       std::int64_t seed) {
  const auto read = [&](const TaskReading& reading) { return rows_of_task("inspect", run, path, reading); };
  TaskReading reading{.seed = seed};
  TaskRows rows = read(reading);  // one call, which says how long rows are
  const std::int64_t trained = rows.carries_state ? 0 : rows.task->row_length(),
                     longer = trained > 0 ? times_longer(trained) * trained : 0;
  if (longer > 0 && keeps_state_over(*run.model, longer)) reading.sequence = longer;
  reading.tokens = tokens;
  rows = read(reading);
  TaskStream made;
  made.stream = {.tokens = std::move(rows.tokens.front()),
                 .answers = std::move(rows.answers.front()),
                 .segment = rows.segment,
                 .carried = rows.carries_state,
                 .begins = std::move(rows.begins),
                 .apart = reading.sequence > 0 && rows.task->row_length() == longer ? trained : 0,
                 .targets = rows.targets,
                 .block = rows.block,
                 .tail = rows.tail};
  const std::shared_ptr<const Task> task = rows.task;
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
