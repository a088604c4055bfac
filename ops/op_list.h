// The only list of ops. It defines the slots and their installation on the CPU and on a GPU, the samples that
// tests and benchmarks use, the kernels that a profile distinguishes, and docs/ops.md.
//
// EDDY_OPS(ROW): ROW(folder, name) for each header ops/folder/name.h with ops; `name`_specs() has their
// samples. The order is that of docs/ops.md.
//
// EDDY_..._KERNELS(ROW): ROW(Args, name) for each kernel with the slot `name`_slot. EDDY_CPU_KERNEL
// (cpu/isa.h) installs the CPU's kernel; the GPU's kernel is the function cuda::name. The linker reports a
// missing kernel.
#pragma once

#include "ops/attention/attention.h"
#include "ops/attention/rotary.h"
#include "ops/attention/window_attention.h"
#include "ops/cast/cast.h"
#include "ops/composed/rearrange.h"
#include "ops/composed/reductions.h"
#include "ops/index/gather.h"
#include "ops/index/index_ops.h"
#include "ops/index/sort.h"
#include "ops/loss/cross_entropy.h"
#include "ops/loss/elementwise_loss.h"
#include "ops/loss/linear_cross_entropy.h"
#include "ops/memory/memory_search.h"
#include "ops/memory/memory_write.h"
#include "ops/norm/layer_norm.h"
#include "ops/norm/rms_norm.h"
#include "ops/norm/unit_norm.h"
#include "ops/optimizer/adafactor.h"
#include "ops/optimizer/momentum.h"
#include "ops/optimizer/optimizer.h"
#include "ops/pointwise/dropout.h"
#include "ops/pointwise/pointwise.h"
#include "ops/pointwise/where.h"
#include "ops/product/gemm.h"
#include "ops/product/linear.h"
#include "ops/product/matmul.h"
#include "ops/recurrence/block_recurrence.h"
#include "ops/recurrence/gates.h"
#include "ops/recurrence/lstm_cell.h"
#include "ops/recurrence/scan.h"
#include "ops/recurrence/unit_recurrence.h"
#include "ops/reduce/partial_sums.h"
#include "ops/reduce/reduce.h"
#include "ops/reduce/softmax.h"
#include "ops/views/views.h"

// clang-format off

// Kernels of the CPU, compiled once for each instruction set, and of a GPU.
#define EDDY_ISA_KERNELS(ROW) \
  ROW(UnaryArgs, unary_forward) \
  ROW(UnaryArgs, unary_backward) \
  ROW(BinaryArgs, binary) \
  ROW(WhereArgs, where) \
  ROW(DropoutArgs, dropout) \
  ROW(TiledDropoutArgs, tiled_dropout) \
  ROW(SumArgs, sum) \
  ROW(MaxArgs, max_forward) \
  ROW(MaxBackwardArgs, max_backward) \
  ROW(SoftmaxArgs, softmax_forward) \
  ROW(SoftmaxBackwardArgs, softmax_backward) \
  ROW(LogSoftmaxArgs, log_softmax_forward) \
  ROW(LogSoftmaxBackwardArgs, log_softmax_backward) \
  ROW(RowNormArgs, layer_norm_forward) \
  ROW(RowNormBackwardArgs, layer_norm_backward) \
  ROW(RowNormArgs, rms_norm_forward) \
  ROW(RowNormBackwardArgs, rms_norm_backward) \
  ROW(UnitNormArgs, unit_norm_forward) \
  ROW(UnitNormBackwardArgs, unit_norm_backward) \
  ROW(EmbeddingArgs, embedding_forward) \
  ROW(EmbeddingArgs, embedding_backward) \
  ROW(GatherArgs, gather_forward) \
  ROW(GatherArgs, gather_backward) \
  ROW(CrossEntropyArgs, cross_entropy_forward) \
  ROW(CrossEntropyMeanArgs, cross_entropy_mean) \
  ROW(CrossEntropyRowsArgs, cross_entropy_rows) \
  ROW(CrossEntropyBackwardArgs, cross_entropy_backward) \
  ROW(AttentionArgs, attention_forward) \
  ROW(AttentionBackwardArgs, attention_backward) \
  ROW(RotaryArgs, rotary) \
  ROW(GateArgs, gate_forward) \
  ROW(GateBackwardArgs, gate_backward) \
  ROW(LstmCellArgs, lstm_cell_forward) \
  ROW(LstmCellBackwardArgs, lstm_cell_backward) \
  ROW(ScanArgs, scan) \
  ROW(UnitRecurrenceArgs, unit_recurrence_forward) \
  ROW(UnitRecurrenceArgs, unit_recurrence_backward) \
  ROW(AdamArgs, adam) \
  ROW(MomentumArgs, momentum) \
  ROW(NormArgs, l2_norm) \
  ROW(ScaleArgs, scale) \
  ROW(AdafactorArgs, adafactor)

