// The sum of a step's gradients with micro-batches, as one fixed binary tree for each batch, batches in order:
//
//   ((g0 + g1) + (g2 + g3))   of the first batch, + (the same of the second), + ...
//
// Each g is the gradient of one part of the rows (train.micro_batches parts). With several ranks each has the leaves of
// one subtree, and adds the upper levels together with the others (train/ranks/ranks.h). So the sum has the same bits
// for every number of ranks. A part without scored targets has no gradient and counts as nothing.
//
// memory: one gradient arena for each level of the tree that is open, at most log2(leaves of this rank), and one more
// with several batches.
#pragma once

#include <cstdint>
#include <vector>

#include "models/params.h"
#include "train/ranks/ranks.h"

namespace eddy {

class GradientTree {
 public:
  // `ranks` is null in one process.
  GradientTree(ParamStore& params, Ranks* ranks) : params_(params), ranks_(ranks) {}

  // Call these around the backward pass of each leaf of a batch. `present`: whether there was one.
  void begin_leaf();
  void end_leaf(bool present);
  // Ends a batch. `present` says which ranks had a leaf with a gradient in it; it is not read in one process.
  void end_batch(const std::vector<bool>& present);
  // Leaves the sum in the arena, and marks which parameters have a gradient in it.
  void finish();

 private:
  // Puts the arena's sum on the stack; adds the top of the stack to the arena.
  void put_aside();
  void merge();

  ParamStore& params_;
  Ranks* ranks_;
  std::vector<Tensor> stack_, spare_;  // an undefined tensor: nothing
  std::vector<bool> reached_;          // parameters that a gradient reached
  std::int64_t leaves_ = 0;            // of the batch so far
  bool has_batch_ = false;             // the bottom of the stack is the sum of the batches before
  bool in_arena_ = false;              // the arena holds a sum
  bool begun_ = false;
};

}  // namespace eddy
