// The factory function of each task. A new task adds its declaration here and its row in task_registry.cpp.
#pragma once

#include <memory>

#include "train/tasks/task.h"

namespace eddy {

std::unique_ptr<Task> make_text_task(TaskArguments&& arguments);
std::unique_ptr<Task> make_cifar_task(TaskArguments&& arguments);
std::unique_ptr<Task> make_copy_task(TaskArguments&& arguments);
std::unique_ptr<Task> make_recall_task(TaskArguments&& arguments);
std::unique_ptr<Task> make_parity_task(TaskArguments&& arguments);
std::unique_ptr<Task> make_state_tracking_task(TaskArguments&& arguments);

// Sets a model's vocab and n_out where they are 0, for a task whose tokens do not depend on data.
// errors: ConfigError for other sizes than these; `rule` says what the task has. ConfigError for another readout
// than "all" where `why_all` says why the task needs that one.
void fit_tokens(ModelConfig& model, std::int64_t vocab, std::int64_t n_out, const std::string& rule,
                const char* why_all = nullptr);

}  // namespace eddy
