// The ring of entries, the two searches, and the mix.
#include "models/block_recurrent_memory.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "autograd/scope.h"
#include "ops/gemm.h"
#include "ops/pointwise.h"
#include "ops/views.h"
#include "tensor/format.h"
#include "tensor/thread_pool.h"

namespace eddy {
namespace {

// Scores of one chunk of queries: 4 MiB of f32, so that selection reads them from cache.
constexpr std::int64_t kChunkScores = std::int64_t{1} << 20;
// The weight of an entry whose score is lower by `gap` is exp(-1e6 gap); below exp(-60) it is lost in
// rounding.
constexpr double kSharpness = 1e6, kForgotten = 60;
constexpr double kEmptyScore = -1e6;

// One sequence and head: rows of q, entries and results, each with its distance between rows.
template <class T>
struct SearchArgs {
  std::int64_t filled, topk, head_dim, stride;  // stride: between entries, and between taken pairs
  const T *keys, *values;
  T *taken_keys, *taken_values;
};

template <class T>
void add_scaled(T* to, const T* from, T factor, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) to[i] += factor * from[i];
}

template <class T>
void take(const SearchArgs<T>& a, std::int64_t entry, std::int64_t place, T weight) {
  add_scaled(a.taken_keys + place * a.stride, a.keys + entry * a.stride, weight, a.head_dim);
  add_scaled(a.taken_values + place * a.stride, a.values + entry * a.stride, weight, a.head_dim);
}

// The best of each bucket; equal ones averaged.
template <class T>
void take_by_bucket(const SearchArgs<T>& a, const T* scores) {
  for (std::int64_t bucket = 0; bucket < std::min(a.topk, a.filled); ++bucket) {
    T best = scores[bucket];
    for (std::int64_t m = bucket; m < a.filled; m += a.topk) best = std::max(best, scores[m]);
    const auto weight = [&](std::int64_t m) {
      const double gap = kSharpness * (static_cast<double>(best) - static_cast<double>(scores[m]));
      return gap > kForgotten ? 0.0 : std::exp(-gap);
    };
    double total = 0;
    for (std::int64_t m = bucket; m < a.filled; m += a.topk) total += weight(m);
    for (std::int64_t m = bucket; m < a.filled; m += a.topk)
      if (const double w = weight(m); w > 0) take(a, m, bucket, static_cast<T>(w / total));
  }
}

// The best of all; of equal ones those that lie in front.
template <class T>
void take_best(const SearchArgs<T>& a, const T* scores) {
  std::vector<std::int64_t> order(static_cast<std::size_t>(a.filled));
  std::iota(order.begin(), order.end(), std::int64_t{0});
  const std::int64_t wanted = std::min(a.topk, a.filled);
  std::partial_sort(order.begin(), order.begin() + wanted, order.end(), [&](std::int64_t i, std::int64_t j) {
    return scores[i] != scores[j] ? scores[i] > scores[j] : i < j;
  });
  for (std::int64_t place = 0; place < wanted; ++place)
    take(a, order[static_cast<std::size_t>(place)], place, T(1));
}

// All queries of all heads of one sequence. q is [batch, time, heads, head_dim], the results are zeros.
template <class T>
void search_sequence(const Tensor& q, const MemoryEntries& entries, std::int64_t sequence, std::int64_t topk,
                     bool exact, const Tensor& taken_keys, const Tensor& taken_values) {
  const std::int64_t time = q.dim(1), heads = q.dim(2), head_dim = q.dim(3), row = heads * head_dim;
  const std::int64_t size = entries.keys.dim(1);
  const std::int64_t filled = std::min(entries.count[static_cast<std::size_t>(sequence)], size);
  if (filled == 0) return;
  const std::int64_t chunk = std::clamp<std::int64_t>(kChunkScores / filled, 1, time);
  const Tensor scores = Tensor::empty({chunk, filled}, q.dtype());
  std::vector<bool> blank(static_cast<std::size_t>(filled));
  for (std::int64_t head = 0; head < heads; ++head) {
    const T* queries = q.data<T>() + sequence * time * row + head * head_dim;
    SearchArgs<T> args{filled, topk, head_dim, row, nullptr, nullptr, nullptr, nullptr};
    args.keys = entries.keys.data<T>() + sequence * size * row + head * head_dim;
    args.values = entries.values.data<T>() + sequence * size * row + head * head_dim;
    for (std::int64_t m = 0; m < filled; ++m)
      blank[static_cast<std::size_t>(m)] =
          std::all_of(args.keys + m * row, args.keys + m * row + head_dim, [](T x) { return x == 0; });
    for (std::int64_t first = 0; first < time; first += chunk) {
      const std::int64_t rows = std::min(chunk, time - first);
      GemmArgs gemm{};
      gemm.dtype = q.dtype();
      gemm.transpose_b = true;
      gemm.m = rows;
      gemm.n = filled;
      gemm.k = head_dim;
      gemm.a = queries + first * row;
      gemm.lda = row;
      gemm.b = args.keys;
      gemm.ldb = row;
      gemm.c = scores.raw_data();
      gemm.ldc = filled;
      gemm_slot(kCpu, gemm);
      parallel_for(rows, 1 + 4096 / filled, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t j = begin; j < end; ++j) {
          T* of_query = scores.data<T>() + j * filled;
          for (std::int64_t m = 0; m < filled; ++m)
            if (blank[static_cast<std::size_t>(m)]) of_query[m] = static_cast<T>(kEmptyScore);
          SearchArgs<T> mine = args;
          const std::int64_t to = (sequence * time + first + j) * topk * row + head * head_dim;
          mine.taken_keys = taken_keys.data<T>() + to;
          mine.taken_values = taken_values.data<T>() + to;
          exact ? take_best(mine, of_query) : take_by_bucket(mine, of_query);
        }
      });
    }
  }
}

}  // namespace

