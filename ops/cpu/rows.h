// Work on the rows of a tensor, divided among threads; for *.isa.cpp files.
#pragma once

#include <cstdint>

#include "tensor/base/host_device.h"
#include "tensor/threads/thread_pool.h"

namespace eddy::EDDY_ISA {
namespace {

constexpr std::int64_t kChunk = 1 << 14;  // elements that pay for handing a chunk to a thread

// Returns how many items of so many elements make a chunk.
EDDY_INLINE std::int64_t items_per_chunk(std::int64_t elements, std::int64_t chunk = kChunk) {
  return elements >= chunk ? 1 : chunk / (elements > 0 ? elements : 1);
}

// Calls body(row) for each of the rows, of so many elements each.
template <class Body>
EDDY_INLINE void parallel_for_rows(std::int64_t rows, std::int64_t elements, Body body,
                                   std::int64_t chunk = kChunk) {
  parallel_for(rows, items_per_chunk(elements, chunk), [=](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row) body(row);
  });
}

}  // namespace
}  // namespace eddy::EDDY_ISA
