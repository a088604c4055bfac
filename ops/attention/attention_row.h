// Work items with a single query row: one key head and one query, as in a model that runs token by token. A
// register tile has kRows rows, and packing pays off only for many rows. So here every key is read once, in
// place, and rows are prefetched some keys ahead: 0.9 ms forward where padded tiles take 1.25 (docs/choices.md). Only
// *.isa.cpp files include this header.
#pragma once

#include "ops/attention/attention_item.h"

namespace eddy::EDDY_ISA {
namespace {

// Keys between the current one and the one that is prefetched.
inline constexpr std::int64_t kPrefetchDistance = 8;

// Whether the work items of a call have a single row of whole vectors, and no tables except positions.
template <class T, class P>
EDDY_INLINE bool has_single_rows(const Call<T, P>& call) {
  const AttentionArgs& args = call.args;
  return call.group * args.queries == 1 && args.head_scale == nullptr && args.bias == nullptr &&
         args.head_size % kLanes<T> == 0;
}

// `count` rows of one size, and rows to be added to them where `extra` is not null.
template <class T>
struct RowRun {
  const T* rows;
  std::int64_t stride;
  const T* extra;
  std::int64_t extra_stride;
};

template <class T>
EDDY_INLINE typename Vector<T>::type load(const T* from) {
  return *reinterpret_cast<const typename Vector<T>::loose*>(from);
}
template <class T>
EDDY_INLINE void store(T* to, typename Vector<T>::type value) {
  *reinterpret_cast<typename Vector<T>::loose*>(to) = value;
}

// Keys [begin, ...) of an item with their positions, or its values.
template <class T>
EDDY_INLINE RowRun<T> keys_from(const Item<T, RegisterProducts<T, T>>& item, std::int64_t begin) {
  const AttentionArgs& args = item.args;
  const T* const positions = static_cast<const T*>(args.positions);
  return {item.at(args.k, args.k_strides, begin, item.kv_head), args.k_strides.time,
          positions == nullptr ? nullptr : positions + (item.call.offset - begin) * args.positions_stride,
          -args.positions_stride};
}
template <class T>
EDDY_INLINE RowRun<T> values_from(const Item<T, RegisterProducts<T, T>>& item, std::int64_t begin) {
  return {item.at(item.args.v, item.args.v_strides, begin, item.kv_head), item.args.v_strides.time, nullptr,
          0};
}

// result[t] = left . row t.
template <class T>
__attribute__((noinline)) void row_dots(const T* left, const RowRun<T>& run, std::int64_t size,
                                        std::int64_t count, T* result) {
  for (std::int64_t t = 0; t < count; ++t) {
    const T* const row = run.rows + t * run.stride;
    prefetch_row(row + kPrefetchDistance * run.stride, size);
    typename Vector<T>::type sum{};
    if (run.extra == nullptr) {
      for (std::int64_t i = 0; i < size; i += kLanes<T>) sum += load(left + i) * load(row + i);
    } else {
      const T* const extra = run.extra + t * run.extra_stride;
      for (std::int64_t i = 0; i < size; i += kLanes<T>)
        sum += load(left + i) * (load(row + i) + load(extra + i));
    }
    result[t] = fold<T>(sum, [](auto x, auto y) { return x + y; });
  }
}

// sum += the rows, each times its weight.
template <class T>
__attribute__((noinline)) void row_mix(const T* weights, const RowRun<T>& run, std::int64_t size,
                                       std::int64_t count, T* sum) {
  std::int64_t t = 0;
  for (; t + 4 <= count; t += 4) {
    const T* const row = run.rows + t * run.stride;
    const T w0 = weights[t], w1 = weights[t + 1], w2 = weights[t + 2], w3 = weights[t + 3];
    for (std::int64_t i = 0; i < size; i += kLanes<T>) {
      const T* const at = row + i;
      store(sum + i, load(sum + i) + w0 * load(at) + w1 * load(at + run.stride) +
                         w2 * load(at + 2 * run.stride) + w3 * load(at + 3 * run.stride));
    }
    if (run.extra == nullptr) continue;
    const T* const extra = run.extra + t * run.extra_stride;
    for (std::int64_t i = 0; i < size; i += kLanes<T>) {
      const T* const at = extra + i;
      store(sum + i, load(sum + i) + w0 * load(at) + w1 * load(at + run.extra_stride) +
                         w2 * load(at + 2 * run.extra_stride) + w3 * load(at + 3 * run.extra_stride));
    }
  }
  for (; t < count; ++t)
    for (std::int64_t i = 0; i < size; i += kLanes<T>) {
      typename Vector<T>::type row = load(run.rows + t * run.stride + i);
      if (run.extra != nullptr) row += load(run.extra + t * run.extra_stride + i);
      store(sum + i, load(sum + i) + weights[t] * row);
    }
}

}  // namespace
}  // namespace eddy::EDDY_ISA
