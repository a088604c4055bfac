// The sum of one array over all ranks, as a binary tree: ranks 2i and 2i + 1 first, then pairs of pairs. It does not
// depend on which rank computes which part of it, so each computes a share:
//
//   level 0   rank 0 <-> 1, 2 <-> 3     each sends one part of its numbers and adds the other
//   level 1   rank 0 <-> 2, 1 <-> 3     each sends one part of what it added, and adds the other
//   back      the same pairs in reverse send each other the finished parts, where all ranks need all
//
//   units: bytes that a rank sends for n bytes and K ranks with parts of one size: n (K - 1) / K each way, the least
//          possible
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <vector>

#include "tensor/tensor.h"
#include "train/ranks/ranks.h"

namespace eddy::training {

// The part of an array that each rank still adds after each level: level 0 is the whole, level l has 2^l parts, and
// after the last each rank has its shard.
class BinaryTree {
 public:
  struct Part {
    std::int64_t begin = 0, end = 0;
    std::int64_t size() const { return end - begin; }
  };
  // How a part of a level is cut in two: where, and whether ranks with bit `level` 0 keep what is before it. `low`
  // are the lowest `level` bits of the ranks that share the part.
  struct Cut {
    std::int64_t at = 0;
    bool lower_first = true;
  };
  using Choose = std::function<Cut(int level, int low, Part part)>;
  BinaryTree(Part whole, int ranks, const Choose& choose);
  // Cuts in the middle.
  BinaryTree(Part whole, int ranks);

  Part part(int level, int rank) const {
    return parts_[static_cast<std::size_t>(level)][static_cast<std::size_t>(rank & ((1 << level) - 1))];
  }
  int levels() const { return static_cast<int>(parts_.size()) - 1; }
  Part whole() const { return parts_[0][0]; }
  Part shard(int rank) const { return part(levels(), rank); }

 private:
  std::vector<std::vector<Part>> parts_;  // by level, then by the lowest bits of a rank
};

// One sum on its way. Several with different tags may be; each is advanced by the same thread.
class TreeCollective {
 public:
  enum class Work : std::uint8_t {
    reduce_scatter,  // each rank gets the sum of its shard
    all_reduce,      // each rank gets the sum
    all_gather,      // nothing is added: each rank gets the others' shards
  };
  // Begins with the part `tree.whole()` of the row-major array x of f32 or f64. `present` says which ranks have
  // numbers; those of the others are not read and count as nothing. If none has, nothing happens. For `all_gather` it
  // is not read. x must stay as it is until the sum is done, but for what this object writes.
  //
  // In the memory of a GPU all of it is enqueued at once (ops/core/peers.h), and sums that begin one after the other
  // may share `space`: at least half of a whole, for what arrives. Without one a sum takes its own.
  // errors: those of Ranks::begin, Ranks::peers and Peers::exchange; ValueError for `present` of another size.
  TreeCollective(Ranks& ranks, const Tensor& x, BinaryTree tree, std::vector<bool> present, int tag,
                 Work work, const Tensor& space = {});
  // A sum that is not done, because an error ends the work, takes back its exchange. Where that cannot be, its memory
  // stays until the process ends. On a GPU it ends all exchanges.
  ~TreeCollective();
  TreeCollective(const TreeCollective&) = delete;
  TreeCollective& operator=(const TreeCollective&) = delete;

  // Does what can be done without waiting. Returns whether the sum is done; of one on a GPU only finish() tells.
  // errors: those of Exchange::done.
  bool advance();
  // Waits for the rest. All ranks finish their sums in one order: while it waits, the others do not go on.
  // errors: those of Exchange::wait and Peers::finish.
  void finish();

 private:
  // What the rank sends at a step, and where it puts what comes.
  struct Step {
    int other;
    Tensor out, in;
  };
  bool gathers(int step) const { return work_ == Work::all_gather || step >= tree_.levels(); }
  int level_of(int step) const;
  Tensor part(int level, int rank) const;
  Step make_step();
  void add_received();
  void begin_step();
  void end_step();
  void enqueue();

  Ranks& ranks_;
  std::list<Tensor>
      memory_;  // what the exchange reads and writes, for the destructor to leave where it cannot be taken back
  Tensor &x_, &received_;
  BinaryTree tree_;
  std::vector<bool> present_;
  int tag_, step_ = 0, steps_ = 0;
  Work work_;
  Tensor space_;
  std::unique_ptr<Exchange> pending_;
  Peers* enqueued_ = nullptr;  // where the sum is on its way
};

// Turns row-major x into the sum of the tensors of all ranks. Every rank gets the same bits.
// errors: those of TreeCollective.
void all_reduce(Ranks& ranks, const Tensor& x, const std::vector<bool>& present);

}  // namespace eddy::training
