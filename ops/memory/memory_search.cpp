// Checks of memory_search, the products that give its scores, and its CPU kernels.
#include "ops/memory/memory_search.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "autograd/tape.h"
#include "ops/cast/upcast.h"
#include "ops/core/checks.h"
#include "ops/core/cpu_path.h"
#include "ops/cpu/isa.h"
#include "ops/product/gemm.h"
#include "tensor/base/format.h"
#include "tensor/threads/thread_pool.h"

namespace eddy {

using namespace detail;

namespace {

// Scores computed at a time, before the best are chosen. On the CPU 4 MiB of f32, so that choosing reads them
// from the cache; a GPU needs more work per launch.
constexpr std::int64_t kCpuScores = std::int64_t{1} << 20, kGpuScores = std::int64_t{1} << 24;

void check_search(const Tensor& q, const Tensor& keys, const Tensor& values, std::int64_t topk) {
  checks::floating("memory_search", q, "q");
  checks::same_kind("memory_search", q, keys);
  checks::same_kind("memory_search", q, values);
  if (q.rank() != 4 || keys.rank() != 4 || keys.shape() != values.shape() || q.dim(0) != keys.dim(0) ||
      q.dim(2) != keys.dim(2) || q.dim(3) != keys.dim(3))
    fail<ShapeError>(
        "memory_search: q {}, keys {}, values {} (q [batch, time, heads, head_dim], keys and values "
        "[batch, size, heads, head_dim])",
        to_string(q.shape()), to_string(keys.shape()), to_string(values.shape()));
  if (topk < 1 || topk > keys.dim(1))
    fail<ValueError>("memory_search: topk is {} (from 1 to the memory's size, {})", topk, keys.dim(1));
  if (keys.dim(1) >> 31 != 0)
    fail<ShapeError>("memory_search: a memory of {} entries (fewer than 2^31)", keys.dim(1));
}

char* at(const Tensor& x, std::int64_t element) {
  return static_cast<char*>(x.raw_data()) + element * static_cast<std::int64_t>(dtype_bytes(x.dtype()));
}

// ---- CPU kernels

template <class T>
void mark(const MemoryMarkArgs& a) {
  const std::int64_t row = a.heads * a.head_dim;
  parallel_for(a.batch * a.heads, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t item = begin; item < end; ++item) {
      const T* const keys =
          static_cast<const T*>(a.keys) + item / a.heads * a.size * row + item % a.heads * a.head_dim;
      std::uint8_t* const blank = a.blank + item * a.size;
      std::int32_t last = 0;
      for (std::int64_t m = 0; m < a.size; ++m) {
        const T* const key = keys + m * row;
        blank[m] = std::all_of(key, key + a.head_dim, [](T x) { return x == 0; });
        if (blank[m] == 0) last = static_cast<std::int32_t>(m + 1);
      }
      a.ends[item] = last;
    }
  });
}

// One query: its scores, and where its results go.
template <class T>
struct Taking {
  const MemoryTakeArgs& args;
  std::int64_t query, end;

  T score(std::int64_t m) const {
    return args.blank[m] != 0 ? static_cast<T>(kMemoryEmptyScore)
                              : static_cast<const T*>(args.scores)[query * args.score_stride + m];
  }
  // Adds `weight` times an entry to a place.
  void add(std::int64_t m, std::int64_t place, T weight) const {
    const std::int64_t to = (query * args.topk + place) * args.stride, from = m * args.stride;
    const auto* const keys = static_cast<const T*>(args.keys) + from;
    const auto* const values = static_cast<const T*>(args.values) + from;
    for (std::int64_t i = 0; i < args.head_dim; ++i) {
      static_cast<T*>(args.taken_keys)[to + i] += weight * keys[i];
      static_cast<T*>(args.taken_values)[to + i] += weight * values[i];
    }
  }
  void clear() const {
    for (std::int64_t place = 0; place < args.topk; ++place)
      for (void* const taken : {args.taken_keys, args.taken_values})
        std::fill_n(static_cast<T*>(taken) + (query * args.topk + place) * args.stride, args.head_dim, T(0));
  }
};

template <class T>
void take_by_bucket(const Taking<T>& taking) {
  const std::int64_t topk = taking.args.topk;
  for (std::int64_t bucket = 0; bucket < std::min(topk, taking.end); ++bucket) {
    T best = taking.score(bucket);
    for (std::int64_t m = bucket; m < taking.end; m += topk) best = std::max(best, taking.score(m));
    // A NaN among the scores makes the sum of weights NaN, and so the result.
    const auto weight = [&](std::int64_t m) {
      const double gap =
          kMemorySharpness * (static_cast<double>(best) - static_cast<double>(taking.score(m)));
      return gap > kMemoryNegligible ? 0.0 : std::exp(-gap);
    };
    double total = 0;
    for (std::int64_t m = bucket; m < taking.end; m += topk) total += weight(m);
    for (std::int64_t m = bucket; m < taking.end; m += topk)
      if (const double w = weight(m); !(w == 0)) taking.add(m, bucket, static_cast<T>(w / total));
  }
}

