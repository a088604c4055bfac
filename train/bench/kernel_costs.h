// The least work of each kernel, computed from its arguments: the operations of its products and the bytes
// that it must read and write once. The floor of an op is the sum over its kernels (profile.h).
//
// Only products count, including those of attention, with 2 operations per multiply-add and without
// recomputation. Elementwise arithmetic does not count, since its memory traffic takes longer. Small tensors
// (biases, weights of norms, statistics, ids) are left out.
#pragma once

#include "ops/op_list.h"

namespace eddy {

struct KernelCost {
  double flops = 0;
  double bytes = 0;
  bool half = false;  // the products are in bf16
};

KernelCost cost_of(const GemmArgs& args);
KernelCost cost_of(const AttentionArgs& args);
KernelCost cost_of(const AttentionBackwardArgs& args);
KernelCost cost_of(const WindowAttentionArgs& args);
KernelCost cost_of(const UnitRecurrenceArgs& args);
KernelCost cost_of(const BlockAccumulateArgs& args);
KernelCost cost_of(const EmbeddingArgs& args);
KernelCost cost_of(const GatherArgs& args);
KernelCost cost_of(const RowNormArgs& args);
KernelCost cost_of(const RowNormBackwardArgs& args);
KernelCost cost_of(const UnitNormArgs& args);
KernelCost cost_of(const UnitNormBackwardArgs& args);
KernelCost cost_of(const DropoutArgs& args);
KernelCost cost_of(const TiledDropoutArgs& args);
KernelCost cost_of(const SumArgs& args);
KernelCost cost_of(const PartialSumsArgs& args);
KernelCost cost_of(const MaxArgs& args);
KernelCost cost_of(const MaxBackwardArgs& args);
KernelCost cost_of(const CrossEntropyArgs& args);
KernelCost cost_of(const CrossEntropyMeanArgs& args);
KernelCost cost_of(const CrossEntropyBackwardArgs& args);
KernelCost cost_of(const CrossEntropyRowsArgs& args);
KernelCost cost_of(const LstmCellArgs& args);
KernelCost cost_of(const LstmCellBackwardArgs& args);
KernelCost cost_of(const RotaryArgs& args);
KernelCost cost_of(const GateArgs& args);
KernelCost cost_of(const GateBackwardArgs& args);
KernelCost cost_of(const SoftmaxArgs& args);
KernelCost cost_of(const SoftmaxBackwardArgs& args);
KernelCost cost_of(const LogSoftmaxArgs& args);
KernelCost cost_of(const LogSoftmaxBackwardArgs& args);
KernelCost cost_of(const MemoryMarkArgs& args);
KernelCost cost_of(const MemoryTakeArgs& args);
KernelCost cost_of(const MemoryWriteArgs& args);
KernelCost cost_of(const AdamArgs& args);
KernelCost cost_of(const NormArgs& args);
KernelCost cost_of(const ScaleArgs& args);
KernelCost cost_of(const AdafactorArgs& args);
KernelCost cost_of(const UnaryArgs& args);
KernelCost cost_of(const BinaryArgs& args);
KernelCost cost_of(const WhereArgs& args);

}  // namespace eddy
