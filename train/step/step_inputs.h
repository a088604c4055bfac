// What a training step reads: this process's micro-batches, and the numbers that change from step to step. All of it
// is in tensors, so that a recorder can send it to the device by one copy, and replay the step with another's.
//
//   batch 0   0 1 2 3     four micro-batches a batch, numbered through the step; a batch's follow each other on a rank.
//   batch 1   4 5 6 7     Of two ranks, rank 1 computes 2 3 6 7: its local ones 0 1 2 3
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "train/step/train_step.h"

namespace eddy::training {

struct StepInputs {
  StepOptions options;
  std::size_t local = 1;             // micro-batches of each batch that this process computes
  std::size_t first = 0;             // the number of the first of them in the batch
  std::vector<Batch> micro_batches;  // the local ones, batch by batch
  std::vector<Tensor> shares;        // scalars: the scored targets of each / those of the whole step
  std::vector<std::int64_t> scored;  // targets of all micro-batches of the step, those of other ranks too
  Tensor scalars;                    // the bytes of the optimizer's AdamScalars
  Tensor micro_batches_before;       // i64 scalar: of all steps before; it numbers the dropout masks

  // The inputs of a step on the host; `values` is the dtype of the parameters.
  // errors: ValueError for options.scored of another size; ShapeError where the rows cannot be split.
  StepInputs(const std::vector<Batch>& batches, const StepOptions& options, const Optimizer& optimizer,
             Dtype values);

  std::int64_t all_scored() const;
  // The number of local micro-batch i in the step, and back; the rank that computes a number.
  std::size_t number(std::size_t i) const { return i / local * in_batch() + first + i % local; }
  std::size_t local_index(std::size_t number) const { return number / in_batch() * local + number % local; }
  int owner(std::size_t number) const { return static_cast<int>(number % in_batch() / local); }

  // For a recorder: all tensors, and the part of the step's signature that is not in their shapes (recorder.h).
  std::vector<Tensor*> tensors();
  std::string signature() const;

  // The model's input for local micro-batch i, from the state of its rows before it.
  ForwardInput forward(std::size_t i, const CarriedState& state, const Model& model) const;
  // The states of this process's rows, split into those of its micro-batches and merged again. Local micro-batch i
  // has the state i % local.
  std::vector<CarriedState> split(const CarriedState& whole, const Model& model) const;
  CarriedState merge(const std::vector<CarriedState>& states, const Model& model) const;

  // What ranks tell each other about a step; one process alone sends nothing.
  // errors: those of Ranks::exchange.
  //
  // Whether the step ends before local micro-batch i: StepOptions::stop of rank 0 is asked between two batches.
  bool stops_before(std::size_t i) const;
  // A number for each micro-batch of the step, from those of the local ones.
  std::vector<double> gather(const std::vector<double>& of_local) const;
  // Whether something holds on every rank.
  bool on_all_ranks(bool here) const;

 private:
  std::size_t in_batch() const { return static_cast<std::size_t>(options.micro_batches); }
};

}  // namespace eddy::training
