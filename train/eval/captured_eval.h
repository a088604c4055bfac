// Forward passes of one evaluation that are recorded once and replayed, where the device can do that
// (recorded_kinds.h): a batch's tokens go up by one copy, one graph is replayed, the losses come back. What
// runs as it is gives the same bits.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "train/eval/evaluate.h"
#include "train/step/recorded_kinds.h"
#include "train/step/step_inputs.h"

namespace eddy {

class CapturedEval {
 public:
  // Of a model whose parameters stay as they are meanwhile.
  CapturedEval(const Model& model, const EvalPlan& plan);
  ~CapturedEval();
  CapturedEval(const CapturedEval&) = delete;
  CapturedEval& operator=(const CapturedEval&) = delete;

  // On the model's device; the next call may overwrite them.
  struct Output {
    Tensor losses;         // [batch * rows], 0 where not scored
    Tensor logits;         // with EvalPlan::count_right
    bool carried = false;  // whether it went on from a state
  };
  // Of one batch. With carry_state it goes on from the state in `carried`, and leaves its own there, which
  // the next call may overwrite as well.
  // errors: those of the model.
  Output run(const Batch& batch, CarriedState& carried);

  // What a person should know and has not been told, once: why batches are not recorded. Else "".
  std::string take_message() { return kinds_.take_message(); }
  // Graphs recorded so far.
  std::size_t graphs() const { return kinds_.graphs(); }

 private:
  struct Graph;

  Output ask(ForwardInput input, const Tensor& targets, const Batch& batch, CarriedState& carried) const;
  std::unique_ptr<Graph> record(const Batch& batch, const State& state) const;

  const Model& model_;
  bool carry_, logits_, wanted_;
  RecordedKinds<Graph> kinds_;
};

}  // namespace eddy
