// Elementwise kernels: y[i] = f(x_0[i], x_1[i], ...) for strided tensors of one shape. launch_map takes the second form
// where it can.
//
// Over strided tensors.
//   mapping        one thread per group of neighbours of the last axis, each operand's loaded or stored 16
//                  bytes at a time, in row-major order of y; a grid-stride loop. The last group of a row may
//                  be shorter. Operands whose last axis is neither contiguous nor one repeated number, or
//                  whose rows are not aligned, go element by element.
//   shared memory  none
//   bytes moved    each operand once, the least, if neighbours in y are neighbours in the operands. Else an
//                  operand is fetched in sectors of 32 bytes: up to 8 times the least in f32.
//
// Over contiguous ones of one layout (launch_flat_map).
//   mapping        one thread per group of neighbours, 16 bytes of the narrowest operand; a grid-stride loop. What is
//                  left, and all where an address is not aligned, goes element by element.
//   shared memory  none
//   bytes moved    each operand once, the least
//
// y may be in the place of an operand, so no pointer is __restrict__.
#pragma once

#include <algorithm>
#include <utility>

#include "cuda/core/numbers.cuh"
#include "cuda/core/walk.h"

namespace eddy::cuda {

// The group of a type: as many neighbours as the smallest of the operands has in 16 bytes, at most 8.
template <class... T>
inline constexpr int kMapGroup = std::min(8, 16 / static_cast<int>(std::min({sizeof(T)...})));

// Neighbours as stored, aligned as one load takes them.
template <class T, int Count>
struct alignas(std::min<std::size_t>(16, Count * sizeof(T))) Neighbours {
  T at[Count];
};

// One map over tensors of fewer than 2^31 groups.
template <class F, class Y, class... X>
struct Map {
  static constexpr int kOperands = 1 + static_cast<int>(sizeof...(X));
  F f;
  Walk<kOperands> walk;  // over y and the operands, by groups or by elements
  bool grouped;
  int edge;  // elements of the last group of a row; 0: all groups are whole
  Y* y;
  const void* x[kOperands];  // the last one unused
  bool repeats[kOperands];   // the operand is one number along the last axis
};

// `count` of the neighbours at `from`; the first one in place of the others.
template <int Count, class T>
__device__ Neighbours<T, Count> read_neighbours(const T* from, int count, bool repeats) {
  if (count == Count && !repeats) return *reinterpret_cast<const Neighbours<T, Count>*>(from);
  Neighbours<T, Count> result;
#pragma unroll
  for (int j = 0; j < Count; ++j) result.at[j] = from[j < count && !repeats ? j : 0];
  return result;
}

// Results of f in the type of y: f32 is rounded to bf16 in pairs, as in `stored`.
template <class Y, class Result, int Count>
__device__ Neighbours<Y, Count> as_stored(const Neighbours<Result, Count>& results) {
  Neighbours<Y, Count> y;
  if constexpr (std::is_same_v<Y, bf16> && std::is_same_v<Result, float> && Count % 2 == 0) {
#pragma unroll
    for (int j = 0; j < Count; j += 2) {
      const __nv_bfloat162 pair = __floats2bfloat162_rn(results.at[j], results.at[j + 1]);
      std::memcpy(&y.at[j], &pair, sizeof pair);
    }
  } else {
#pragma unroll
    for (int j = 0; j < Count; ++j) y.at[j] = static_cast<Y>(results.at[j]);
  }
  return y;
}

template <int Count, class F, class Y, class... X, int... K>
__device__ void map_group(const Map<F, Y, X...>& map, std::uint32_t group, std::integer_sequence<int, K...>) {
  std::int64_t at[sizeof...(X) + 1] = {};
  map.walk.add_offsets(group, at);
  const int count = Count > 1 && map.edge > 0 && map.walk.ends_row(group) ? map.edge : Count;
  const auto results = [&](const Neighbours<X, Count>&... x) {
    Neighbours<decltype(map.f(x.at[0]...)), Count> y;
#pragma unroll
    for (int j = 0; j < Count; ++j) y.at[j] = map.f(x.at[j]...);
    return as_stored<Y>(y);
  }(read_neighbours<Count>(static_cast<const X*>(map.x[K]) + at[K + 1], count, map.repeats[K])...);
  Y* const y = map.y + at[0];
  if (count == Count)
    *reinterpret_cast<Neighbours<Y, Count>*>(y) = results;
  else
#pragma unroll
    for (int j = 0; j < Count; ++j)
      if (j < count) y[j] = results.at[j];
}

template <class F, class Y, class... X>
__device__ void run_map(const Map<F, Y, X...>& map) {
  constexpr auto kEach = std::make_integer_sequence<int, sizeof...(X)>{};
  for (std::int64_t i = first_item(); i < map.walk.elements; i += item_step()) {
    if (map.grouped)
      map_group<kMapGroup<Y, X...>>(map, static_cast<std::uint32_t>(i), kEach);
    else
      map_group<1>(map, static_cast<std::uint32_t>(i), kEach);
  }
}

template <class F, class Y, class... X>
__global__ void map_kernel(const __grid_constant__ Map<F, Y, X...> map) {
  run_map(map);
}

// Whether groups of `count` elements can be loaded and stored whole: `bytes` and `data` are those of an
// element and of the tensors, y first.
template <int Operands>
bool moves_groups(const WalkShape<Operands>& shape, int count, const std::size_t (&bytes)[Operands],
                  const void* const (&data)[Operands]) {
  const int last = shape.rank - 1;
  if (last < 0 || shape.sizes[last] < count) return false;
  if (shape.sizes[last] % count != 0 && shape.sizes[last] > kMostWalked) return false;  // parts have no edge
  for (int k = 0; k < Operands; ++k) {
    const std::int64_t step = shape.strides[k][last], size = static_cast<std::int64_t>(bytes[k]);
    if (step == 0 && k > 0) continue;
    const std::int64_t load = std::min<std::int64_t>(16, count * size);
    bool fits = step == 1 && aligned(data[k], static_cast<std::uintptr_t>(load));
    for (int i = 0; i < last; ++i) fits = fits && shape.strides[k][i] * size % load == 0;
    if (!fits) return false;
  }
  return true;
}

// Calls run(map) for the parts of a map over tensors whose axes are in `shape`, y first; usually there is one.
template <class F, class Y, class... X, class Run>
void for_maps(const F& f, WalkShape<1 + static_cast<int>(sizeof...(X))> shape, Run&& run, Y* y,
              const X*... x) {
  constexpr int kOperands = Map<F, Y, X...>::kOperands, kCount = kMapGroup<Y, X...>;
  const void* const data[kOperands] = {y, x...};
  Map<F, Y, X...> map{f, {}, moves_groups(shape, kCount, {sizeof(Y), sizeof(X)...}, data), 0, y, {x...}, {}};
  if (map.grouped) {
    const int last = shape.rank - 1;
    map.edge = static_cast<int>(shape.sizes[last] % kCount);
    shape.sizes[last] = (shape.sizes[last] + kCount - 1) / kCount;
    for (int k = 0; k < kOperands; ++k) {
      if (k > 0) map.repeats[k - 1] = shape.strides[k][last] == 0;
      shape.strides[k][last] *= kCount;
    }
  }
  shape.for_parts([&](const Walk<kOperands>& walk, const std::int64_t* at) {
    map.walk = walk;
    map.y = y + at[0];
    int k = 0;
    ((map.x[k] = x + at[k + 1], ++k), ...);
    run(map);
  });
}

// A map over contiguous tensors: group i of each lies at i * kMapGroup, so that nothing is computed to find it.
template <class F, class Y, class... X>
struct FlatMap {
  F f;
  std::uint32_t elements;
  bool grouped;
  Y* y;
  const void* x[1 + sizeof...(X)];  // the last one unused
};

template <int Count, class F, class Y, class... X, int... K>
__device__ void flat_group(const FlatMap<F, Y, X...>& map, std::uint32_t group,
                           std::integer_sequence<int, K...>) {
  const std::size_t at = std::size_t{group} * Count;
  const auto results = [&](const Neighbours<X, Count>&... x) {
    Neighbours<decltype(map.f(x.at[0]...)), Count> y;
#pragma unroll
    for (int j = 0; j < Count; ++j) y.at[j] = map.f(x.at[j]...);
    return as_stored<Y>(y);
  }(read_neighbours<Count>(static_cast<const X*>(map.x[K]) + at, Count, false)...);
  *reinterpret_cast<Neighbours<Y, Count>*>(map.y + at) = results;
}

template <class F, class Y, class... X>
__global__ void flat_map_kernel(const __grid_constant__ FlatMap<F, Y, X...> map) {
  constexpr auto kEach = std::make_integer_sequence<int, sizeof...(X)>{};
  constexpr std::uint32_t kCount = kMapGroup<Y, X...>;
  const auto first = static_cast<std::uint32_t>(first_item()), step = static_cast<std::uint32_t>(item_step());
  const std::uint32_t groups = map.grouped ? map.elements / kCount : 0;
  for (std::uint32_t i = first; i < groups; i += step) flat_group<kCount>(map, i, kEach);
  for (std::uint32_t i = groups * kCount + first; i < map.elements; i += step) flat_group<1>(map, i, kEach);
}

// Launches y = f(x...) for `elements` neighbours of each.
template <class F, class Y, class... X>
void launch_flat_map(const char* name, const F& f, std::int64_t elements, Y* y, const X*... x) {
  constexpr int kCount = kMapGroup<Y, X...>;
  const auto takes = [](const auto* data) {
    return aligned(data, std::min<std::size_t>(16, kCount * sizeof *data));
  };
  const bool grouped = takes(y) && (takes(x) && ...);
  for (std::int64_t start = 0; start < elements; start += kMostWalked) {
    const auto part = static_cast<std::uint32_t>(std::min(elements - start, kMostWalked));
    launch(name, flat_map_kernel<F, Y, X...>, grid_for(grouped ? part / kCount : part, kThreads), kThreads,
           {f, part, grouped, y + start, {x + start...}});
  }
}

// Launches y = f(x...) for tensors whose axes are in `shape`, y first.
template <class F, class Y, class... X>
void launch_map(const char* name, const F& f, const WalkShape<1 + static_cast<int>(sizeof...(X))>& shape,
                Y* y, const X*... x) {
  if (shape.is_flat()) return launch_flat_map(name, f, shape.elements(), y, x...);
  for_maps(
      f, shape,
      [&](const Map<F, Y, X...>& map) {
        launch(name, map_kernel<F, Y, X...>, grid_for(map.walk.elements, kThreads), kThreads, map);
      },
      y, x...);
}

}  // namespace eddy::cuda