MemoryEntries MemoryEntries::empty(std::int64_t batch, const ModelConfig& config, Dtype dtype,
                                   Device device) {
  const Shape shape{batch, config.memory_size, config.heads, config.head_dim};
  return {Tensor::zeros(shape, dtype, device), Tensor::zeros(shape, dtype, device),
          std::vector<std::int64_t>(static_cast<std::size_t>(batch), 0)};
}

MemoryEntries MemoryEntries::emptied(const std::vector<bool>& flagged) const {
  MemoryEntries result{raw::copy(keys), raw::copy(values), count};
  for (std::size_t b = 0; b < count.size(); ++b) {
    if (!flagged[b]) continue;
    for (const Tensor& part : {result.keys, result.values})
      raw::fill(raw::select(part, 0, static_cast<std::int64_t>(b)), 0);
    result.count[b] = 0;
  }
  return result;
}

MemoryEntries MemoryEntries::with(const Tensor& new_keys, const Tensor& new_values) const {
  const std::int64_t size = keys.dim(1), rows = new_keys.dim(1);
  MemoryEntries result{raw::copy(keys), raw::copy(values), count};
  for (std::size_t b = 0; b < count.size(); ++b) {
    const auto sequence = static_cast<std::int64_t>(b);
    const std::int64_t slot = count[b] % size, before_end = std::min(rows, size - slot);
    const auto write = [&](const Tensor& to, const Tensor& from) {
      const Tensor ring = raw::select(to, 0, sequence), fresh = raw::select(from, 0, sequence);
      raw::copy_into(raw::narrow(ring, 0, slot, before_end), raw::narrow(fresh, 0, 0, before_end));
      raw::copy_into(raw::narrow(ring, 0, 0, rows - before_end),
                     raw::narrow(fresh, 0, before_end, rows - before_end));
    };
    write(result.keys, new_keys);
    write(result.values, new_values);
    result.count[b] += rows;
  }
  return result;
}

ExternalMemory::ExternalMemory(const ParamScope& scope, const ModelConfig& config)
    : topk_(config.memory_topk),
      exact_(config.memory_search == "exact"),
      gate_bias_(scope.param("gate_bias", {config.heads}, Init::zeros())) {}

ExternalMemory::Taken ExternalMemory::search(const Tensor& q, const MemoryEntries& entries) const {
  if (!(q.device() == kCpu))
    fail<DeviceError>("memorizing: the memory is searched on the CPU, and the model is on {}",
                      to_string(q.device()));
  const Shape shape{q.dim(0), q.dim(1), topk_, q.dim(2), q.dim(3)};
  const Taken taken{Tensor::zeros(shape, q.dtype()), Tensor::zeros(shape, q.dtype())};
  const Tensor queries = raw::contiguous(q);
  for (std::int64_t b = 0; b < q.dim(0); ++b) {
    if (q.dtype() == Dtype::f32)
      search_sequence<float>(queries, entries, b, topk_, exact_, taken.keys, taken.values);
    else
      search_sequence<double>(queries, entries, b, topk_, exact_, taken.keys, taken.values);
  }
  return taken;
}

Tensor ExternalMemory::mix(const Tensor& local, const Tensor& q, const MemoryEntries& entries,
                           const Tensor& head_scale, bool dense) const {
  const ScopeGuard scope("memory");
  const std::int64_t tokens = q.dim(0) * q.dim(1), heads = q.dim(2), head_dim = q.dim(3);
  const Taken taken = search(q, entries);
  const Shape pairs{tokens, topk_, heads, head_dim};
  const Tensor keys = raw::reshape(taken.keys, pairs), values = raw::reshape(taken.values, pairs);
  AttentionOptions options;
  options.scale = 1;
  options.head_scale = head_scale;
  const Tensor queries = reshape(q, {tokens, 1, heads, head_dim});
  const Tensor found = reshape(
      dense ? attention_composed(queries, keys, values, options) : attention(queries, keys, values, options),
      local.shape());
  const Tensor gate = reshape(sigmoid(gate_bias_), {heads, 1});
  return local + (found - local) * gate;
}

}  // namespace eddy
