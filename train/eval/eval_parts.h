// The batches of an evaluation, cut into parts of their rows, which ranks share. With one part this is evaluate_batch.
//
// A batch of r rows has gcd(r, EvalShare::parts) parts, so its losses have the same bits for every number of ranks. The
// state that is carried belongs to a part; where the number of rows changes, all parts start cold, as a whole batch
// does.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "train/eval/evaluate.h"
#include "train/ranks/message.h"

namespace eddy::training {

// Returns x, contiguous and in f64 on the CPU.
Tensor plain_f64(Tensor x);

// What an evaluation needs of a batch.
struct PartLosses {
  std::vector<double> losses;  // [rows of the batch * rows of targets], 0 where not scored
  std::int64_t correct = 0;    // with EvalPlan::count_correct
  bool carried = false;        // whether a part started from a carried state
};

// The parts that one rank computes.
class LocalParts {
 public:
  LocalParts(const Model& model, const EvalPlan& plan) : model_(model), plan_(plan) {}
  // Computes a batch's parts, in order. `cold`: forgets the states of the batch before.
  PartLosses run(const std::vector<Batch>& parts, bool cold);
  // The states after the last batch, in the order of its parts; empty ones without a state.
  std::vector<State> states() const;
  // Why a GPU did not replay batches.
  std::string take_message();

 private:
  const Model& model_;
  EvalPlan plan_;
  std::vector<std::unique_ptr<Recorder>> recorders_;  // each has its own memory for the state
  std::vector<CarriedState> carried_;
};

// All parts, as rank 0 sees them.
class EvalParts {
 public:
  EvalParts(const Model& model, const EvalPlan& plan);
  // errors: those of the model and of Ranks::exchange.
  PartLosses run(const Batch& batch);
  // The state of all rows after the last batch; empty without one.
  State state();
  std::string take_message() { return local_.take_message(); }

 private:
  int ranks() const { return share_.ranks != nullptr ? share_.ranks->size() : 1; }
  const Model& model_;
  EvalShare share_;
  LocalParts local_;
  EvalPlan plan_;
  std::int64_t rows_ = 0, parts_ = 0;  // of the last batch
  bool begun_ = false;
};

// Another rank's side: its answers to RankCommand::evaluate and send_evaluated. A message that begins an evaluation
// carries the plan, and replaces `evaluation`.
void answer_evaluation(Ranks& ranks, Message& message, const Model& model,
                       std::unique_ptr<LocalParts>& evaluation);
void answer_evaluated(Ranks& ranks, const LocalParts& evaluation);

}  // namespace eddy::training
