// Attention in bf16 on tensor cores: which calls it takes, and its kernels as the plain ones' files call
// them. No CUDA header is needed to include this.
#pragma once

#include "ops/attention/attention.h"
#include "ops/attention/attention_partials.h"

namespace eddy::cuda {

enum class AttentionKernels { plain, tensor_core, wgmma };

// Which kernels take the calls that they can. The plain ones at the start.
void set_attention_kernels(AttentionKernels kernels);
AttentionKernels attention_kernels();

// Whether tensor cores take this call: they may, its tensors are bf16, and head_size is a multiple of 16 from
// 32 to 128. Where they may and do not, a notice says so (ops/core/warnings.h).
bool on_tensor_cores(const AttentionArgs& args);
// Whether of these the kernels with wgmma do: they may, and the GPU is of compute capability 9.0, or a notice
// says so.
bool on_wgmma(const AttentionArgs& args);

// The whole forward.
void tensor_core_forward(const AttentionArgs& args);

// The same with wgmma, where on_wgmma says so.
void wgmma_forward(const AttentionArgs& args);

// Of the backward, each what the plain kernel of that name does, with the deltas in the scratch. Those of the
// queries leave the parts of dbias as well where they can, and return whether they did.
bool tensor_core_queries(const AttentionBackwardArgs& args, const AttentionPartials& partials);
void tensor_core_keys(const AttentionBackwardArgs& args, const AttentionPartials& partials);
void tensor_core_tables(const AttentionBackwardArgs& args, const AttentionPartials& partials);
bool wgmma_queries(const AttentionBackwardArgs& args, const AttentionPartials& partials);
void wgmma_keys(const AttentionBackwardArgs& args, const AttentionPartials& partials);

// The most memory for the slices in which the blocks for dq leave the gradient of the bias, 128 MiB: at 8
// heads enough for 128 sequences of 4096 tokens and a band of 512, with wgmma for 256.
inline constexpr std::int64_t kMostBiasSliceBytes = std::int64_t{1} << 27;
// Whether a kernel for dq of so many blocks sums the gradient of the bias: where it is wanted, without that
// of positions (which tensor_core_tables makes from the same gradients of scores), a table of the band's
// distances for each warp fits in what shared memory is left, and the blocks' slices in kMostBiasSliceBytes.
// tensor_core_tables does else.
bool sums_bias_with_queries(const AttentionBackwardArgs& args, std::int64_t blocks, int warps,
                            int free_shared_bytes);
// Adds the slices [batch, heads, tiles, distances least .. most] in a fixed order into the parts of dbias.
void add_bias_slices(const AttentionBackwardArgs& args, const AttentionPartials& partials,
                     const float* slices, std::int64_t tiles);

}  // namespace eddy::cuda
