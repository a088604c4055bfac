// What the backward's attention kernels on tensor cores share: their argument, and how it is read.
#pragma once

#include "cuda/attention_tensor_core.cuh"
#include "ops/attention_partials.h"

namespace eddy::cuda {
namespace {

struct TensorBackward {
  AttentionBackwardArgs args;
  AttentionPartials partials;
  bool q_aligned, k_aligned, v_aligned, doutput_aligned;

  __device__ float* scratch(std::int64_t place) const {
    return static_cast<float*>(args.forward.scratch) + place;
  }
  __device__ Rows queries(const Head<bf16>& head) const {
    return {head.queries(), args.forward.q_strides.time, q_aligned};
  }
  __device__ Rows keys(const Head<bf16>& head) const {
    return {head.keys(), args.forward.k_strides.time, k_aligned};
  }
  __device__ Rows values(const Head<bf16>& head) const {
    return {head.values(), args.forward.v_strides.time, v_aligned};
  }
  __device__ Rows doutputs(const Head<bf16>& head) const {
    return {static_cast<const bf16*>(args.doutput) + head.output_at(0), head.output_stride(),
            doutput_aligned};
  }
  // A query's log_sum, in units of log 2, and delta; zeros behind the last query.
  __device__ void statistics(const Head<bf16>& head, std::int64_t query, float& log_sum, float& delta) const {
    log_sum = delta = 0;
    if (query >= args.forward.queries) return;
    const std::int64_t at = head.row_at(query);
    log_sum = static_cast<const float*>(args.forward.log_sum)[at] * kLog2OfE;
    delta = scratch(partials.deltas)[at];
  }
};

inline TensorBackward tensor_backward(const AttentionBackwardArgs& args, const AttentionPartials& partials) {
  const AttentionArgs& forward = args.forward;
  return {args,
          partials,
          rows_aligned(forward.q, forward.q_strides),
          rows_aligned(forward.k, forward.k_strides),
          rows_aligned(forward.v, forward.v_strides),
          aligned(args.doutput)};
}

}  // namespace
}  // namespace eddy::cuda
