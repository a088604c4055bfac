// Samples and references of the ops in memory_search.h.
#include <algorithm>
#include <cmath>

#include "ops/core/op_spec.h"
#include "ops/memory/memory_search.h"

namespace eddy {
namespace {

// In plain loops, query by query.
Tensors reference_search(const Tensors& x, std::int64_t topk, MemorySearch search) {
  const std::int64_t batch = x[0].dim(0), time = x[0].dim(1), heads = x[0].dim(2), width = x[0].dim(3);
  const std::int64_t size = x[1].dim(1);
  const std::vector<double> q = x[0].to_vector<double>(), keys = x[1].to_vector<double>(),
                            values = x[2].to_vector<double>();
  const Shape shape{batch, time, topk, heads, width};
  std::vector<double> taken_keys(static_cast<std::size_t>(shape.elements())), taken_values = taken_keys;
  const auto entry = [&](std::int64_t b, std::int64_t m, std::int64_t h) {
    return static_cast<std::size_t>(((b * size + m) * heads + h) * width);
  };
  for (std::int64_t b = 0; b < batch; ++b)
    for (std::int64_t t = 0; t < time; ++t)
      for (std::int64_t h = 0; h < heads; ++h) {
        std::vector<double> scores;
        std::size_t filled = 0;
        for (std::int64_t m = 0; m < size; ++m) {
          double score = 0;
          bool blank = true;
          for (std::int64_t i = 0; i < width; ++i) {
            const double k = keys[entry(b, m, h) + static_cast<std::size_t>(i)];
            score += q[static_cast<std::size_t>(((b * time + t) * heads + h) * width + i)] * k;
            blank = blank && k == 0;
          }
          scores.push_back(blank ? -1e6 : score);
          if (!blank) filled = scores.size();
        }
        scores.resize(filled);
        const auto put = [&](std::int64_t m, std::int64_t place, double weight) {
          for (std::int64_t i = 0; i < width; ++i) {
            const auto to =
                static_cast<std::size_t>((((b * time + t) * topk + place) * heads + h) * width + i);
            const std::size_t from = entry(b, m, h) + static_cast<std::size_t>(i);
            taken_keys[to] += weight * keys[from];
            taken_values[to] += weight * values[from];
          }
        };
        std::int64_t place = 0;
        for (std::size_t m = 0; m < filled; ++m) {
          double total = 0;
          std::int64_t better = 0;
          for (std::size_t other = 0; other < filled; ++other) {
            if (search == MemorySearch::exact)
              better += scores[other] > scores[m] || (scores[other] == scores[m] && other < m);
            else if (other % static_cast<std::size_t>(topk) == m % static_cast<std::size_t>(topk))
              total += std::exp(1e6 * std::clamp(scores[other] - scores[m], -1.0, 1e-4));
          }
          if (search == MemorySearch::exact && better < topk) put(static_cast<std::int64_t>(m), place++, 1);
          if (search == MemorySearch::bucket && total < 1e26)
            put(static_cast<std::int64_t>(m), static_cast<std::int64_t>(m) % topk, 1 / total);
        }
      }
  return {Tensor::from(taken_keys, shape), Tensor::from(taken_values, shape)};
}

// Quarters: scores of them are exact in f32, so that every dtype and device takes the same entries. Some are
// equal.
Tensor quarters(const Shape& shape, const char* stream) {
  std::vector<double> values = raw::cast(sample_indices(shape, stream, 9), Dtype::f64).to_vector<double>();
  for (double& value : values) value = (value - 4) / 4;
  return Tensor::from(values, shape);
}

// A memory of which `written` entries are not empty.
Tensors memory_of(const Shape& q, std::int64_t size, std::int64_t written) {
  const Shape shape{q[0], size, q[2], q[3]};
  const Tensor keys = quarters(shape, "keys"), values = quarters(shape, "values");
  for (const Tensor& x : {keys, values}) raw::fill(raw::narrow(x, 1, written, size - written), 0);
  return {quarters(q, "q"), keys, values};
}

}  // namespace

std::vector<OpSpec> memory_search_specs() {
  std::vector<OpSpec> specs;
  constexpr std::int64_t kTaken = 4;
  for (const MemorySearch search : {MemorySearch::bucket, MemorySearch::exact}) {
    OpSpec spec;
    const bool exact = search == MemorySearch::exact;
    spec.name = exact ? "memory_search_exact" : "memory_search";
    spec.formula =
        exact ? "the pairs of the topk best keys" : "the pair of the best key of each of topk buckets";
    spec.run = [search](const Tensors& x) {
      const MemoryMatches taken = memory_search(x[0], x[1], x[2], kTaken, search);
      return Tensors{taken.keys, taken.values};
    };
    spec.reference = [search](const Tensors& x) { return reference_search(x, kTaken, search); };
    const auto strided = [](Tensors x) {
      x[0] = strided_copy(x[0]);
      return x;
    };
    spec.samples = {{"size_0", memory_of({2, 0, 3, 5}, 7, 7), false},
                    {"size_1", memory_of({1, 1, 1, 1}, 4, 4), false},
                    {"odd_tail", memory_of({2, 7, 3, 5}, 11, 11), false},
                    {"half_filled", memory_of({1, 5, 2, 8}, 23, 9), false},
                    {"fewer_than_taken", memory_of({1, 5, 2, 8}, 23, 3), false},
                    {"empty", memory_of({1, 5, 2, 8}, 8, 0), false},
                    {"long", memory_of({1, 3, 2, 33}, 700, 650), false},
                    {"strided", strided(memory_of({2, 6, 3, 4}, 9, 8)), false}};
    spec.roundings = 4;
    spec.bench = [] { return memory_of({1, 512, 8, 128}, 8192, 8192); };
    specs.push_back(spec);
  }
  return specs;
}

}  // namespace eddy
