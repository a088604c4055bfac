// Texts as tests read them.
#pragma once

#include <string>

#include "train/tasks/task.h"
#include "train/tasks/text_data.h"

namespace eddy::test {

using namespace training;

// Texts as bytes, in segments of two tokens.
inline TaskArguments text_arguments(const DataPaths& path, const std::string& order = "windows") {
  TaskArguments arguments;
  arguments.config.data.path = path;
  arguments.config.data.order = order;
  arguments.config.data.tokenizer = "byte";
  arguments.config.train.sequence = 2;
  arguments.run = "the run";
  return arguments;
}

inline TextData read_text_of(TaskArguments arguments) {
  return read_text_data(arguments);
}

}  // namespace eddy::test
