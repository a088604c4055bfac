// The memory that a run takes, counted before it takes any: the model, the optimizer, training steps and an evaluation
// run on the counting device (ops/cost/counting.h), whose allocator keeps the statistics that the device's would have.
//
//   resident peak = program and text, resident now           measured
//                 + nodes of the tape, on the heap           measured while the counting run makes them
//                 + what the allocator would have written    counted
//                 + working memory of products               2 MiB for each thread, estimated
#pragma once

#include <cstdint>
#include <limits>
#include <string>

#include "train/config/run_config.h"
#include "train/plan/machine_memory.h"
#include "train/tasks/task.h"

namespace eddy::training {

// units: bytes.
struct MemoryPlan {
  std::int64_t parameters = 0;  // how many, not bytes
  std::int64_t values = 0, gradients = 0, optimizer = 0;
  std::int64_t state = 0;        // carried from step to step
  std::int64_t activations = 0;  // the rest of what is live at the peak of a step
  std::int64_t kept = 0;         // freed blocks that the allocator keeps for requests of their size
  std::int64_t text = 0;         // the tokens of the data and what reading them left
  std::int64_t program = 0;      // code, libraries, the tape's nodes, working memory of products
  std::int64_t reading = 0;      // the most that was resident so far: while the text was read
  std::int64_t peak = 0;         // of the process, or on a GPU of the device's memory
  bool on_gpu = false;
  // Whether all was counted. Else counting ended at its limit, of which `peak` is all that is known.
  bool complete = true;
  // Above 0: the run has many layers, or long rows that are read token by token, and was counted with so many; what
  // each adds was multiplied.
  std::int64_t counted_layers = 0, counted_tokens = 0;

  // Returns what does not depend on the batch.
  std::int64_t of_model() const { return values + gradients + optimizer; }
};

// What a plan is counted from.
struct PlannedRun {
  RunConfig config;  // with the sizes that the task fills in (Task::set_model_sizes)
  DevicePrecision placement;
  Batch batch;  // one of training
  bool carries_state = false;
  std::int64_t text = 0;  // bytes that reading the data left resident
  // For a command with flags of its own: what takes less, in its flags. Empty: the keys of the run that help are named.
  std::string advice{};
  std::string shorter_rows{};        // Task::shorter_rows
  std::int64_t validation_rows = 0;  // Task::validation_rows, of a run that evaluates all of them; else 0
};

// Returns the run of a task, whose positions stay as they are. `before_text` is what was resident before the data were
// read.
PlannedRun planned_run(const RunConfig& config, const DevicePrecision& placement, Task& task,
                       std::int64_t before_text);

// Returns a later batch of such a run: its rows go on from the batch before.
Batch continued(const Batch& batch);
// Returns the first rows of a batch.
Batch first_rows(const Batch& batch, std::int64_t rows);
// Returns the batch with the first tokens of its rows.
Batch first_tokens(const Batch& batch, std::int64_t tokens);

// Counts a run: three steps, with evaluations before and after them, whose last batch has the rows that are left. Of
// more than 256 layers a few are counted, and what each adds is multiplied. So are rows of more than 8,192 tokens where
// each adds the same work and kernels of its own (each_token_adds). Counting ends where tensors take more than `most`
// bytes: a run far too large would take long to count, and much memory for the nodes of its tape.
// errors: those of make_model and forward.
MemoryPlan plan_memory(const PlannedRun& run, std::int64_t most = std::numeric_limits<std::int64_t>::max());

}  // namespace eddy::training
