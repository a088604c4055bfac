// Training steps that are recorded once and replayed, where the device can do that. The eager step of
// train_step.h is what is recorded, and what runs wherever recording does not pay or does not work: the
// results are the same to the bit.
//
//   kind of step seen        what runs
//   the first two times      train_step: sets up what is set up once (tables, plans of products, kernels)
//   the third time           recorded into a graph, which is then replayed
//   from then on             inputs are sent by one copy, the state goes to its place, the graph is replayed
//
// Two steps are of one kind when the host does the same for both: equal shapes and block sizes, whether some
// or all rows begin anew, and tensors that the state keeps on the host. New tokens, rows that begin, learning
// rates and random numbers need no new graph. A few kinds are recorded; when more turn up, the others run as
// they are.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "train/train_step.h"

namespace eddy {

class CapturedStep {
 public:
  static constexpr std::size_t kMostGraphs = 8;
  static constexpr std::size_t kMostKinds = 64;  // that are counted
  static constexpr int kWarmUp = 2;

  // Of a model and its optimizer, which must outlive this. With `wanted` false, or on a device that cannot
  // record, every step is a train_step.
  CapturedStep(Model& model, Optimizer& optimizer, bool wanted);
  ~CapturedStep();
  CapturedStep(const CapturedStep&) = delete;
  CapturedStep& operator=(const CapturedStep&) = delete;

  // As train_step. The tensors in `carried` may be overwritten by the next call, which takes them over: copy
  // what must last. errors: those of train_step.
  StepResult step(const std::vector<Batch>& batches, CarriedState& carried, const StepOptions& options);

  // What a person should know and has not been told, once: why steps are not recorded. Else "".
  std::string take_message();
  // Graphs recorded so far.
  std::size_t graphs() const { return graphs_; }

 private:
  struct Graph;
  struct Kind;

  Kind* kind_of(const std::vector<Batch>& batches, const CarriedState& carried, const StepOptions& options);
  std::unique_ptr<Graph> record(const std::vector<Batch>& batches, const CarriedState& carried,
                                const StepOptions& options);
  StepResult replay(Graph& graph, const std::vector<Batch>& batches, CarriedState& carried,
                    const StepOptions& options);
  void say(const std::string& text);

  Model& model_;
  Optimizer& optimizer_;
  bool wanted_;
  std::vector<std::unique_ptr<Kind>> kinds_;
  std::size_t graphs_ = 0;
  std::string message_;
  bool said_ = false;
};

}  // namespace eddy
