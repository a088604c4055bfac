// Attention in bf16 on tensor cores: which calls it takes, and its kernels as the plain ones' files call
// them. No CUDA header is needed to include this.
#pragma once

#include "ops/attention.h"
#include "ops/attention_partials.h"

namespace eddy::cuda {

enum class AttentionKernels { plain, tensor_core, wgmma };

// Which kernels take the calls that they can. The plain ones at the start.
void set_attention_kernels(AttentionKernels kernels);
AttentionKernels attention_kernels();

// Whether tensor cores take this call: they may, its tensors are bf16, and head_size is a multiple of 16 from
// 32 to 128. Where they may and do not, a notice says so (ops/notices.h).
bool on_tensor_cores(const AttentionArgs& args);
// Whether of these the kernels with wgmma do: they may, and the GPU is of compute capability 9.0, or a notice
// says so.
bool on_wgmma(const AttentionArgs& args);

// The whole forward.
void tensor_core_forward(const AttentionArgs& args);

// The same with wgmma, where on_wgmma says so.
void wgmma_forward(const AttentionArgs& args);

// Of the backward, each what the plain kernel of that name does, with the deltas in the scratch.
void tensor_core_queries(const AttentionBackwardArgs& args, const AttentionPartials& partials);
void tensor_core_keys(const AttentionBackwardArgs& args, const AttentionPartials& partials);
void tensor_core_tables(const AttentionBackwardArgs& args, const AttentionPartials& partials);
void wgmma_queries(const AttentionBackwardArgs& args, const AttentionPartials& partials);
void wgmma_keys(const AttentionBackwardArgs& args, const AttentionPartials& partials);

}  // namespace eddy::cuda
