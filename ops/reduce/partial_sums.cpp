// The final sum of partial sums: one launch for all, or sum_into for each.
#include "ops/reduce/partial_sums.h"

#include <algorithm>

#include "autograd/tape.h"
#include "ops/reduce/reduce.h"

namespace eddy {

namespace {

// In partial_sums one thread block sums all rows of its columns. With more rows than this, sum_into, which
// splits the rows too, keeps more of a GPU busy. An estimate: 64 rows for each of 32 threads.
constexpr std::int64_t kMostBlocks = 2048;

// Deferred rows: of this many uses of an input, if one use has at most so many elements. With more, its own
// sum takes longer than a launch. Estimates.
constexpr std::int64_t kUses = 16, kMostDeferred = std::int64_t{1} << 18;

class DeferredRows final : public DeferredGradient {
 public:
  // Returns memory for rows that `add_to` will sum; undefined if there is no room.
  Tensor take(std::int64_t blocks, std::int64_t width, Dtype dtype, Device device) {
    if (!room_.defined()) room_ = Tensor::empty({kUses * blocks, width}, dtype, device);
    if (used_ + blocks > room_.dim(0)) return {};
    used_ += blocks;
    return raw::narrow(room_, 0, used_ - blocks, blocks);
  }
  void add_to(const Tensor& dst, float beta) override {
    add_partial_sums({{raw::narrow(room_, 0, 0, used_), {dst, beta}}});
  }

 private:
  Tensor room_;
  std::int64_t used_ = 0;
};

}  // namespace

PartialSums partial_sums_of(VjpContext& v, int input, std::int64_t blocks, std::int64_t width, Dtype dtype,
                            Device device) {
  if (!v.sink.needs(input)) return {};
  const GradientBuffer to = gradient_buffer(v, input);
  // Anomaly mode checks each node's own gradient.
  if (to.beta == 0 || device == kCpu || dtype != Dtype::f32 || to.tensor.dtype() != dtype ||
      blocks * width > kMostDeferred || anomaly_mode())
    return {Tensor::empty({blocks, width}, dtype, device), to};
  const auto take = [&] { return v.sink.defer<DeferredRows>(input).take(blocks, width, dtype, device); };
  Tensor rows = take();
  if (!rows.defined()) {
    v.sink.settle(input);
    rows = take();
  }
  return {rows, {}};
}

void add_partial_sums(std::initializer_list<PartialSums> parts) {
  PartialSumsArgs args{};
  const auto launch = [&](Device device) {
    if (args.tensors > 0) partial_sums_slot(device, args);
    args.tensors = 0;
  };
  Device device;
  for (const auto& [rows, to] : parts) {
    const auto& [dst, beta] = to;
    if (!dst.defined()) continue;
    device = rows.device();
    const bool at_once = !(device == kCpu) && rows.dim(0) <= kMostBlocks && rows.elements() > 0 &&
                         rows.dtype() == Dtype::f32 && dst.dtype() == Dtype::f32 && dst.contiguous();
    if (!at_once) {
      sum_into(dst, rows, beta);
      continue;
    }
    // Two inputs share one buffer: the second adds to what the first has written.
    void** const end = args.sums + args.tensors;
    if (std::find(&args.sums[0], end, dst.raw_data()) != end) launch(device);
    args.dtype = rows.dtype();
    args.blocks = rows.dim(0);
    args.width = rows.dim(1);
    args.partials[args.tensors] = rows.raw_data();
    args.sums[args.tensors] = dst.raw_data();
    args.beta[args.tensors++] = beta;
  }
  launch(device);
}

}  // namespace eddy
