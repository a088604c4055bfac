// What is read of a run's task where a text would stand: rows of tokens that the task gives with their answers, cut
// into calls of equal length.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "train/run/checkpoint.h"
#include "train/tasks/task.h"
#include "train/text/tokenizer.h"

namespace eddy::app {

struct TaskReading {
  std::int64_t rows = 1;      // read side by side
  std::int64_t tokens = 1;    // of a row, at least, in whole calls
  std::int64_t sequence = 0;  // train.sequence; 0: as in training
  std::int64_t seed = 1;      // added to train.seed, so that other rows are drawn than those of training
  bool one_state = false;     // a row ends where it would begin with a new state
};

struct TaskRows {
  std::vector<std::vector<std::int32_t>> tokens, answers;  // of each row; kNotScored: no answer
  std::vector<char> begins;                    // of each call: whether rows begin with a new state
  std::int64_t segment = 1;                    // tokens of a call
  std::int64_t targets = 0;                    // of a call: its last so many tokens may have answers; 0: all
  std::int64_t block = 0, tail = 0;            // as of a Batch
  bool carries_state = false;                  // whether the task's state goes from call to call
  std::shared_ptr<const training::Task> task;  // for the names of tokens and answers
};

// Reads rows of the run's task, which begin where its streams begin. `path` is the run's, for errors; `where` begins
// them.
// errors: ValueError for a task on texts, and for one that gives calls of several lengths;
// those of make_task and of the task.
TaskRows rows_of_task(const char* where, const training::LoadedRun& run, const std::string& path,
                      const TaskReading& reading);

// Tokens as their numbers, with spaces between where one may have two digits.
std::unique_ptr<training::Tokenizer> number_tokens(std::int64_t vocab);

}  // namespace eddy::app
