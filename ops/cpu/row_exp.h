// exp over one row and its sum, for the kernels of softmax and cross-entropy (*.isa.cpp files only).
#pragma once

#include "ops/cpu/lanes.h"
#include "ops/cpu/vec_math.h"

namespace eddy::EDDY_ISA {
namespace {

// Returns the sum of exp(x[i] - shift), added in lanes. The exponentials go to a small buffer on the stack,
// in a plain loop that the compiler vectorises. `kept`, if not null, receives them; it may be x.
template <class T>
EDDY_INLINE T sum_of_exp(const T* x, std::int64_t n, T shift, T* kept = nullptr) {
  constexpr std::int64_t kPiece = 512;
  T piece[kPiece];
  T sum = 0;
  for (std::int64_t i = 0; i < n; i += kPiece) {
    const std::int64_t length = n - i < kPiece ? n - i : kPiece;
    for (std::int64_t j = 0; j < length; ++j) piece[j] = vec::exp(x[i + j] - shift);
    sum += lane_sum<T>(length, [&piece](auto reader, std::int64_t j) { return reader.load(piece + j); });
    if (kept != nullptr) std::memcpy(kept + i, piece, static_cast<std::size_t>(length) * sizeof(T));
  }
  return sum;
}

}  // namespace
}  // namespace eddy::EDDY_ISA
