// What a kernel must do at least, read from its arguments: the operations of its products and the bytes that
// it has to read and write once. An op's floor is made of these (bench_profile.h).
//
// Counted are products, those of attention included, with 2 operations per multiply-add and without what is
// only computed again; arithmetic per element is not, since memory takes longer. Small things (biases, norms'
// weights, statistics, ids) are left out.
#pragma once

#include "ops/adafactor.h"
#include "ops/attention.h"
#include "ops/block_accumulate.h"
#include "ops/block_recurrence.h"
#include "ops/cross_entropy.h"
#include "ops/dropout.h"
#include "ops/gates.h"
#include "ops/gather.h"
#include "ops/gemm.h"
#include "ops/layer_norm.h"
#include "ops/lstm_cell.h"
#include "ops/memory_search.h"
#include "ops/memory_write.h"
#include "ops/optimizer.h"
#include "ops/partial_sums.h"
#include "ops/pointwise.h"
#include "ops/reduce.h"
#include "ops/rms_norm.h"
#include "ops/rotary.h"
#include "ops/softmax.h"
#include "ops/unit_norm.h"
#include "ops/unit_recurrence.h"
#include "ops/where.h"
#include "ops/window_attention.h"

namespace eddy {

struct KernelCost {
  double flops = 0;
  double bytes = 0;
  bool half = false;  // the products are of bf16
};

KernelCost cost_of(const GemmArgs& args);
KernelCost cost_of(const AttentionArgs& args);
KernelCost cost_of(const AttentionBackwardArgs& args);
KernelCost cost_of(const WindowAttentionArgs& args);
KernelCost cost_of(const UnitRecurrenceArgs& args);
KernelCost cost_of(const BlockAccumulateArgs& args);
KernelCost cost_of(const EmbeddingArgs& args);
KernelCost cost_of(const GatherArgs& args);
KernelCost cost_of(const LayerNormArgs& args);
KernelCost cost_of(const LayerNormBackwardArgs& args);
KernelCost cost_of(const RmsNormArgs& args);
KernelCost cost_of(const RmsNormBackwardArgs& args);
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
