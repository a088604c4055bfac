// Rows and entries picked by integer indices.
//
// The gradients add rows that were picked several times. Each element of the result is summed by one thread
// in the order of the positions, so its bits depend neither on the number of threads nor on how the work was
// cut.
#pragma once

#include <cstdint>
#include <vector>

#include "ops/core/slot.h"
#include "tensor/tensor.h"

namespace eddy {

// Returns y[..., :] = table[ids[...], :].
// shapes: table [vocab, dim], ids [...], y [..., dim].
// dtypes: table f32 or f64; ids i32 or i64.
// errors: ValueError names the position of an id outside [0, vocab); ShapeError; DtypeError; DeviceError.
// grad: dtable[v, :] = the sum of dy[i, :] over the positions i with ids[i] = v.
Tensor embedding(const Tensor& table, const Tensor& ids);

// Returns y[..., :] = table[ids[...], :] + rows, in `dtype`: cast(embedding(table, ids) + rows, dtype),
// rounded once. On a GPU in one pass, whose gradients read dy as it comes and sum in f32.
// shapes: rows [..., dim], which repeat to y's shape as in an addition, or undefined for none.
// dtypes: rows of the table's; dtype floating.
// errors: as embedding; ShapeError when rows do not repeat to y's shape.
// grad: dtable as embedding; drows = dy summed over what was repeated.
Tensor embedding_sum(const Tensor& table, const Tensor& ids, const Tensor& rows, Dtype dtype);

// Returns y[.., j, ..] = x[.., index[.., j, ..], ..]: along one axis, an index for every entry of the result.
// shapes: index and y have the sizes of x but for `axis`, which may have any.
// dtypes: x any (gradients for f32 and f64); index i64.
// errors: ValueError names the position of an index outside the axis; ShapeError; DtypeError; DeviceError.
// grad: dx[.., k, ..] = the sum of dy[.., j, ..] over the j with index[.., j, ..] = k.
Tensor gather(const Tensor& x, int axis, const Tensor& index);

// Rows picked from a table. Ids outside the table are refused before the kernel runs when the host can read
// them; a kernel whose ids the host cannot read must not touch memory for them: a row of NaN forward, nothing
// backward.
struct EmbeddingArgs {
  Dtype dtype;      // of table or dtable, and of what is added
  Dtype row_dtype;  // of y or dy: the same, or bf16 beside f32, but not on the CPU
  Dtype id_dtype;   // i32 or i64
  std::int64_t positions, vocab, dim;
  const void* ids;
  const void* from;  // forward: table [vocab, dim]; backward: dy [positions, dim]
  void* to;          // forward: y [positions, dim]; backward: dtable [vocab, dim], which is added to
  // Forward, not on the CPU: row i of y gets the row of `added` at i's place in a walk over these sizes,
  // whose elements are next to each other. Null for none.
  const void* added = nullptr;
  int axes = 0;
  std::int64_t sizes[kMaxRank] = {}, strides[kMaxRank] = {};  // strides in elements, 0 where rows repeat
};
extern Slot<EmbeddingArgs> embedding_forward_slot, embedding_backward_slot;

// x [outer, size, inner] and y [outer, picks, inner], contiguous.
struct GatherArgs {
  Dtype dtype;
  std::int64_t outer, size, picks, inner;
  const std::int64_t* index;  // [outer, picks, inner]
  const void* from;           // forward: x; backward: dy
  void* to;                   // forward: y; backward: dx, which is added to
};
extern Slot<GatherArgs> gather_forward_slot, gather_backward_slot;

struct OpSpec;
std::vector<OpSpec> gather_specs();

}  // namespace eddy
