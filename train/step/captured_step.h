// Training steps that are captured once and replayed, if the device supports it. The captured work is the
// eager step of train_step.h. The eager step itself runs if capture fails or does not pay; results are
// bit-identical. A replay sends the step's inputs in one copy and copies the state to the memory that the
// graph reads.
//
// Steps of the same kind share a graph (graph_cache.h). Two steps are of the same kind if the host does the
// same for both:
//
//   part of the kind   shapes, block sizes, whether some or all rows restart, state tensors on the host
//   data of a replay   tokens, which rows restart, learning rate, random numbers
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "train/step/graph_cache.h"
#include "train/step/train_step.h"

namespace eddy {

class CapturedStep {
 public:
  static constexpr std::size_t kMaxGraphs = 64;  // block sizes drawn from 16 to 48 make 33
  static constexpr std::size_t kMaxKinds = 256;  // remembered

  // `model` and `optimizer` must outlive this object. With `wanted` false, or on a device that does not
  // support capture, every step is a train_step.
  CapturedStep(Model& model, Optimizer& optimizer, bool wanted, std::size_t max_graphs = kMaxGraphs);
  ~CapturedStep();
  CapturedStep(const CapturedStep&) = delete;
  CapturedStep& operator=(const CapturedStep&) = delete;

  // Returns the result of one step, as train_step does.
  // aliasing: the next call may overwrite the tensors in `carried`; copy those that you keep.
  // errors: those of train_step.
  StepResult step(const std::vector<Batch>& batches, CarriedState& carried, const StepOptions& options);

  // The reason why steps are not captured, returned once; else "".
  std::string take_message() { return kinds_.take_message(); }
  // The number of graphs captured so far.
  std::size_t graphs() const { return kinds_.graphs(); }

 private:
  struct Graph;

  // `given`: the state, with `rows` rows, that the first batch starts from; empty for a cold start.
  std::unique_ptr<Graph> record(const std::vector<Batch>& batches, const State& given, std::int64_t rows,
                                const StepOptions& options);
  StepResult replay(Graph& graph, const std::vector<Batch>& batches, CarriedState& carried,
                    const StepOptions& options);

  Model& model_;
  Optimizer& optimizer_;
  bool wanted_;
  GraphCache<Graph> kinds_;
};

}  // namespace eddy
