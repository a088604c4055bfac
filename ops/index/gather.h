// Lookup by integer indices: rows of a table (embedding) and entries along an axis (gather).
//
// The gradient of an entry that several indices name is a sum. One thread adds each sum in the order of the
// positions, so its bits depend neither on the number of threads nor on how the work is split.
#pragma once

#include <cstdint>

#include "ops/core/slot.h"
#include "tensor/tensor.h"

namespace eddy {

// Returns y[..., :] = table[ids[...], :].
// shapes: table [vocab, dim], ids [...], y [..., dim].
// dtypes: table f32 or f64; ids i32 or i64.
// errors: ValueError names the position of an id outside [0, vocab); ShapeError; DtypeError; DeviceError.
// grad: dtable[v, :] = the sum of dy[i, :] over the positions i with ids[i] = v.
Tensor embedding(const Tensor& table, const Tensor& ids);

// Returns cast(embedding(table, ids) + rows, dtype), rounded once. On a GPU this is one fused kernel; its
// gradients read dy in `dtype` and sum in f32.
// shapes: rows [..., dim], broadcast to y's shape, or undefined for none.
// dtypes: rows as the table; dtype floating.
// errors: as embedding; ShapeError when rows do not broadcast to y's shape.
// grad: dtable as embedding; drows = dy summed over the broadcast axes.
Tensor embedding_sum(const Tensor& table, const Tensor& ids, const Tensor& rows, Dtype dtype);

// Returns y[.., j, ..] = x[.., index[.., j, ..], ..]: each entry of the result has an index along one axis.
// shapes: index and y have the sizes of x except on `axis`, which may have any size.
// dtypes: x any (gradients for f32 and f64); index i64.
// errors: ValueError names the position of an index outside the axis; ShapeError; DtypeError; DeviceError.
// grad: dx[.., k, ..] = the sum of dy[.., j, ..] over the j with index[.., j, ..] = k.
Tensor gather(const Tensor& x, int axis, const Tensor& index);

namespace detail {
// Rows picked from a table. If the host can read the ids, an id outside the table is an error before the
// kernel runs. If it cannot, the kernel must not access memory for such an id: it writes a row of NaN in the
// forward pass and does nothing in the backward pass.
struct EmbeddingArgs {
  Dtype dtype;      // of table or dtable, and of `added`
  Dtype row_dtype;  // of y or dy: the same, or bf16 beside f32, but not on the CPU
  Dtype id_dtype;   // i32 or i64
  std::int64_t positions, vocab, dim;
  const void* ids;
  const void* from;  // forward: table [vocab, dim]; backward: dy [positions, dim]
  void* to;          // forward: y [positions, dim]; backward: dtable [vocab, dim], accumulated into
  // Forward on a GPU: row i of y gets the row of `added` at the index of i in a row-major walk over these
  // sizes; the elements of a row are adjacent. Null for none.
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
  void* to;                   // forward: y; backward: dx, accumulated into
};
extern Slot<GatherArgs> gather_forward_slot, gather_backward_slot;
}  // namespace detail

}  // namespace eddy
