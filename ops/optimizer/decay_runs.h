// The runs of an arena whose elements share a weight decay, for CPU kernels of optimizers. Only *.isa.cpp files include
// it.
#pragma once

#include <cstdint>

#include "ops/optimizer/optimizer.h"
#include "tensor/base/host_device.h"

namespace eddy::EDDY_ISA {
namespace {

// Calls run(keep, first, count) for the runs in [begin, end), in order; keep = 1 - lr decay.
template <class T, class Args, class Run>
EDDY_INLINE void for_decay_runs(const Args& args, double lr, std::int64_t begin, std::int64_t end, Run run) {
  std::int64_t segment = segment_after(args, begin);
  for (std::int64_t i = begin; i < end;) {
    const DecaySegment* const found = segment < args.segment_count ? args.segments + segment : nullptr;
    const bool inside = found != nullptr && found->begin <= i;
    const std::int64_t border = found == nullptr ? end : inside ? found->end : found->begin;
    const std::int64_t stop = border < end ? border : end;
    run(static_cast<T>(inside ? 1 - lr * found->decay : 1.0), i, stop - i);
    i = stop;
    if (inside) ++segment;
  }
}

}  // namespace
}  // namespace eddy::EDDY_ISA
