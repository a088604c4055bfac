// Partial sums: one launch for several tensors, or sum_into for each.
#include "ops/reduce/partial_sums.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "autograd/tape.h"
#include "ops/core/cpu_path.h"
#include "ops/reduce/reduce.h"
#include "tensor/transfer.h"

namespace eddy::detail {

namespace {

// In partial_sums one thread block sums all rows of its columns. With more rows than this, sum_into, which
// splits the rows too, keeps more of a GPU busy. An estimate: 64 rows for each of 32 threads.
constexpr std::int64_t kMostBlocks = 2048;

// Deferred rows: of this many uses of an input, if one use has at most so many elements. With more, its own
// sum takes longer than a launch. Estimates.
constexpr std::int64_t kUses = 16, kMostDeferred = std::int64_t{1} << 18;

// Whether such rows are added to the gradient with those of later uses. Anomaly mode checks each node's own gradient.
bool is_deferred(const GradientBuffer& to, std::int64_t elements) {
  return to.beta != 0 && to.tensor.dtype() == Dtype::f32 && elements <= kMostDeferred && !anomaly_mode();
}

// Rows in chunks of kUses uses. A full chunk waits until the next one is full too, because a node that takes
// rows for two inputs of one gradient has not written the first when it takes the second. Rows that came with a
// gradient are copied together when they are added.
class DeferredRows final : public DeferredGradient {
 public:
  bool has_place(std::int64_t blocks) const { return rows_.defined() && used_ + blocks <= rows_.dim(0); }
  Tensor take(std::int64_t blocks, std::int64_t width, Device device) {
    if (!has_place(blocks)) {
      if (rows_.defined()) full_ = written();
      rows_ = Tensor::empty({kUses * blocks, width}, Dtype::f32, device);
      used_ = 0;
    }
    used_ += blocks;
    return raw::narrow(rows_, 0, used_ - blocks, blocks);
  }
  bool has_full_chunk() const { return full_.defined(); }
  void add_full_chunk_to(const Tensor& dst, float beta) {
    add_partial_sums({{full_, {dst, beta}}});
    full_ = {};
  }
  bool has_enough_given() const { return std::ssize(given_) == kUses; }
  void give(const Tensor& rows) { given_.push_back(rows); }
  void add_given_to(const Tensor& dst, float beta) {
    add_partial_sums({{given_.size() == 1 ? given_[0] : raw::concat(given_, 0), {dst, beta}}});
    given_.clear();
  }
  void add_to(const Tensor& dst, float beta) override {
    if (has_full_chunk()) add_full_chunk_to(dst, std::exchange(beta, 1.0f));
    if (!given_.empty()) add_given_to(dst, std::exchange(beta, 1.0f));
    if (rows_.defined()) add_partial_sums({{written(), {dst, beta}}});
  }

 private:
  Tensor written() const { return raw::narrow(rows_, 0, 0, used_); }

  Tensor rows_, full_;
  std::vector<Tensor> given_;
  std::int64_t used_ = 0;
};

}  // namespace

PartialSums partial_sums_of(VjpContext& v, int input, std::int64_t blocks, std::int64_t width, Dtype dtype,
                            Device device) {
  if (!v.sink.needs(input)) return {};
  const GradientBuffer to = gradient_buffer(v, input);
  if (uses_cpu_path(device) || dtype != Dtype::f32 || !is_deferred(to, blocks * width))
    return {Tensor::empty({blocks, width}, dtype, device), to};
  auto& deferred = v.sink.defer<DeferredRows>(input);
  if (!deferred.has_place(blocks) && deferred.has_full_chunk())
    deferred.add_full_chunk_to(to.tensor, to.beta);
  return {deferred.take(blocks, width, device), {}};
}

void add_given_sums(VjpContext& v, int input, const Tensor& rows) {
  const GradientBuffer to = gradient_buffer(v, input);
  if (!is_deferred(to, rows.elements())) return add_partial_sums({{rows, to}});
  auto& deferred = v.sink.defer<DeferredRows>(input);
  if (deferred.has_enough_given()) deferred.add_given_to(to.tensor, to.beta);
  deferred.give(rows);
}

void sum_row_blocks(const RowBlocks& blocks) {
  const Tensor& x = blocks.x;
  if (x.elements() == 0) return;
  const bool activates = blocks.saved.defined();
  row_block_sums_slot(
      x.device(), {x.dtype(), x.dim(0), x.dim(1), x.raw_data(), blocks.sums.mutable_data<float>(),
                   activates ? blocks.saved.raw_data() : nullptr, activates ? blocks.dz.raw_data() : nullptr,
                   blocks.gelu});
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
    const std::int64_t width = dst.elements(), blocks = width == 0 ? 0 : rows.elements() / width;
    const bool at_once = !uses_cpu_path(device) && blocks > 0 && blocks <= kMostBlocks &&
                         rows.dtype() == Dtype::f32 && dst.dtype() == Dtype::f32 && dst.contiguous();
    if (!at_once) {
      sum_into(dst, rows, beta);
      continue;
    }
    // Two inputs share one buffer: the second adds to what the first has written.
    void** const end = args.sums + args.tensors;
    if (std::find(&args.sums[0], end, dst.raw_data()) != end) launch(device);
    args.dtype = rows.dtype();
    args.blocks = blocks;
    args.width = width;
    args.partials[args.tensors] = rows.raw_data();
    args.sums[args.tensors] = dst.raw_data();
    args.beta[args.tensors++] = beta;
  }
  launch(device);
}

}  // namespace eddy::detail
