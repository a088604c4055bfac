// The ranges of a model's arenas that ranks exchange: each is one sum of gradients (train/ranks/tree_collective.h),
// which leaves as soon as the gradients in it are final.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "models/optimizer/optimizer.h"
#include "models/params.h"
#include "train/ranks/tree_collective.h"

namespace eddy::training {

// Parameters [first, last), neighbours in the arenas.
struct Bucket {
  std::size_t first = 0, last = 0;
  BinaryTree tree;  // of the elements of these parameters, padding included
};

class ArenaBuckets {
 public:
  // A bucket is closed when it has this many bytes. On two ranks of one host 0.25 to 16 MiB took the same time, and one
  // bucket of all, which overlaps nothing, 3 to 5 % more (train/ranks/README.md).
  static constexpr std::int64_t kBytes = std::int64_t{1} << 20;
  // On a GPU each exchange costs launches. No GPU has timed another size.
  static constexpr std::int64_t kGpuBytes = std::int64_t{32} << 20;

  // bytes: of a bucket; 0: kBytes or kGpuBytes.
  // shard: each parameter belongs to one rank, which holds its statistics and updates it. The parts of a bucket then
  // end at borders of parameters, and are chosen so that ranks hold as many elements as each other, but for about a
  // parameter. Without it the parts of a bucket are equal.
  ArenaBuckets(const ParamStore& params, int ranks, bool shard, std::int64_t bytes = 0);

  const std::vector<Bucket>& all() const { return buckets_; }
  bool shard() const { return shard_; }
  // The rank that a parameter belongs to, with shard.
  int owner(std::size_t parameter) const { return owners_[parameter]; }
  // The parameters that a rank holds; empty, which is all, without shard.
  ParameterMask shard_of(int rank) const;

 private:
  bool shard_;
  std::vector<Bucket> buckets_;
  std::vector<int> owners_;
};

}  // namespace eddy::training
