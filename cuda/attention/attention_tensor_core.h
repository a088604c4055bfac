// Attention in bf16 on tensor cores: which calls it supports, and its kernels as the files of the plain ones
// call them. No CUDA header is needed to include this.
#pragma once

#include "ops/attention/attention.h"
#include "ops/attention/attention_partials.h"

namespace eddy::cuda {

enum class AttentionKernels { plain, tensor_core, wgmma };

// Chooses the kernels for the calls that they support. The default is the plain ones.
void set_attention_kernels(AttentionKernels kernels);
AttentionKernels attention_kernels();

// Returns whether this call runs on tensor cores: they are chosen, its tensors are bf16, and head_size is a
// multiple of 16 from 32 to 128. If they are chosen and do not support the call, it gives a warning
// (ops/core/warnings.h).
bool uses_tensor_cores(const AttentionArgs& args);
// Returns whether this call runs on the kernels with wgmma: uses_tensor_cores, wgmma is chosen, and the GPU
// is of compute capability 9.0. If it is chosen and the GPU is another, it gives a warning.
bool uses_wgmma(const AttentionArgs& args);

// Enqueues the whole forward pass.
void tensor_core_forward(const AttentionArgs& args);

// The same with wgmma, for calls for which uses_wgmma is true.
void wgmma_forward(const AttentionArgs& args);

// The parts of the backward pass, each as the plain kernel of that name, with the deltas in the scratch
// memory. Those for the queries also compute the parts of dbias if they can, and return whether they did.
bool tensor_core_queries(const AttentionBackwardArgs& args, const AttentionPartials& partials);
void tensor_core_keys(const AttentionBackwardArgs& args, const AttentionPartials& partials);
void tensor_core_tables(const AttentionBackwardArgs& args, const AttentionPartials& partials);
bool wgmma_queries(const AttentionBackwardArgs& args, const AttentionPartials& partials);
void wgmma_keys(const AttentionBackwardArgs& args, const AttentionPartials& partials);

// The most memory for the slices in which the blocks for dq leave the gradient of the bias, 128 MiB: with 8
// heads enough for 128 sequences of 4096 tokens and a band of 512, with wgmma for 256.
inline constexpr std::int64_t kMostBiasSliceBytes = std::int64_t{1} << 27;
// Returns whether a kernel for dq with so many blocks sums the gradient of the bias. It does if that gradient
// is wanted and that of positions is not (tensor_core_tables makes both from the same gradients of scores),
// if a table of the band's distances for each warp fits into the free shared memory, and if the blocks'
// slices fit into kMostBiasSliceBytes. Else tensor_core_tables does.
bool sums_bias_with_queries(const AttentionBackwardArgs& args, std::int64_t blocks, int warps,
                            int free_shared_bytes);
// Adds the slices [batch, heads, tiles, distances least .. most], in a fixed order, to the parts of dbias.
void add_bias_slices(const AttentionBackwardArgs& args, const AttentionPartials& partials,
                     const float* slices, std::int64_t tiles);

}  // namespace eddy::cuda
