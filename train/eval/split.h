// The parts of a task's data.
#pragma once

#include "models/value_names.h"

namespace eddy::training {

// What an evaluation may read: the validation data, those that are trained on, those kept for a test, or everything.
enum class Split { valid, train, test, all };

}  // namespace eddy::training

template <>
struct eddy::ValueNames<eddy::training::Split> {
  static constexpr const char* all[] = {"valid", "train", "test", "all"};
};
