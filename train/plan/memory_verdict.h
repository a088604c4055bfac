// Whether the memory that a run takes is there, and what would need less.
#pragma once

#include <cstdint>
#include <string>

#include "train/plan/machine_memory.h"
#include "train/plan/memory.h"

namespace eddy::training {

// How a plan and the budget for it compare.
enum class Fit { fits, close, exceeds };
struct MemoryVerdict {
  Fit fit = Fit::fits;
  std::string text{};  // unless it fits: what is needed, what there is, and what would need less
};

// Compares a plan with the budget: more than 10 % above it, with free swap, exceeds; down to 10 % below it, without
// swap, is close, and so is what exceeds where train.memory_check or overrule_memory_check overrules the check. The
// advice fits the cause, and names only keys that the run reads; batches that it names have been counted. A budget that
// is not known, and the memory of a GPU, are not compared.
MemoryVerdict judge(const PlannedRun& run, const MemoryPlan& plan, const MemoryBudget& budget);

// Counts a run, but where it is compared with the budget not beyond so many times that.
// errors: those of plan_memory.
MemoryPlan plan_memory_near(const PlannedRun& run, const MemoryBudget& budget, std::int64_t budgets);

// Counts a run of a command and compares it with the budget there is: warns (ops/core/warnings.h) where that is close.
// What takes several times the budget is not counted to its end.
// errors: OutOfMemoryError where it exceeds the budget; those of plan_memory.
MemoryPlan require_memory(const char* command, const PlannedRun& run);

}  // namespace eddy::training
