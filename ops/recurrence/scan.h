// Linear recurrences over time, parallel over time, and running sums:
//
//   h_t = a_t h_{t-1} + b_t
//
// Two steps are one step of the same form, h_{t+1} = (a_{t+1} a_t) h_{t-1} + (a_{t+1} b_t + b_{t+1}). So time is cut
// into blocks: each finds its own pair (a, b), the pairs of the blocks before one give its initial h, and all
// blocks go over their steps from there. Where there are enough channels beside time, one block has all steps.
//
// Source: Blelloch, "Prefix sums and their applications" (1990), section 1.4.
#pragma once

#include <cstdint>

#include "ops/core/slot.h"
#include "tensor/tensor.h"

namespace eddy {

// Returns h_t of all steps along an axis; h before the first step is `initial`, or 0 without one. Steps go over whole
// slices: every other index is a channel of its own. The product of all factors of a block, of 64 to 500 steps or all
// of them, must not overflow, even where h stays small; with |a| <= 1, as of gates, it does not.
// shapes: a and b [.., time, ..], initial [.., ..] without the axis; h as b. No steps give no h.
// dtypes: f32, f64 and bf16, one for all; bf16 is computed in f32.
// errors: ShapeError when there is no such axis or shapes differ; DtypeError; DeviceError.
// grad: with g_t = dh_t + a_{t+1} g_{t+1}, a scan from the last step to the first:
//   db_t = g_t      da_t = g_t h_{t-1}      dinitial = a_1 g_1
// source: the header's comment; Martin, Cundy, "Parallelizing linear recurrent neural nets over sequence length" (ICLR
// 2018), equation 3, for the gradient.
Tensor scan(const Tensor& a, const Tensor& b, int axis, const Tensor& initial = {});

// Returns the running sum along an axis: y_t = x_1 + .. + x_t, a scan with a = 1.
// shapes: y as x.
// dtypes: f32, f64 and bf16; bf16 is computed in f32.
// errors: ShapeError when there is no such axis; DtypeError.
// grad: the running sum of dy from the last step to the first.
Tensor cumsum(const Tensor& x, int axis);

namespace detail {
// One scan over [outer, time, inner], all row-major. In the order of time, or from the last step to the first:
//   forward    h_t = a_t h_{t-1} + b_t          h before the first step: initial, or 0
//   reverse    h_t = a_{t+1} h_{t+1} + b_t      h after the last step: 0
// and beside the latter da_t = h_t before_{t-1} if `da` is not null, where before_{-1} is initial, or 0.
struct ScanArgs {
  Dtype dtype;
  bool reverse;
  std::int64_t outer, time, inner;
  std::int64_t block, blocks;  // steps of a block, the last may have fewer; blocks of `time`
  const void *a, *b;           // null a: 1
  const void* initial;         // [outer, inner], or null
  void* h;
  const void* before;  // [outer, time, inner], read for da
  void* da;
  void* carries;  // [outer, blocks, 2, inner], or null with one block
};
extern Slot<ScanArgs> scan_slot;

// Fewer neighbouring channels than this do not fill the lanes of a vector or of a warp's loads: kernels go over the
// time of each one.
constexpr std::int64_t kScanNarrow = 8;
// What a unit of work of the CPU has: so many channels side by side, or so many that lie apart.
constexpr std::int64_t kScanLanes = 512, kScanChains = 4;
}  // namespace detail

}  // namespace eddy