// NaN ranks first, so that it shows in the result; of equal scores, the first entry.
template <class T>
bool comes_before(T a, std::int32_t i, T b, std::int32_t j) {
  if (std::isnan(a) || std::isnan(b)) return std::isnan(a) && (!std::isnan(b) || i < j);
  return a != b ? a > b : i < j;
}

template <class T>
void take_best(const Taking<T>& taking) {
  std::int32_t* const chosen = taking.args.chosen + taking.query * taking.args.topk;
  std::vector<std::int32_t> order(static_cast<std::size_t>(taking.end));
  std::iota(order.begin(), order.end(), 0);
  const std::int64_t wanted = std::min(taking.args.topk, taking.end);
  std::partial_sort_copy(
      order.begin(), order.end(), chosen, chosen + wanted,
      [&](std::int32_t i, std::int32_t j) { return comes_before(taking.score(i), i, taking.score(j), j); });
  std::sort(chosen, chosen + wanted);
  for (std::int64_t place = 0; place < wanted; ++place) taking.add(chosen[place], place, T(1));
}

template <class T>
void take(const MemoryTakeArgs& a) {
  parallel_for(a.queries, 1 + 4096 / (*a.end + 1), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t query = begin; query < end; ++query) {
      const Taking<T> taking{a, query, *a.end};
      taking.clear();
      a.exact ? take_best(taking) : take_by_bucket(taking);
    }
  });
}

}  // namespace

EDDY_CPU_KERNEL(memory_mark, mark)
EDDY_CPU_KERNEL(memory_take, take)

MemoryMatches memory_search(const Tensor& q, const Tensor& given_keys, const Tensor& given_values,
                            std::int64_t topk, MemorySearch search, MatmulPrecision precision) {
  if (is_bf16(q)) {
    const NoGrad no_grad;
    const MemoryMatches taken =
        memory_search(upcast(q), upcast_like("memory_search", q, given_keys),
                      upcast_like("memory_search", q, given_values), topk, search, precision);
    return {downcast(taken.keys), downcast(taken.values)};
  }
  check_search(q, given_keys, given_values, topk);
  const Tensor keys = raw::contiguous(given_keys), values = raw::contiguous(given_values);
  const std::int64_t batch = q.dim(0), time = q.dim(1), heads = q.dim(2), head_dim = q.dim(3);
  const std::int64_t size = keys.dim(1), row = heads * head_dim;
  const Device device = q.device();
  const bool on_cpu = uses_cpu_path(device);
  const Shape shape{batch, time, topk, heads, head_dim};
  const MemoryMatches taken{Tensor::empty(shape, q.dtype(), device), Tensor::empty(shape, q.dtype(), device)};
  if (taken.keys.elements() == 0) return taken;

  const Tensor queries = raw::contiguous(q);
  const Tensor blank = Tensor::empty({batch, heads, size}, Dtype::u8, device),
               ends = Tensor::empty({batch, heads}, Dtype::i32, device);
  memory_mark_slot(device, {q.dtype(), batch, size, heads, head_dim, keys.raw_data(),
                            blank.mutable_data<std::uint8_t>(), ends.mutable_data<std::int32_t>()});
  const std::int64_t chunk = std::clamp<std::int64_t>((on_cpu ? kCpuScores : kGpuScores) / size, 1, time);
  const Tensor scores = Tensor::empty({chunk, size}, q.dtype(), device),
               chosen = Tensor::empty({chunk, topk}, Dtype::i32, device),
               best = Tensor::empty({on_cpu ? 0 : chunk, topk, 2}, Dtype::f32, device);
  for (std::int64_t item = 0; item < batch * heads; ++item) {
    const std::int64_t sequence = item / heads, in_row = item % heads * head_dim;
    const std::int32_t* const end = ends.data<std::int32_t>() + item;
    // How full the memory is stays unknown here: the host does not wait for a GPU, and counting has the bound.
    const std::int64_t filled = device == kCpu ? *end : size;
    const std::int64_t of_entries = sequence * size * row + in_row;
    for (std::int64_t first = 0; first < time; first += chunk) {
      const std::int64_t rows = std::min(chunk, time - first), query = sequence * time + first;
      if (filled > 0) {
        GemmArgs scored{q.dtype(),
                        false,
                        true,
                        rows,
                        filled,
                        head_dim,
                        at(queries, query * row + in_row),
                        row,
                        at(keys, of_entries),
                        row,
                        scores.raw_data(),
                        size};
        scored.precision = coarsest(precision, q, keys);
        gemm_slot(device, scored);
      }
      const std::int64_t to = query * topk * row + in_row;
      memory_take_slot(
          device, {q.dtype(), search == MemorySearch::exact, rows, topk, head_dim, row, scores.raw_data(),
                   size, blank.data<std::uint8_t>() + item * size, end, at(keys, of_entries),
                   at(values, of_entries), at(taken.keys, to), at(taken.values, to),
                   chosen.mutable_data<std::int32_t>(), on_cpu ? nullptr : best.mutable_data<float>()});
    }
  }
  return taken;
}

}  // namespace eddy
