// Writing into a memory of past keys and values, a ring buffer: new rows overwrite the oldest.
// memory_search.h searches it.
//
// Source: Y. Wu et al., "Memorizing Transformers", 2022.
#pragma once

#include <cstdint>

#include "ops/core/slot.h"
#include "tensor/base/host_device.h"
#include "tensor/tensor.h"

namespace eddy {

// Entries whose key is zero are empty. The next row of sequence b goes to place count[b] mod size.
struct MemoryEntries {
  Tensor keys, values;  // [batch, size, heads, head_dim]
  Tensor count;         // i64 [batch]: rows written since the sequence was emptied
};

// Returns the memory after it empties some sequences and then writes rows. Row i of sequence b goes to place
// (count[b] + i) mod size; if several rows go to one place, the last one stays. `memory` itself does not
// change. The host reads nothing, so the op can be captured and replayed.
// shapes: keys, values [batch, rows, heads, head_dim], or both undefined for no rows; emptied [batch], not 0
// for a sequence that is emptied, or undefined for none; size >= 1. Tensors that are not row-major are
// copied.
// dtypes: the memory's keys and values have one floating dtype, to which the rows are rounded; count i64,
// emptied u8.
// errors: ShapeError, DtypeError, DeviceError.
// grad: none; the memory is a constant.
MemoryEntries memory_write(const MemoryEntries& memory, const Tensor& keys, const Tensor& values,
                           const Tensor& emptied = {});

namespace detail {
// An entry is `width` adjacent numbers: those of all heads.
struct MemoryWriteArgs {
  Dtype dtype;
  std::int64_t batch, size, rows, width;
  const void *keys, *values;          // [batch, size, width]
  const std::int64_t* count;          // [batch]
  const void *new_keys, *new_values;  // [batch, rows, width]
  const std::uint8_t* emptied;        // [batch], or null
  void *to_keys, *to_values;          // [batch, size, width]; overlap nothing else
  std::int64_t* to_count;             // [batch]
};
extern Slot<MemoryWriteArgs> memory_write_slot;

// Returns which of `rows` rows ends up at `place` if the first one is written to place count mod size; -1 for
// none. memory_write never makes a negative count, but one must not lead outside the memory either.
EDDY_HD_INLINE std::int64_t memory_row_at(std::int64_t place, std::int64_t count, std::int64_t rows,
                                          std::int64_t size) {
  const std::int64_t first = count % size;  // C++ rounds to 0: above -size
  std::int64_t row = place - first;         // above -size, below 2 size
  if (row < 0) row += size;
  if (row >= size) row -= size;
  return row >= rows ? -1 : row + (rows - 1 - row) / size * size;
}
}  // namespace detail

}  // namespace eddy
