// Checkpoints, written atomically: a checkpoint is complete or absent. It is written under a temporary name,
// every file and the folder are flushed to disk, it is renamed to checkpoints/step-N, and only then the
// one-line file `latest` points to it. A process killed at any moment leaves the checkpoint before.
//
//   RUN/id                                         tells the run from others (run_folder.h)
//   RUN/config.json                                the configuration of the run
//   RUN/tokenizer.json                             for tasks on text; tokenizer.model with SentencePiece
//   RUN/metrics.jsonl, report.html
//   RUN/checkpoints/step-N/model.safetensors       parameters
//                          optimizer.safetensors   moments and step count
//                          recurrent.safetensors   the carried state, for models that have one
//                          state.json              config, tokenizer, step, best validation loss, the
//                                                  run's id, and the task's own: stream positions, a curriculum
//                          digests                 size and digest of each of these files (digests.h)
//   RUN/checkpoints/latest, best                   the names of two checkpoints
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "autograd/state.h"
#include "models/eddy/registry.h"
#include "models/optimizer/optimizer.h"
#include "ops/core/product_algorithms.h"
#include "train/config/run_config.h"
#include "train/tasks/task.h"
#include "train/text/baselines.h"
#include "train/text/tokenizer.h"

namespace eddy::training {

// A time when the run went back (rollback.h): the steps after `to` up to `step` count, but the weights after `step` are
// those of step-`to`. The learning rate is multiplied by the factor from then on.
struct Rollback {
  std::int64_t step = 0, to = 0;  // from which step to which
  double rate_factor = 1;         // of the learning rate, all times taken together
};

// The content of state.json besides config and tokenizer.
struct TrainingState {
  std::int64_t step = 0;                                       // optimizer steps done, skipped ones included
  std::int64_t tokens = 0;                                     // trained on
  double seconds = 0;                                          // of training
  double best_loss = std::numeric_limits<double>::infinity();  // of an evaluation
  std::int64_t best_step = -1;                                 // of that evaluation; -1: none yet
  double loss = std::numeric_limits<double>::quiet_NaN();      // of the last step
  double progress = std::numeric_limits<double>::quiet_NaN();  // of that step (StepRecord::progress)
  double lowest_loss = std::numeric_limits<double>::infinity();  // of all steps
  bool learned = false;     // the task ended the run before its steps were done
  std::string run_id;       // run_folder.h
  std::string text_sha256;  // of the data trained on; empty where the configuration determines them
  std::vector<TextPhase> text_phases;  // the texts and their digests (Task::data_phases)
  std::string data_folder;  // the folder from which a relative data.path was taken; empty when not known
  std::string kernels;      // of the GPU trained on (describe in ops/backends.h); empty on the CPU
  ProductAlgorithms
      algorithms;  // of products there (ops/core/product_algorithms.h); empty: the first proposals
  std::optional<Baselines> baselines;  // of the text; none for other tasks, and where nothing is evaluated
  std::int64_t epoch_tokens = 0;       // Task::epoch_tokens
  std::string task = "null";           // the result of Task::save, as JSON
  std::int64_t bad_steps = 0;          // steps in a row until now that were not finite
  std::int64_t good_step = -1;         // of the last good checkpoint (rollback.h); -1: none
  std::int64_t candidate_step = -1;    // of one that may prove good; -1: none
  std::vector<Rollback> rollbacks;     // the times when the run went back, in order

  // What the learning rate is multiplied by.
  double rate_factor() const { return rollbacks.empty() ? 1 : rollbacks.back().rate_factor; }
};

// Writes checkpoints/step-N of a run, points `latest` (and with `is_best`, `best`) to it, removes all older
// ones but the last `keep`, the best, those that the run may go back to and the last two before the loss went up by
// kGoodLossRange or was lost (run_folder.h), and returns its folder. `optimizer` is the result of Optimizer::save;
// `tokenizer` is null for tasks without text. The run's folder exists.
// errors: IoError; the older checkpoints are then unchanged.
std::filesystem::path save_checkpoint(const std::filesystem::path& run_dir, const RunConfig& config,
                                      const Tokenizer* tokenizer, const Model& model,
                                      const std::map<std::string, Tensor>& optimizer, const State& recurrent,
                                      const TrainingState& state, bool is_best, std::int64_t keep);

// What every checkpoint has in common, those of a program's own loop (train/loops/user_loop.h) included: writes
// checkpoints/step-N of a folder by `write`, which gets the folder for its files, so that it is complete or absent.
// `finish` then gets the folder of all checkpoints and the name of this one: pointers to it, and which older ones go.
// errors: IoError; those of write and finish; the older checkpoints are then unchanged.
std::filesystem::path write_checkpoint(
    const std::filesystem::path& run_dir, std::int64_t step,
    const std::function<void(const std::filesystem::path&)>& write,
    const std::function<void(const std::filesystem::path&, const std::string&)>& finish);

// A trained model with its configuration and training state.
struct LoadedRun {
  RunConfig config;                      // that it was trained with
  std::unique_ptr<Tokenizer> tokenizer;  // null when the task has none
  std::unique_ptr<Model> model;          // with the checkpoint's weights
  std::int64_t step = 0;                 // optimizer steps done
  TrainingState state;                   // what else state.json says
  std::filesystem::path checkpoint;      // the folder it came from
};

// The run at a path, which is a checkpoint's folder or a run's folder. Of a run the checkpoint `which` is
// loaded: "latest", "best", "newest-whole" or "step-N" (find_checkpoint in run_folder.h). The model lies on
// `device`; dtype and precision are those of make_model. Each file is checked against the checkpoint's digests before
// it is used. The run may be training: where it saves or removes meanwhile, what `which` then means is read.
// errors: IoError when there is none; FormatError for damaged files. The text says which checkpoint is whole.
LoadedRun load_run(const std::string& path, Dtype dtype = Dtype::f32, const std::string& which = "latest",
                   Device device = kCpu, MatmulPrecision precision = MatmulPrecision::f32);

// Lets a task find the data that a run was trained on, in any working directory, and refuse others.
void expect_data_of(const LoadedRun& run, TaskArguments& arguments);

// The configuration of the run at a path, as load_run would find it.
// errors: as load_run.
RunConfig load_config_of_run(const std::string& path, const std::string& which = "latest");

// Loads a checkpoint's parameters into `params`, and its optimizer state into `optimizer`.
// errors: as load_run.
void load_weights(const std::filesystem::path& checkpoint, ParamStore& params);
void load_optimizer(const std::filesystem::path& checkpoint, Optimizer& optimizer);
// The recurrent state of a checkpoint; empty when none was saved.
// errors: as load_run.
State load_recurrent(const std::filesystem::path& checkpoint);

}  // namespace eddy::training
