// The factory function of each task. A new task adds its declaration here and its row in task_registry.cpp.
#pragma once

#include <memory>

#include "train/tasks/task.h"

namespace eddy {

std::unique_ptr<Task> make_text_task(TaskArguments&& arguments);
std::unique_ptr<Task> make_cifar_task(TaskArguments&& arguments);
std::unique_ptr<Task> make_copy_task(TaskArguments&& arguments);
std::unique_ptr<Task> make_recall_task(TaskArguments&& arguments);
std::unique_ptr<Task> make_state_tracking_task(TaskArguments&& arguments);

}  // namespace eddy
