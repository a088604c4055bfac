// A buffer that grows by rows: the key and value caches and memory banks of recurrent models.
//
// SeqBuffer is differentiable: append writes rows in place after the old ones and returns a new version. Rows
// are never overwritten, so windows saved for backward stay valid and the buffer's version counter does not
// change. All versions share one gradient buffer:
//
//   forward    append 1 ----> append 2 ----> append 3        one node each, with an edge to the one before
//                 \              \              \   .
//               window         window         window         views; their backward adds dy into rows [a, b)
//   backward   the shared gradient, zeroed once; append k passes its slice to the rows that it appended
//
// The engine runs nodes from the newest to the oldest, so all windows that see the rows of append k run
// before append k. The cost of T appends and T windows is the size of the windows, not T times the buffer.
#pragma once

#include <cstdint>
#include <memory>

#include "autograd/tape.h"

namespace eddy {

// A handle to one version: the first count() rows of a storage shared with the other versions. Copies are
// cheap.
class SeqBuffer {
 public:
  SeqBuffer() = default;  // no storage; defined() is false
  // An empty buffer of the given shape, where shape[axis] is the capacity in rows, e.g. [batch, capacity,
  // channels] and axis 1.
  // errors: DtypeError unless floating; ShapeError when there is no such axis.
  SeqBuffer(const Shape& shape, int axis, Dtype dtype = Dtype::f32, Device device = kCpu);

  // Returns the version with `rows` after the rows of this one.
  // shapes: rows as the buffer, with any size on the axis.
  // grad: flows to rows when they are tracked and recording is on; tracked and untracked rows may alternate.
  // errors: GraphError if rows were already appended to this version; ShapeError when the shape differs
  // or the capacity is exceeded; DtypeError, DeviceError, ValueError for rows that do not fit otherwise.
  [[nodiscard]] SeqBuffer append(const Tensor& rows) const;

  // Returns rows [begin, end) as a view of the storage. It is tracked if a row may be tracked and recording
  // is on.
  // errors: ShapeError unless 0 <= begin <= end <= count().
  Tensor window(std::int64_t begin, std::int64_t end) const;
  // All rows of this version.
  Tensor all() const { return window(0, count_); }

  // Returns the same rows without a graph: later gradients reach only rows appended after this call.
  SeqBuffer detach() const;

  bool defined() const { return storage_ != nullptr; }
  std::int64_t count() const { return count_; }  // in rows
  std::int64_t capacity() const;                 // in rows
  int axis() const;
  Dtype dtype() const;
  Device device() const;
  // Whether a row of this version carries a gradient.
  bool tracked() const { return chain_ != nullptr; }

 private:
  struct Storage;
  struct Chain;
  class AppendNode;

  const Storage& storage(const char* what) const;

  std::shared_ptr<Storage> storage_;
  std::shared_ptr<Chain> chain_;  // the tracked appends since the last detach; null when there are none
  Tensor version_;                // the whole storage, carrying the node of the last tracked append
  std::int64_t count_ = 0;
};

}  // namespace eddy
