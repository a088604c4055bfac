// Checkpoints: whole or absent, never half. A checkpoint is written under a temporary name, every file and
// the folder are flushed to the disk, then it is renamed to checkpoints/step-N, and only then does the
// one-line file `latest` point to it. A kill at any moment leaves the one before.
//
//   RUN/config.json              the configuration of the run
//   RUN/tokenizer.json           of tasks on text; tokenizer.model, when it is one of SentencePiece
//   RUN/metrics.jsonl, report.html
//   RUN/checkpoints/step-N/model.safetensors       parameters
//                          optimizer.safetensors   moments and step count
//                          recurrent.safetensors   the carried state, for models that have one
//                          state.json              config, tokenizer, step, best validation loss, and
//                                                  what the task keeps: stream positions, a curriculum
//   RUN/checkpoints/latest, best                   the names of two checkpoints
#pragma once

#include <cstdint>
#include <filesystem>
#include <limits>
#include <memory>
#include <string>

#include "autograd/state.h"
#include "models/model.h"
#include "models/optimizer/optimizer.h"
#include "train/config/run_config.h"
#include "train/text/tokenizer.h"

namespace eddy {

// What state.json carries besides config and tokenizer.
struct TrainingState {
  std::int64_t step = 0;  // optimizer steps done, skipped ones included
  std::int64_t tokens = 0;
  double seconds = 0;
  double best_loss = std::numeric_limits<double>::infinity();
  std::int64_t best_step = -1;
  std::string text_sha256;    // of the text trained on; empty when not known
  std::string task = "null";  // what Task::save gave, as JSON
};

// Writes checkpoints/step-N of a run, points `latest` (and with `is_best`, `best`) to it and removes older
// ones: the last `keep` and the best stay. `tokenizer` may be null: not every task is on text. Returns its
// folder.
// errors: IoError; the checkpoints before are untouched then.
std::filesystem::path save_checkpoint(const std::filesystem::path& run_dir, const RunConfig& config,
                                      const Tokenizer* tokenizer, const Model& model,
                                      const Optimizer& optimizer, const State& recurrent,
                                      const TrainingState& state, bool is_best, std::int64_t keep);

// A trained model with what it was trained by.
struct LoadedRun {
  RunConfig config;
  std::unique_ptr<Tokenizer> tokenizer;  // null when the task has none
  std::unique_ptr<Model> model;
  std::int64_t step = 0;
  TrainingState state;
  std::filesystem::path checkpoint;  // the folder it came from
};

// The run behind a path: a checkpoint's folder, or a run's folder, whose latest checkpoint is taken (`which`
// may name another file than "latest", such as "best"); its model lies on the device.
// errors: IoError when there is none; FormatError for damaged files.
LoadedRun load_run(const std::string& path, Dtype dtype = Dtype::f32, const std::string& which = "latest",
                   Device device = kCpu);

// The optimizer and recurrent state of a checkpoint.
// errors: IoError, FormatError.
void load_optimizer(const std::filesystem::path& checkpoint, const Model& model, Optimizer& optimizer);
State load_recurrent(const std::filesystem::path& checkpoint);

}  // namespace eddy
