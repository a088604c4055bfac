// The forward passes of one evaluation, captured once and replayed if the device supports it
// (train/step/graph_cache.h): one copy sends a batch's tokens to the device, a graph is replayed, and the
// losses are copied back. Results are bit-identical to the eager pass.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "train/eval/evaluate.h"
#include "train/step/graph_cache.h"
#include "train/step/step_inputs.h"

namespace eddy {

class CapturedEval {
 public:
  // `model` must outlive this object, and its parameters must not change meanwhile.
  CapturedEval(const Model& model, const EvalPlan& plan);
  ~CapturedEval();
  CapturedEval(const CapturedEval&) = delete;
  CapturedEval& operator=(const CapturedEval&) = delete;

  // Results on the model's device.
  struct Output {
    Tensor losses;         // [batch * rows], 0 where not scored
    Tensor logits;         // with EvalPlan::count_correct
    bool carried = false;  // whether the batch started from a carried state
  };
  // Returns the losses of a batch. With carry_state it starts from the state in `carried` and updates it.
  // aliasing: the next call may overwrite the output and the tensors in `carried`.
  // errors: those of the model.
  Output run(const Batch& batch, CarriedState& carried);

  // The reason why batches are not captured, returned once; else "".
  std::string take_message() { return kinds_.take_message(); }
  // The number of graphs captured so far.
  std::size_t graphs() const { return kinds_.graphs(); }

 private:
  struct Graph;

  Output forward(ForwardInput input, const Tensor& targets, const Batch& batch, CarriedState& carried) const;
  std::unique_ptr<Graph> record(const Batch& batch, const State& state) const;

  const Model& model_;
  bool carry_, logits_, wanted_;
  GraphCache<Graph> kinds_;
};

}  // namespace eddy
