// The sum of a step's gradients with micro-batches, as one fixed binary tree for each batch, batches in order:
//
//   ((g0 + g1) + (g2 + g3))   of the first batch, + (the same of the second), + ...
//
// Each g is the gradient of one part of the rows (train.micro_batches parts). With several ranks each has the leaves of
// one subtree, and adds the upper levels together with the others (train/ranks/tree_sum.h). So the sum has the same bits
// for every number of ranks. A part without scored targets has no gradient and counts as nothing.
//
// Ranks add a batch's gradients bucket by bucket, while the backward pass of its last leaf still computes others:
//
//   a gradient of the last leaf is final  ->  its bucket is complete  ->  added to the leaves before, in their order
//   ->  begins to leave  ->  between two nodes of the backward pass, and at the batch's end, it goes on
//
// memory: one gradient arena for each level of the tree that is open, at most log2(leaves of this rank), and one more
// with several batches; half of a bucket for each that is on its way.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "autograd/leaf_watch.h"
#include "models/params.h"
#include "train/ranks/tree_sum.h"
#include "train/step/arena_buckets.h"
#include "train/step/clock.h"

namespace eddy::training {

class GradientTree {
 public:
  // In one process.
  explicit GradientTree(ParamStore& params) : params_(params) {}
  GradientTree(ParamStore& params, Ranks& ranks, const ArenaBuckets& buckets)
      : params_(params), ranks_(&ranks), buckets_(&buckets) {}
  GradientTree(const GradientTree&) = delete;
  GradientTree& operator=(const GradientTree&) = delete;

  // Call these around the forward and backward pass of each leaf of a batch. With ranks, begin_last_leaf begins the last
  // one; `present` says which ranks have a leaf with a gradient in the batch. `present` of end_leaf: whether there was a
  // backward pass.
  void begin_leaf();
  void begin_last_leaf(std::vector<bool> present);
  void end_leaf(bool present);
  void end_batch();
  // Leaves the sum in the arena, and marks which parameters have a gradient in it. Of buckets with shard a rank has the
  // sum of its own parameters; what stands elsewhere means nothing.
  void finish();

 private:
  // Puts the arena's sum on the stack; adds the top of the stack to the arena.
  void put_aside();
  void merge();
  // What begin_last_leaf prepares: the gradient of a parameter is final, a bucket leaves, buckets go on.
  void note_final(std::size_t parameter);
  void send(std::size_t bucket, bool in_arena);
  void advance();

  ParamStore& params_;
  Ranks* ranks_ = nullptr;
  const ArenaBuckets* buckets_ = nullptr;
  std::vector<Tensor> stack_, spare_;  // an undefined tensor: nothing
  std::vector<bool> reached_;          // parameters that a gradient reached
  std::int64_t leaves_ = 0;            // of the batch so far
  bool has_batch_ = false;             // the bottom of the stack is the sum of the batches before
  bool in_arena_ = false;              // the arena holds a sum
  bool begun_ = false;
  // Of the last leaf of a batch.
  std::optional<LeafWatch> watch_;
  std::vector<bool> present_;
  std::vector<std::size_t> missing_, bucket_of_;  // gradients that a bucket waits for; by parameter
  std::size_t unsent_ = 0;                        // the first so many buckets
  std::vector<std::unique_ptr<TreeSum>> sums_;
  Clock::time_point advanced_;
};

// Overwrites the values of parameters that a rank does not hold with those of the ranks that hold them.
// errors: those of TreeSum.
void gather_values(ParamStore& params, Ranks& ranks, const ArenaBuckets& buckets);

// The 2-norm of the gradient of each parameter, f64 [parameters] on their device. With shard each rank computes those
// of its own and gets the others.
Tensor gradient_norms(const ParamStore& params, Ranks* ranks, const ArenaBuckets* buckets);

}  // namespace eddy::training
