// A model in training on random tokens, for measurements. It runs the steps of the training loop, with
// clipping and optimizer, captured into a graph where the device supports it, and a GPU's one ahead of their
// numbers, as the loop does (train/step/step_queue.h). The tokens are drawn beforehand.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "models/eddy/registry.h"
#include "train/config/run_config.h"
#include "train/step/step_queue.h"
#include "train/step/train_step.h"

namespace eddy::training {
struct PlannedRun;
}

namespace eddy::app {

struct StepTrialOptions {
  ModelConfig model;
  std::int64_t batch = 16;
  std::int64_t sequence = 0;       // 0: model.context
  std::int64_t tail = 16;          // scored positions of a model with readout tail, at most the sequence
  bool capture = true;             // where the device supports it
  std::int64_t micro_batches = 1;  // as StepOptions
  Recompute recompute = Recompute::none;
  bool carry_state = false;  // each step continues from the state of the last; else it starts without one
  std::vector<training::Batch> batches{};  // of every step; none: one of random tokens, another for each step
  OptimizerOptions optimizer{};
  bool checks_memory = true;  // refuse random steps that this machine has no memory for
};

// Returns the options of a run's own steps, with the rows of one of its batches.
StepTrialOptions steps_of_run(const training::PlannedRun& run);

class StepTrial {
 public:
  // Random steps are counted before they take memory.
  // errors: ConfigError for the model's sizes, and for a value of `recompute` that it does not have; ShapeError for a
  // sequence that it does not support; OutOfMemoryError.
  StepTrial(const StepTrialOptions& options, const training::DevicePrecision& placement);

  // Waits for the oldest step under way and returns its result. Before that it launches a step, and a GPU's first call
  // two: one is under way between two calls.
  // errors: NonFiniteError when its loss or gradient is not finite; OutOfMemoryError.
  training::StepResult step();
  // Runs one step, whole, behind those that are under way, and launches each kernel instead of replaying a graph.
  // errors: those of step.
  training::StepResult step_uncaptured();
  // Runs steps until one is replayed from a graph, at most a few; two steps where nothing is captured.
  void warm_up();

  const Model& model() const { return *model_; }
  std::int64_t sequence() const { return sequence_; }  // tokens of a row
  bool captured() const { return recorder_.graphs() > 0; }
  // Why steps are not captured although options.capture asked for it; else empty.
  std::string message() { return recorder_.take_message(); }

 private:
  const std::vector<training::Batch>& next_batches() const;
  training::StepOptions next_options() const;
  void launch();
  training::StepResult collect();

  bool capture_, carry_state_;
  std::int64_t micro_batches_;
  Recompute recompute_;
  std::int64_t sequence_;
  std::unique_ptr<Model> model_;
  std::unique_ptr<Optimizer> optimizer_;
  training::Recorder recorder_;
  std::vector<std::vector<training::Batch>> batches_;  // of one step each, used in turns
  training::CarriedState carried_;
  std::int64_t launched_ = 0, steps_ = 0;  // steps_: that are done
  std::unique_ptr<training::StepQueue> queue_;
};

// Returns random ids below `limit`; they depend on the name of the stream and the step.
std::vector<std::int32_t> random_tokens(std::int64_t count, std::int64_t limit, const char* stream,
                                        std::int64_t step);

}  // namespace eddy::app
