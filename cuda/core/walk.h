// Offsets into strided tensors from the number of an element, for kernels and, in tests, for the CPU. A Walk
// turns the number of an element in row-major order into an offset for each operand: one division per axis,
// done by a multiplication. Host code merges the axes that all operands allow to be merged, and splits
// tensors of 2^31 or more elements into parts, so that kernels count in 32 bits. No CUDA header is needed to
// include this.
#pragma once

#include <cstdint>

#include "tensor/base/host_device.h"

namespace eddy::cuda {

// Division of n < 2^31 by a fixed number d:
//
//   n / d = (high(n m) + n) >> s
//   s     = ceil(log2 d)
//   m     = floor(2^32 (2^s - d) / d) + 1
//
// The sum stays below 2^32 because n is below 2^31.
// source: T. Granlund, P. Montgomery, "Division by invariant integers using multiplication" (PLDI 1994),
// figure 4.1.
struct FastDivide {
  std::uint32_t divisor = 1, factor = 1, shift = 0;

  static FastDivide by(std::uint32_t divisor) {
    std::uint32_t shift = 0;
    while ((std::uint64_t{1} << shift) < divisor) ++shift;
    const std::uint64_t rest = ((std::uint64_t{1} << shift) - divisor) << 32;
    return {divisor, static_cast<std::uint32_t>(rest / divisor + 1), shift};
  }
  EDDY_HD_INLINE std::uint32_t quotient(std::uint32_t n) const {
    const std::uint64_t product = static_cast<std::uint64_t>(n) * factor;
    return (static_cast<std::uint32_t>(product >> 32) + n) >> shift;
  }
};

inline constexpr int kWalkAxes = 6;
inline constexpr std::int64_t kMostWalked = std::int64_t{1} << 30;  // elements of one Walk

// A Walk over `Operands` tensors of one shape: its sizes, and the strides of each tensor in elements.
template <int Operands>
struct Walk {
  std::uint32_t elements = 0;
  int rank = 0;
  FastDivide sizes[kWalkAxes];
  std::int64_t strides[Operands][kWalkAxes] = {};

  // Adds the operands' offsets of one element to `at`.
  EDDY_HD_INLINE void add_offsets(std::uint32_t element, std::int64_t* at) const {
    for (int axis = rank - 1; axis > 0; --axis) {
      const std::uint32_t above = sizes[axis].quotient(element);
      const std::uint32_t index = element - above * sizes[axis].divisor;
      for (int k = 0; k < Operands; ++k) at[k] += strides[k][axis] * index;
      element = above;
    }
    for (int k = 0; k < Operands; ++k) at[k] += strides[k][0] * element;
  }

  // Whether the element is the last of its row, which is the last axis.
  EDDY_HD_INLINE bool ends_row(std::uint32_t element) const {
    const FastDivide& row = sizes[rank - 1];
    return element - row.quotient(element) * row.divisor == row.divisor - 1;
  }
};

// Sizes and strides before they become Walks. Adding an axis drops it if its size is 1 and merges it with its
// neighbour where it can.
template <int Operands>
struct WalkShape {
  int rank = 0;
  std::int64_t sizes[kWalkAxes] = {};
  std::int64_t strides[Operands][kWalkAxes] = {};

  // Adds an axis inside those added before; `steps` has its stride for each operand.
  void add_axis(std::int64_t size, const std::int64_t (&steps)[Operands]) {
    if (size == 1) return;
    const int last = rank - 1;
    bool merges = last >= 0;
    for (int k = 0; merges && k < Operands; ++k) merges = strides[k][last] == steps[k] * size;
    const int to = merges ? last : rank++;
    sizes[to] = merges ? sizes[to] * size : size;
    for (int k = 0; k < Operands; ++k) strides[k][to] = steps[k];
  }

  std::int64_t elements() const {
    std::int64_t product = 1;
    for (int i = 0; i < rank; ++i) product *= sizes[i];
    return product;
  }
  // Whether element i of each operand lies at i.
  bool is_flat() const {
    bool flat = rank <= 1;
    for (int k = 0; flat && rank == 1 && k < Operands; ++k) flat = strides[k][0] == 1;
    return flat;
  }

  // Calls run(walk, offsets) for parts of fewer than 2^31 elements, in order; together they are the whole,
  // and usually there is one. `offsets` are the starts of the parts in the operands.
  template <class Run>
  void for_parts(Run&& run, std::int64_t most = kMostWalked) const {
    if (elements() == 0) return;
    // Axes from `cut` + 1 on fit into a part. Axis `cut` is split; the axes before it are taken one index at
    // a time.
    int cut = rank - 1;
    std::int64_t inner = 1;
    while (cut > 0 && inner * sizes[cut] <= most) inner *= sizes[cut--];
    const std::int64_t piece = rank == 0 ? 1 : most / inner;
    std::int64_t outer = 1;
    for (int i = 0; i < cut; ++i) outer *= sizes[i];
    for (std::int64_t line = 0; line < outer; ++line) {
      std::int64_t base[Operands] = {}, rest = line;
      for (int i = cut - 1; i >= 0; --i) {
        for (int k = 0; k < Operands; ++k) base[k] += rest % sizes[i] * strides[k][i];
        rest /= sizes[i];
      }
      const std::int64_t length = rank == 0 ? 1 : sizes[cut];
      for (std::int64_t start = 0; start < length; start += piece) {
        const std::int64_t count = length - start < piece ? length - start : piece;
        Walk<Operands> walk;
        walk.elements = static_cast<std::uint32_t>(count * inner);
        walk.rank = rank == 0 ? 0 : rank - cut;
        std::int64_t offsets[Operands];
        for (int k = 0; k < Operands; ++k) offsets[k] = base[k] + (rank == 0 ? 0 : start * strides[k][cut]);
        for (int i = 0; i < walk.rank; ++i) {
          walk.sizes[i] = FastDivide::by(static_cast<std::uint32_t>(i == 0 ? count : sizes[cut + i]));
          for (int k = 0; k < Operands; ++k) walk.strides[k][i] = strides[k][cut + i];
        }
        run(walk, offsets);
      }
    }
  }
};

}  // namespace eddy::cuda
