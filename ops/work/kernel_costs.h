// The least work of each kernel, computed from its arguments: the operations of its products and the bytes
// that it must read and write once. The floor of an op is the sum over its kernels (profile.h).
//
// Only products count, including those of attention, with 2 operations per multiply-add and without
// recomputation. Elementwise arithmetic does not count, since its memory traffic takes longer. Small tensors
// (biases, weights of norms, statistics, ids) are left out.
#pragma once

#include "ops/core/cost.h"
#include "ops/op_list.h"

namespace eddy {

Cost cost_of(const GemmArgs& args);
Cost cost_of(const AttentionArgs& args);
Cost cost_of(const AttentionBackwardArgs& args);
Cost cost_of(const WindowAttentionArgs& args);
Cost cost_of(const StateRecurrenceArgs& args);
Cost cost_of(const BlockAccumulateArgs& args);
Cost cost_of(const EmbeddingArgs& args);
Cost cost_of(const GatherArgs& args);
Cost cost_of(const RowNormArgs& args);
Cost cost_of(const RowNormBackwardArgs& args);
Cost cost_of(const UnitNormArgs& args);
Cost cost_of(const UnitNormBackwardArgs& args);
Cost cost_of(const DropoutArgs& args);
Cost cost_of(const TiledDropoutArgs& args);
Cost cost_of(const SumArgs& args);
Cost cost_of(const PartialSumsArgs& args);
Cost cost_of(const MaxArgs& args);
Cost cost_of(const MaxBackwardArgs& args);
Cost cost_of(const CrossEntropyArgs& args);
Cost cost_of(const CrossEntropyMeanArgs& args);
Cost cost_of(const CrossEntropyBackwardArgs& args);
Cost cost_of(const CrossEntropyRowsArgs& args);
Cost cost_of(const LstmCellArgs& args);
Cost cost_of(const LstmCellBackwardArgs& args);
Cost cost_of(const RotaryArgs& args);
Cost cost_of(const GateArgs& args);
Cost cost_of(const GateBackwardArgs& args);
Cost cost_of(const SoftmaxArgs& args);
Cost cost_of(const SoftmaxBackwardArgs& args);
Cost cost_of(const LogSoftmaxArgs& args);
Cost cost_of(const LogSoftmaxBackwardArgs& args);
Cost cost_of(const MemoryMarkArgs& args);
Cost cost_of(const MemoryTakeArgs& args);
Cost cost_of(const MemoryWriteArgs& args);
Cost cost_of(const AdamArgs& args);
Cost cost_of(const NormArgs& args);
Cost cost_of(const ScaleArgs& args);
Cost cost_of(const AdafactorArgs& args);
Cost cost_of(const UnaryArgs& args);
Cost cost_of(const BinaryArgs& args);
Cost cost_of(const WhereArgs& args);

}  // namespace eddy
