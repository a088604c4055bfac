// Checks, blocks and gradients of scans.
#include "ops/recurrence/scan.h"

#include <algorithm>

#include "autograd/tape.h"
#include "ops/cast/upcast.h"
#include "ops/core/checks.h"
#include "ops/core/cpu_path.h"
#include "ops/pointwise/pointwise.h"
#include "tensor/base/format.h"

namespace eddy {

using namespace detail;

namespace {

// Returns the steps of a block. The blocks depend on the shape and the kind of device alone, so the bits of a result
// do not depend on threads.
//   CPU   8 units of work keep threads busy; fewer are cut into blocks, which read a and b twice. 500 is no power of
//         two: blocks that lie 1 or 4 KiB apart would share few places of the first cache.
//   GPU   a thread per channel, or a warp where they are narrow: some 2^16 threads hide the latency of memory
std::int64_t scan_block(Device device, std::int64_t outer, std::int64_t time, std::int64_t inner) {
  const bool narrow = inner < kScanNarrow;
  if (uses_cpu_path(device)) {
    const std::int64_t units = narrow ? (outer * inner + kScanChains - 1) / kScanChains
                                      : outer * ((inner + kScanLanes - 1) / kScanLanes);
    return units >= 8 || time < 1000 ? time : 500;
  }
  const std::int64_t threads = outer * inner * (narrow ? 32 : 1), least = narrow ? 256 : 64;
  const std::int64_t blocks = std::clamp<std::int64_t>((1 << 16) / std::max<std::int64_t>(threads, 1), 1,
                                                       std::max<std::int64_t>(time / least, 1));
  return (time + blocks - 1) / blocks;
}

struct ScanShape {
  std::int64_t outer = 1, time = 1, inner = 1;
};

ScanShape scan_shape(const Shape& shape, int axis) {
  ScanShape sizes;
  for (int i = 0; i < axis; ++i) sizes.outer *= shape[i];
  sizes.time = shape[axis];
  for (int i = axis + 1; i < shape.rank(); ++i) sizes.inner *= shape[i];
  return sizes;
}

// All are contiguous; a, initial and, in reverse, the last two may be undefined.
Tensor run_scan(const ScanShape& sizes, const Tensor& a, const Tensor& b, const Tensor& initial, bool reverse,
                const Tensor& before = {}, const Tensor& da = {}) {
  const Tensor h = Tensor::empty(b.shape(), b.dtype(), b.device());
  if (h.elements() == 0) return h;
  const std::int64_t block = scan_block(b.device(), sizes.outer, sizes.time, sizes.inner),
                     blocks = (sizes.time + block - 1) / block;
  const Tensor carries =
      blocks > 1 ? Tensor::empty({sizes.outer, blocks, 2, sizes.inner}, b.dtype(), b.device()) : Tensor();
  scan_slot(b.device(), {b.dtype(), reverse, sizes.outer, sizes.time, sizes.inner, block, blocks,
                         data_or_null(a), b.raw_data(), data_or_null(initial), h.raw_data(),
                         data_or_null(before), data_or_null(da), data_or_null(carries)});
  return h;
}

}  // namespace

Tensor scan(const Tensor& a, const Tensor& b, int axis, const Tensor& initial) {
  if (is_bf16(b))
    return downcast(scan(upcast_like("scan", b, a), upcast(b), axis, upcast_like("scan", b, initial)));
  const int along = checks::axis("scan", b, axis);
  checks::defined("scan", a, "a");
  checks::same_kind("scan", b, a);
  if (a.shape() != b.shape())
    fail<ShapeError>("scan: a {} and b {} (one shape for both; expand repeats a factor)",
                     to_string(a.shape()), to_string(b.shape()));
  const Shape channels = b.shape().without(along);
  if (initial.defined()) {
    checks::same_kind("scan", b, initial);
    if (initial.shape() != channels)
      fail<ShapeError>("scan: initial {} for b {} along axis {} ({}: without the axis)",
                       to_string(initial.shape()), to_string(b.shape()), along, to_string(channels));
  }
  const ScanShape sizes = scan_shape(b.shape(), along);
  const Tensor factors = raw::contiguous(a), start = contiguous_or_none(initial);
  const Tensor h = run_scan(sizes, factors, raw::contiguous(b), start, false);
  // The loss depends on h_t by dh_t and through h_{t+1} = a_{t+1} h_t + b_{t+1}: that is g_t. A step then has
  // db_t = g_t and da_t = g_t h_{t-1}.
  return record("scan", {a, b, initial}, h, {factors, h, start}, [sizes, along, channels](VjpContext& v) {
    const Tensor dy = raw::contiguous(v.dy()), &steps = v.saved(0);
    const Tensor da = v.sink.needs(0) ? Tensor::empty(dy.shape(), dy.dtype(), dy.device()) : Tensor();
    const Tensor g = run_scan(sizes, steps, dy, v.saved(2), true, v.saved(1), da);
    if (da.defined()) v.sink.accumulate(0, da);
    if (v.sink.needs(2))
      v.sink.accumulate(2, sizes.time == 0 ? Tensor::zeros(channels, dy.dtype(), dy.device())
                                           : mul(raw::select(steps, along, 0), raw::select(g, along, 0)));
    if (v.sink.needs(1)) v.sink.accumulate(1, g);
  });
}

Tensor cumsum(const Tensor& x, int axis) {
  if (is_bf16(x)) return downcast(cumsum(upcast(x), axis));
  const int along = checks::axis("cumsum", x, axis);
  const ScanShape sizes = scan_shape(x.shape(), along);
  return record("cumsum", {x}, run_scan(sizes, {}, raw::contiguous(x), {}, false), {},
                [sizes](VjpContext& v) {
                  v.sink.accumulate(0, run_scan(sizes, {}, raw::contiguous(v.dy()), {}, true));
                });
}

}  // namespace eddy
