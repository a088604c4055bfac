// What a run starts from: task, model, optimizer and state, new or from a checkpoint, and its folder.
#pragma once

#include <filesystem>
#include <memory>

#include "train/plan/memory.h"
#include "train/run/checkpoint.h"
#include "train/run/run_folder.h"
#include "train/run/trainer.h"
#include "train/step/train_step.h"
#include "train/tasks/task.h"

namespace eddy::training {

// A run that can take its next step.
struct ReadyRun {
  RunConfig config;  // with the sizes that the task fills in
  std::filesystem::path folder;
  std::string
      notes;  // what is new in its data or its vocabulary, and on its kernels, a line each; for the events
  bool has_grown = false;          // a new phase of its texts begins (train/text/text_phase.h)
  bool made_folder = false;        // by open_folder
  bool is_latest = false;          // `latest` names the checkpoint that it was resumed from
  std::int64_t planned_steps = 0;  // train.steps of a resumed run before
  std::unique_ptr<RunLock> lock;   // of a run to resume; of a new one from open_folder on
  std::unique_ptr<Task> task;
  std::unique_ptr<Model> model;
  std::unique_ptr<Optimizer> optimizer;
  CarriedState carried;  // of training; evaluations have their own
  TrainingState state;
  MemoryPlan memory;
};

// Makes task, model and optimizer, and loads what the request names. All checks are here, before a folder is
// made.
// errors: those of run_training (trainer.h).
ReadyRun prepare_run(const TrainRequest& request);

// Checks what open_folder would meet, and writes nothing.
// errors: IoError.
void check_folder(const ReadyRun& run, const TrainRequest& request);

// Makes all checks of train() up to its first write, and makes nothing. Returns what the
// run would be, in a line.
// errors: those of run_training.
std::string dry_run(const TrainRequest& request);

// Makes the folder of a new run with its id, configuration and tokenizer, or corrects what the end of a resumed
// run may have left: half-written files, the pointer `best`, a missing id.
// errors: IoError.
void open_folder(ReadyRun& run, const TrainRequest& request);

}  // namespace eddy::training
