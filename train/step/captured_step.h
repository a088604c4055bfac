// Training steps that are recorded once and replayed, where the device can do that. The eager step of
// train_step.h is what is recorded (recorded_kinds.h), and what runs wherever recording does not pay or does
// not work: the results are the same to the bit. For a replay, inputs are sent by one copy, and the state
// goes to its place.
//
// Two steps are of one kind when the host does the same for both: equal shapes and block sizes, whether some
// or all rows begin anew, and tensors that the state keeps on the host. New tokens, rows that begin, learning
// rates and random numbers need no new graph.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "train/step/recorded_kinds.h"
#include "train/step/train_step.h"

namespace eddy {

class CapturedStep {
 public:
  static constexpr std::size_t kMostGraphs = 64;  // block sizes drawn from 16 to 48 make 33
  static constexpr std::size_t kMostKinds = 256;  // that are counted

  // Of a model and its optimizer, which must outlive this. With `wanted` false, or on a device that cannot
  // record, every step is a train_step.
  CapturedStep(Model& model, Optimizer& optimizer, bool wanted, std::size_t most_graphs = kMostGraphs);
  ~CapturedStep();
  CapturedStep(const CapturedStep&) = delete;
  CapturedStep& operator=(const CapturedStep&) = delete;

  // As train_step. The tensors in `carried` may be overwritten by the next call, which takes them over: copy
  // what must last.
  // errors: those of train_step.
  StepResult step(const std::vector<Batch>& batches, CarriedState& carried, const StepOptions& options);

  // What a person should know and has not been told, once: why steps are not recorded. Else "".
  std::string take_message() { return kinds_.take_message(); }
  // Graphs recorded so far.
  std::size_t graphs() const { return kinds_.graphs(); }

 private:
  struct Graph;

  // `given`: the state that the first batch is given, of so many rows; empty when it begins cold.
  std::unique_ptr<Graph> record(const std::vector<Batch>& batches, const State& given, std::int64_t rows,
                                const StepOptions& options);
  StepResult replay(Graph& graph, const std::vector<Batch>& batches, CarriedState& carried,
                    const StepOptions& options);

  Model& model_;
  Optimizer& optimizer_;
  bool wanted_;
  RecordedKinds<Graph> kinds_;
};

}  // namespace eddy
