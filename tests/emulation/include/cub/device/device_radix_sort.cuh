// Replaces CUB's header: its stable sort of pairs.
#pragma once

#include <algorithm>
#include <cstring>
#include <numeric>
#include <vector>

#include "tests/emulation/include/cuda_runtime_api.h"

namespace cub {

struct DeviceRadixSort {
  // As CUB's: called without working memory it returns the size. Keys must not be negative.
  template <class Key, class Value>
  static cudaError_t SortPairs(void* scratch, std::size_t& bytes, const Key* keys, Key* sorted_keys,
                               const Value* values, Value* sorted_values, int count, int first_bit,
                               int end_bit, cudaStream_t stream) {
    if (scratch == nullptr) {
      bytes = 1000;
      return cudaSuccess;
    }
    const std::size_t scratch_bytes = bytes;
    emulation::submit(stream, [=] {
      emulation::count_launch("sort");
      if (emulation::counts_only()) return;
      std::vector<int> order(static_cast<std::size_t>(count));
      std::iota(order.begin(), order.end(), 0);
      const auto part = [&](int place) {
        const std::uint64_t mask = (std::uint64_t{1} << (end_bit - first_bit)) - 1;
        return (static_cast<std::uint64_t>(keys[place]) >> first_bit) & mask;
      };
      std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return part(a) < part(b); });
      for (int i = 0; i < count; ++i) {
        sorted_keys[i] = keys[order[static_cast<std::size_t>(i)]];
        sorted_values[i] = values[order[static_cast<std::size_t>(i)]];
      }
      std::memset(scratch, 0xff, scratch_bytes);
    });
    return cudaSuccess;
  }
};

}  // namespace cub
