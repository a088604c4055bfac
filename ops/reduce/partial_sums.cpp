// The final sum of partial sums: one launch for all, or sum_into for each.
#include "ops/reduce/partial_sums.h"

#include <algorithm>

#include "ops/reduce/reduce.h"

namespace eddy {

namespace {

// In partial_sums one thread block sums all rows of its columns. With more rows than this, sum_into, which
// splits the rows too, keeps more of a GPU busy. An estimate: 64 rows for each of 32 threads.
constexpr std::int64_t kMostBlocks = 2048;

}  // namespace

void give_partial_sums(VjpContext& v, std::initializer_list<PartialSums> parts) {
  PartialSumsArgs args{};
  const auto launch = [&](Device device) {
    if (args.tensors > 0) partial_sums_slot(device, args);
    args.tensors = 0;
  };
  Device device;
  for (const auto& [input, partials] : parts) {
    if (!partials.defined()) continue;
    device = partials.device();
    v.sink.into(input, [&, &partials = partials](const Tensor& dst, float beta) {
      const bool at_once = !(device == kCpu) && partials.dim(0) <= kMostBlocks && partials.elements() > 0 &&
                           dst.dtype() == partials.dtype() && dst.contiguous();
      if (!at_once) return sum_into(dst, partials, beta);
      // Two inputs share one buffer: the second adds to what the first has written.
      void** const end = args.sums + args.tensors;
      if (std::find(&args.sums[0], end, dst.raw_data()) != end) launch(device);
      args.dtype = partials.dtype();
      args.blocks = partials.dim(0);
      args.width = partials.dim(1);
      args.partials[args.tensors] = partials.raw_data();
      args.sums[args.tensors] = dst.raw_data();
      args.beta[args.tensors++] = beta;
    });
  }
  launch(device);
}

}  // namespace eddy
