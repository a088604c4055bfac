// Cutting arenas into buckets, and buckets into the parts of ranks.
#include "train/step/arena_buckets.h"

#include <cstdlib>

namespace eddy::training {
namespace {

// Cuts the parameters of a bucket so that the ranks on both sides hold about as many elements, with those of the
// buckets before.
class BalancedCuts {
 public:
  BalancedCuts(std::vector<std::int64_t> borders, std::vector<std::int64_t>& held)
      : borders_(std::move(borders)), held_(held) {}

  BinaryTree::Cut operator()(int level, int low, BinaryTree::Part part) {
    // The ranks whose lowest bits are these, and those of the other half.
    const int bit = 1 << level;
    const std::int64_t before = held_by(bit * 2, low), after = held_by(bit * 2, low + bit);
    BinaryTree::Cut best;
    std::int64_t least = -1;
    for (const std::int64_t border : borders_) {
      if (border < part.begin || border > part.end) continue;
      for (const bool lower_first : {true, false}) {
        const std::int64_t lower = border - part.begin, upper = part.end - border;
        const std::int64_t uneven =
            std::abs(before + (lower_first ? lower : upper) - after - (lower_first ? upper : lower));
        if (least >= 0 && uneven >= least) continue;
        least = uneven;
        best = {border, lower_first};
      }
    }
    return best;
  }

 private:
  std::int64_t held_by(int modulus, int low) const {
    std::int64_t sum = 0;
    for (int rank = low; rank < std::ssize(held_); rank += modulus)
      sum += held_[static_cast<std::size_t>(rank)];
    return sum;
  }
  std::vector<std::int64_t> borders_;
  std::vector<std::int64_t>& held_;
};

}  // namespace

ArenaBuckets::ArenaBuckets(const ParamStore& params, int ranks, bool shard, std::int64_t bytes)
    : shard_(shard) {
  const std::vector<Parameter>& all = params.parameters();
  const Tensor& arena = params.gradients();
  if (bytes == 0) bytes = arena.device() == kCpu ? kBytes : kGpuBytes;
  const std::int64_t most = bytes / static_cast<std::int64_t>(dtype_bytes(arena.dtype()));
  const auto offset = [&](std::size_t i) { return i < all.size() ? all[i].offset : arena.elements(); };
  std::vector<std::int64_t> held(static_cast<std::size_t>(ranks));
  owners_.resize(shard ? all.size() : 0);
  for (std::size_t first = 0; first < all.size();) {
    std::size_t last = first + 1;
    while (last < all.size() && offset(last) - offset(first) < most) ++last;
    const BinaryTree::Part whole{offset(first), offset(last)};
    if (!shard) {
      buckets_.push_back({first, last, BinaryTree(whole, ranks)});
    } else {
      std::vector<std::int64_t> borders;
      for (std::size_t i = first; i <= last; ++i) borders.push_back(offset(i));
      buckets_.push_back({first, last, BinaryTree(whole, ranks, BalancedCuts(std::move(borders), held))});
      for (int rank = 0; rank < ranks; ++rank) {
        const BinaryTree::Part own = buckets_.back().tree.shard(rank);
        held[static_cast<std::size_t>(rank)] += own.size();
        for (std::size_t i = first; i < last; ++i)
          if (own.begin <= offset(i) && offset(i) < own.end) owners_[i] = rank;
      }
    }
    first = last;
  }
}

ParameterMask ArenaBuckets::shard_of(int rank) const {
  ParameterMask held;
  for (const int owner : owners_) held.push_back(owner == rank);
  return held;
}

}  // namespace eddy::training
