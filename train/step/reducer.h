// The sum of a step's gradients over its micro-batches and ranks, behind the few calls that a step makes. In a plain
// run, of one micro-batch a batch on one process, backward passes add up by themselves: every call but update() does
// nothing.
//
// With micro-batches the sum is one fixed binary tree for each batch, batches in order:
//
//   ((g0 + g1) + (g2 + g3))   of the first batch, + (the same of the second), + ...
//
// Each g is the gradient of one micro-batch, a part of the batch's rows. With several ranks each has the
// micro-batches of one subtree, and adds the upper levels together with the others (train/ranks/tree_collective.h). So
// the sum has the same bits for every number of ranks. A micro-batch without scored targets has no gradient and counts
// as nothing.
//
// Ranks add a batch's gradients bucket by bucket, while the backward pass of their last micro-batch computes others:
//
//   a gradient of the last micro-batch is final  ->  its bucket is complete  ->  added to the micro-batches before, in
//   their order  ->  begins to leave  ->  between two nodes of the backward pass, and at the batch's end, it goes on
//
// On a GPU the sum of a bucket is enqueued as a whole when it begins, beside the backward pass (ops/core/peers.h); the
// host waits for all of them at the batch's end.
//
// memory: one gradient arena for each level of the tree that is open, at most log2(micro-batches of this rank), and one
// more with several batches; half of a bucket for each that is on its way, on a GPU one half for all.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "autograd/leaf_watch.h"
#include "models/optimizer/optimizer.h"
#include "models/params.h"
#include "train/ranks/tree_collective.h"
#include "train/step/arena_buckets.h"
#include "train/step/clock.h"

namespace eddy::training {

class GradientReducer {
 public:
  // `micro_batches`: parts of each batch, a power of two. `scored`: how many targets each micro-batch of the step has,
  // batch by batch, those of other ranks too. Without ranks this process computes all, and needs no buckets.
  GradientReducer(ParamStore& params, std::int64_t micro_batches, std::vector<std::int64_t> scored,
                  Ranks* ranks = nullptr, const ArenaBuckets* buckets = nullptr);
  GradientReducer(const GradientReducer&) = delete;
  GradientReducer& operator=(const GradientReducer&) = delete;

  // Call these around the forward and backward pass of each of this process's micro-batches, in order, also of those
  // without scored targets, which have no backward pass.
  // errors: those of TreeCollective.
  void begin();
  void end();
  // Leaves the sum in the arena, and marks which parameters have a gradient in it. Of buckets with shard a rank has the
  // sum of its own parameters; what stands elsewhere means nothing.
  // errors: those of Ranks::exchange.
  void finish();
  // Enqueues one step of the optimizer, and with shard gets the values of the parameters that other ranks hold. Returns
  // the norm of the gradient before clipping, one f64 on the parameters' device. The norm of a sum over micro-batches
  // is that of the parameters' norms: ranks that hold some of the parameters get the same bits. `before` is as in
  // Optimizer::apply.
  Tensor update(Optimizer& optimizer, const Tensor& scalars, const Tensor& before);
  // The 2-norm of the gradient of each parameter, f64 [parameters], after update; undefined where the optimizer
  // computed only the norm of all.
  const Tensor& norms() const { return norms_; }

 private:
  // Whether micro-batch `number` of the present batch has a gradient.
  bool has_gradient(std::int64_t number) const;
  // Puts the arena's sum on the stack; adds the top of the stack to the arena.
  void put_aside();
  void add_top();
  void end_batch();
  // Of the last micro-batch of a batch, with ranks: watches its gradients; one is final, a bucket leaves, buckets go
  // on.
  void watch_gradients();
  void note_final(std::size_t parameter);
  void send(std::size_t bucket, bool in_arena);
  void advance();

  ParamStore& params_;
  std::int64_t micro_batches_;
  std::vector<std::int64_t> scored_;
  Ranks* ranks_;
  const ArenaBuckets* buckets_;
  bool is_plain_;               // nothing to add
  std::int64_t local_, first_;  // micro-batches of a batch that this process computes; the first one's number
  std::int64_t batch_ = 0;      // that is being computed
  std::int64_t ended_ = 0;      // local micro-batches of it
  std::vector<Tensor> stack_, spare_;  // an undefined tensor: nothing
  std::vector<bool> reached_;          // parameters that a gradient reached
  bool in_arena_ = false;              // the arena holds a sum
  bool begun_ = false;
  Tensor norms_;
  // Of the last micro-batch of a batch.
  std::optional<LeafWatch> watch_;
  std::vector<bool> present_;                     // ranks with a gradient in the batch
  std::vector<std::size_t> missing_, bucket_of_;  // gradients that a bucket waits for; by parameter
  std::size_t unsent_ = 0;                        // the first so many buckets
  Tensor space_;                                  // of a GPU, for what arrives
  std::vector<std::unique_ptr<TreeCollective>> sums_;
  Clock::time_point advanced_;
};

}  // namespace eddy::training