// Kernels of the CPU, compiled once, and of a GPU.
#define EDDY_HOST_KERNELS(ROW) \
  ROW(GemmArgs, gemm) \
  ROW(MemoryMarkArgs, memory_mark) \
  ROW(MemoryTakeArgs, memory_take) \
  ROW(MemoryWriteArgs, memory_write)

// Kernels of a GPU only: the CPU composes the op from other ops.
#define EDDY_GPU_KERNELS(ROW) \
  ROW(RowBlockSumsArgs, row_block_sums) \
  ROW(PartialSumsArgs, partial_sums) \
  ROW(GeluProductArgs, gelu_product_forward) \
  ROW(GeluProductArgs, gelu_product_backward) \
  ROW(BlockRecurrenceArgs, block_recurrence_forward) \
  ROW(BlockRecurrenceArgs, block_recurrence_backward)

// Capability queries: does the GPU have a kernel for these sizes? They run no work on a device.
#define EDDY_GPU_QUERIES(ROW) \
  ROW(ProductSupportQuery, product_supports) \
  ROW(GeluProductQuery, gelu_product_supports) \
  ROW(RecurrenceSupportQuery, block_recurrence_supports)

// Kernels of the CPU only, compiled once for each instruction set: a GPU composes the op from other ops.
#define EDDY_CPU_KERNELS(ROW) \
  ROW(WindowAttentionArgs, window_attention_forward) \
  ROW(WindowAttentionArgs, window_attention_backward)

// All slots that a GPU fills.
#define EDDY_ALL_GPU_KERNELS(ROW) \
  EDDY_ISA_KERNELS(ROW) EDDY_HOST_KERNELS(ROW) EDDY_GPU_KERNELS(ROW) EDDY_GPU_QUERIES(ROW)

#define EDDY_OPS(ROW) \
  ROW(pointwise, pointwise) \
  ROW(pointwise, where) \
  ROW(cast, cast) \
  ROW(reduce, reduce) \
  ROW(views, views) \
  ROW(index, gather) \
  ROW(index, index_ops) \
  ROW(index, sort) \
  ROW(composed, reductions) \
  ROW(composed, rearrange) \
  ROW(product, matmul) \
  ROW(product, linear) \
  ROW(reduce, softmax) \
  ROW(norm, layer_norm) \
  ROW(norm, rms_norm) \
  ROW(norm, unit_norm) \
  ROW(loss, cross_entropy) \
  ROW(loss, linear_cross_entropy) \
  ROW(loss, elementwise_loss) \
  ROW(pointwise, dropout) \
  ROW(attention, attention) \
  ROW(attention, rotary) \
  ROW(recurrence, gates) \
  ROW(recurrence, lstm_cell) \
  ROW(recurrence, scan) \
  ROW(recurrence, unit_recurrence) \
  ROW(attention, window_attention) \
  ROW(memory, memory_search) \
  ROW(memory, memory_write) \
  ROW(optimizer, optimizer) \
  ROW(optimizer, momentum) \
  ROW(optimizer, adafactor)

// clang-format on
