// What a run of a task without texts reads where a text would stand: fresh rows of its task, with the answer behind
// each token.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "train/run/checkpoint.h"
#include "train/text/tokenizer.h"

namespace eddy::app {

struct TaskRows {
  std::vector<std::vector<std::int32_t>> tokens, answers;  // of each row; kNotScored: no answer
  std::unique_ptr<training::Tokenizer> tokenizer;          // shows a token as its number
  std::int64_t segment = 1;                                // tokens of a batch
  bool carries_state = false;  // whether the task's state goes from batch to batch
};

// Draws `rows` rows of the run's task that training did not read, each of one batch or, where the task carries its
// state, of as many batches as hold `most` tokens, unless rows end before. `path` is the run's, for errors; `where`
// begins them.
// errors: ValueError for a task that has no answer for each token; those of making the task.
TaskRows rows_of_task(const char* where, const training::LoadedRun& run, const std::string& path,
                      std::int64_t rows, std::int64_t most);

}  // namespace eddy::app
