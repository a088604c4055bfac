// The only list of ops. It defines the slots and their installation on the CPU and on a GPU, the samples that
// tests and benchmarks use, the kernels that a profile distinguishes, and docs/ops.md.
//
// EDDY_OPS(ROW): ROW(folder, name, title, note) for each header ops/folder/name.h with ops; `name`_specs()
// has their samples. The order is that of docs/ops.md, which prints `title` and `note` above the formulas.
//
// EDDY_..._KERNELS(ROW): ROW(Args, name) for each kernel with the slot `name`_slot. EDDY_CPU_KERNEL
// (cpu/isa.h) installs the CPU's kernel; the GPU's kernel is the function cuda::name. The linker reports a
// missing kernel.
#pragma once

#include "ops/attention/attention.h"
#include "ops/attention/rotary.h"
#include "ops/attention/window_attention.h"
#include "ops/index/gather.h"
#include "ops/loss/cross_entropy.h"
#include "ops/memory/memory_search.h"
#include "ops/memory/memory_write.h"
#include "ops/norm/layer_norm.h"
#include "ops/norm/rms_norm.h"
#include "ops/norm/unit_norm.h"
#include "ops/optimizer/adafactor.h"
#include "ops/optimizer/optimizer.h"
#include "ops/pointwise/dropout.h"
#include "ops/pointwise/pointwise.h"
#include "ops/pointwise/where.h"
#include "ops/product/gemm.h"
#include "ops/recurrence/block_accumulate.h"
#include "ops/recurrence/block_forget.h"
#include "ops/recurrence/gates.h"
#include "ops/recurrence/lstm_cell.h"
#include "ops/recurrence/unit_recurrence.h"
#include "ops/reduce/partial_sums.h"
#include "ops/reduce/reduce.h"
#include "ops/reduce/softmax.h"

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
  ROW(UnitRecurrenceArgs, unit_recurrence_forward) \
  ROW(UnitRecurrenceArgs, unit_recurrence_backward) \
  ROW(AdamArgs, adam) \
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
  ROW(PartialSumsArgs, partial_sums) \
  ROW(BlockForgetArgs, block_forget_forward) \
  ROW(BlockForgetArgs, block_forget_backward) \
  ROW(BlockAccumulateArgs, block_accumulate_forward) \
  ROW(BlockAccumulateArgs, block_accumulate_backward)

// Capability queries: does the GPU have a kernel for these sizes? They run no work on a device.
#define EDDY_GPU_QUERIES(ROW) \
  ROW(ProductSupportQuery, product_supports) \
  ROW(RecurrenceSupportQuery, unit_recurrence_supports) \
  ROW(RecurrenceSupportQuery, block_forget_supports) \
  ROW(RecurrenceSupportQuery, block_accumulate_supports)

// Kernels of the CPU only, compiled once for each instruction set: a GPU composes the op from other ops.
#define EDDY_CPU_KERNELS(ROW) \
  ROW(WindowAttentionArgs, window_attention_forward) \
  ROW(WindowAttentionArgs, window_attention_backward)

// All slots that a GPU fills.
#define EDDY_ALL_GPU_KERNELS(ROW) \
  EDDY_ISA_KERNELS(ROW) EDDY_HOST_KERNELS(ROW) EDDY_GPU_KERNELS(ROW) EDDY_GPU_QUERIES(ROW)

#define EDDY_OPS(ROW) \
  ROW(pointwise, pointwise, "Pointwise", \
      "Shapes broadcast for two operands. Formulas and derivatives stand side by side in " \
      "`ops/pointwise/pointwise_functors.h`.") \
  ROW(pointwise, where, "Choice", "") \
  ROW(cast, cast, "Dtype", "") \
  ROW(reduce, reduce, "Reductions", \
      "`sum_to` undoes broadcasting and is used by gradients; it has none of its own.") \
  ROW(views, views, "Views", "Formulas are those of the test sample.") \
  ROW(index, gather, "Picking by index", "") \
  ROW(product, matmul, "Products", "") \
  ROW(product, relu_mlp, "ReLU between two linear layers", "") \
  ROW(reduce, softmax, "Softmax", "") \
  ROW(norm, layer_norm, "Layer norm", "") \
  ROW(norm, rms_norm, "RMS norm", "") \
  ROW(norm, unit_norm, "Unit vectors", "") \
  ROW(loss, cross_entropy, "Loss", "The `_rows` are for evaluation and have no gradient.") \
  ROW(loss, linear_cross_entropy, "A classifier with its loss", \
      "Of the logits z = x W^T + b of many classes only a chunk of rows exists at a time.") \
  ROW(pointwise, dropout, "Dropout", "") \
  ROW(attention, attention, "Attention", \
      "The score matrix is never stored. `attention_composed` is the same from two products and a softmax. Keys " \
      "and values may lie in two places, `past_keys` and `past_values` before `k` and `v`: the result " \
      "and the gradients are those of the joined tensors. On a GPU the kernels read and write both " \
      "where they are; the CPU joins them. `attention_packed_keys` takes both places with keys and " \
      "values side by side.") \
  ROW(attention, rotary, "Positions", "") \
  ROW(recurrence, gates, "Gates", "The next state from the last one and a candidate.") \
  ROW(recurrence, lstm_cell, "LSTM cell", "") \
  ROW(recurrence, unit_recurrence, "Recurrence", \
      "All steps of one layer as one op. The carried state is a constant. `block_forget`, in " \
      "`ops/recurrence/block_forget.h`, is the same over blocks of several positions, and " \
      "`block_accumulate`, in `ops/recurrence/block_accumulate.h`, the block recurrence with " \
      "accumulate. They have kernels on a GPU alone; the models ask `block_forget_fits` and " \
      "`block_accumulate_fits`, and else compose the chain of other ops.") \
  ROW(attention, window_attention, "Attention in short windows", \
      "For many short sequences side by side, as block recurrences have them.") \
  ROW(memory, memory_search, "Search in a memory", \
      "Not differentiable: which entries are taken, and the entries, are constants.") \
  ROW(memory, memory_write, "Writing into a memory", \
      "Not differentiable. The counts lie in the device's memory, so that nothing waits for them.") \
  ROW(optimizer, optimizer, "Optimizer", \
      "Not differentiable. `adamw` writes in place.") \
  ROW(optimizer, adafactor, "Adafactor", \
      "Not differentiable. `adafactor_step` works over the same arenas as `adamw`, with a table of the " \
      "parameters in them.")

// clang-format on
