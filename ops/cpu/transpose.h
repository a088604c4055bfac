// The transposition of a square of vectors in registers. Only *.isa.cpp files include this header.
#pragma once

#include <utility>

#include "tensor/base/host_device.h"

namespace eddy::EDDY_ISA {

// One step: exchanges the off-diagonal blocks of size kStep.
template <int kStep, int kRows, class Vec, std::size_t... kLane>
EDDY_INLINE void exchange_blocks(Vec* rows, std::index_sequence<kLane...>) {
  constexpr int lanes = sizeof...(kLane);
  for (int r = 0; r < kRows; ++r) {
    if (r & kStep) continue;
    const Vec low = rows[r], high = rows[r + kStep];
    rows[r] = __builtin_shufflevector(
        low, high, ((kLane & kStep) ? lanes + static_cast<int>(kLane) - kStep : static_cast<int>(kLane))...);
    rows[r + kStep] = __builtin_shufflevector(
        low, high, ((kLane & kStep) ? lanes + static_cast<int>(kLane) : static_cast<int>(kLane) + kStep)...);
  }
}

// Transposes the squares of `size` rows that `size` vectors of `lanes` elements hold side by side.
template <int size, int lanes, class Vec>
EDDY_INLINE void transpose_squares(Vec* rows) {
  constexpr auto indices = std::make_index_sequence<static_cast<std::size_t>(lanes)>{};
  exchange_blocks<1, size>(rows, indices);
  if constexpr (size > 2) exchange_blocks<2, size>(rows, indices);
  if constexpr (size > 4) exchange_blocks<4, size>(rows, indices);
  if constexpr (size > 8) exchange_blocks<8, size>(rows, indices);
}

// Transposes `lanes` vectors of as many elements.
template <int lanes, class Vec>
EDDY_INLINE void transpose_square(Vec* rows) {
  transpose_squares<lanes, lanes>(rows);
}

}  // namespace eddy::EDDY_ISA
