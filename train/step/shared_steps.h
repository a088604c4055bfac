// The steps of one run on several ranks. Rank 0 reads the data, decides and writes; the others only compute:
//
//   rank 0     sends: configuration, parameters, moments   step: each rank's rows | ...  state?        end
//   others     make the same model                         train_step, with all   | ...  their rows    return
//
// So the positions in the data, time limits, signals and files are rank 0's alone, and the parameters have the same
// bits everywhere: each rank updates its own copy by the same sum of gradients.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "models/eddy/registry.h"
#include "models/optimizer/optimizer.h"
#include "train/config/run_config.h"
#include "train/ranks/ranks.h"
#include "train/step/arena_buckets.h"
#include "train/step/train_step.h"

namespace eddy::training {

// Checks that so many ranks can share the batches of `command`; `key` is what sets the number of their parts, for
// errors.
// errors: ConfigError for a number that is not a power of two or is above train.micro_batches, and for a GPU where this
// build moves no bytes between GPUs.
void check_ranks(const char* command, const char* key, const RunConfig& config, int ranks);

// Sends the others a model, to compute with until the next one comes. With an optimizer, to train it: also their
// parts of its state and of `carried`.
// errors: those of Ranks::exchange.
void send_model(Ranks& ranks, const RunConfig& config, const Model& model,
                const Optimizer* optimizer = nullptr, const ArenaBuckets* buckets = nullptr,
                const CarriedState& carried = {});

// Rank 0's side. If an error leaves it in the middle of a step, the others wait: then the program must end them.
class SharedSteps {
 public:
  // Sends the others the run as it begins, and leaves in `carried` this rank's rows, and with train.shard_optimizer in
  // `optimizer` this rank's part. `ranks` must outlive this object.
  // errors: those of Ranks::exchange.
  SharedSteps(Ranks& ranks, const RunConfig& config, Model& model, std::unique_ptr<Optimizer>& optimizer,
              CarriedState& carried);

  // Begins a step on all ranks: sends the others their rows, and leaves in `batches` and `options` this rank's part.
  // Each call is followed by train_step and end_step.
  void begin_step(std::vector<Batch>& batches, StepOptions& options);
  void end_step() { ranks_.in_exchange = false; }
  // Returns the state of all rows.
  State whole_state(const CarriedState& local, const Model& model);
  // Returns the state of the optimizer of all parameters, as Optimizer::save.
  std::map<std::string, Tensor> whole_optimizer(const Optimizer& local);

 private:
  Ranks& ranks_;
  ArenaBuckets buckets_;
};

// Ends the others' `work` (train/eval/rank_work.h). Rank 0 calls it between steps, or where no step began.
void end_work(Ranks& ranks);

}  // namespace eddy::training
