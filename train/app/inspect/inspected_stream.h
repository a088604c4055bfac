// What an inspection reads: a text, or streams that a task gives with their answers, cut into calls of equal length.
//
//   text      token      a   b   c   d       the model owes the next token behind each: the loss of b stands at b
//   task      token      0   1   1   0       behind each token an answer, or none
//             answer     .   .   odd .       the loss of "odd" stands at the token behind which it is given
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "train/app/report/comparison.h"
#include "train/run/checkpoint.h"
#include "train/step/batch.h"

namespace eddy::app {

// The text of a token or an answer for people.
using TokenText = std::function<std::string(std::int32_t id)>;

struct InspectedStream {
  std::vector<std::int32_t> tokens;
  std::vector<std::int32_t> answers{};  // behind each token; kNotScored: none. Empty: a text
  std::int64_t segment = 1;             // tokens of a call
  bool carried = false;                 // whether a call goes on from the state of the one before
  std::vector<char> begins{};  // whether each call begins with a new state; empty: the first one alone
  // Where no call goes on from another: "without the state" is the same read in parts of so many tokens, each with a
  // new state; 0: it is not read so.
  std::int64_t apart = 0;
  std::int64_t targets = 0;          // of a call: its last so many tokens may have answers; 0: all
  std::int64_t block = 0, tail = 0;  // as of a Batch

  bool is_text() const { return answers.empty(); }
  // `time` tokens from one on as a batch of one row; behind the end of a text token 0, which has no target.
  training::Batch batch(std::int64_t from, std::int64_t time) const;
};

// A text as token_losses reads it (train/app/report/comparison.h).
InspectedStream text_stream(std::span<const std::int32_t> tokens, const TokenReading& reading);

// Streams of a task, and what its tokens and answers are called.
struct TaskStream {
  InspectedStream stream;
  TokenText token_text, answer_text;
  std::string name;  // of the task
};

// At least `tokens` tokens of streams of the task that a run was trained on, in whole calls. Streams of a task that
// carries its state go on from call to call as in training. Where rows stand alone and the model keeps a state of
// constant size, they are longer than in training, so that one sees how long the state lasts; parts as long as in
// training then have no state of the parts before.
// `path` is the run's, for errors; `seed` that of rows_of_task (train/app/report/task_rows.h).
// errors: those of rows_of_task.
TaskStream task_stream(const training::LoadedRun& run, const std::string& path, std::int64_t tokens,
                       std::int64_t seed);

}  // namespace eddy::app
