// A model in training on random tokens, for measurements: the step of the training loop, clipping and
// optimizer included, recorded into a graph where the device can do that. The tokens are made beforehand.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "models/model.h"
#include "train/config/placement.h"
#include "train/step/captured_step.h"

namespace eddy {

struct StepTrialOptions {
  ModelConfig model;
  std::int64_t batch = 1, sequence = 1;
  std::int64_t tail = 16;    // positions scored of a model with readout tail, at most the sequence
  bool capture = true;       // where the device can
  bool carry_state = false;  // each step goes on from the state of the one before; else it begins cold
};

class StepTrial {
 public:
  // errors: ConfigError for the model's sizes; ShapeError for a sequence that it does not take;
  // OutOfMemoryError.
  StepTrial(const StepTrialOptions& options, const Placement& placement);

  // One step, waited for.
  // errors: NonFiniteError when its loss or gradient is not finite; OutOfMemoryError.
  StepResult step();
  // The same, each kernel asked for by itself whatever was recorded.
  StepResult step_uncaptured();
  // Steps until one is replayed from a graph, at most a few, or two where nothing is recorded.
  void warm_up();

  const Model& model() const { return *model_; }
  bool captured() const { return captured_->graphs() > 0; }
  // Why steps are not recorded although they were to be; empty when they are.
  std::string message() { return captured_->take_message(); }

 private:
  StepResult run(CapturedStep& step);

  bool capture_, carry_state_;
  std::unique_ptr<Model> model_;
  std::unique_ptr<Optimizer> optimizer_;
  std::unique_ptr<CapturedStep> captured_, plain_;
  std::vector<Batch> batches_;
  CarriedState carried_;
  double learning_rate_;
  std::int64_t steps_ = 0;
};

// Ids below `limit` that a step's name and number give.
std::vector<std::int32_t> random_tokens(std::int64_t count, std::int64_t limit, const char* stream,
                                        std::int64_t step);

}  // namespace eddy
