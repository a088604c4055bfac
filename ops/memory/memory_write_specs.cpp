// Samples, reference and cost of the op in memory_write.h.
#include <algorithm>

#include "ops/core/op_spec.h"
#include "ops/memory/memory_write.h"

namespace eddy {
namespace {

// Row after row, each to its place.
Tensors reference_write(const Tensors& x) {
  std::vector<double> memory[2] = {x[0].to_vector<double>(), x[1].to_vector<double>()};
  const std::vector<double> fresh[2] = {x[3].to_vector<double>(), x[4].to_vector<double>()};
  std::vector<std::int64_t> count = x[2].to_vector<std::int64_t>();
  const std::vector<std::uint8_t> emptied = x[5].to_vector<std::uint8_t>();
  const std::int64_t size = x[0].dim(1), rows = x[3].dim(1), width = x[0].dim(2) * x[0].dim(3);
  std::vector<double> counts;
  for (std::size_t b = 0; b < count.size(); ++b) {
    const auto sequence = static_cast<std::int64_t>(b);
    if (emptied[b] != 0) {
      count[b] = 0;
      for (std::vector<double>& part : memory)
        std::fill_n(part.begin() + sequence * size * width, size * width, 0);
    }
    for (std::int64_t row = 0; row < rows; ++row, ++count[b])
      for (std::size_t part = 0; part < 2; ++part)
        std::copy_n(fresh[part].begin() + (sequence * rows + row) * width, width,
                    memory[part].begin() + (sequence * size + count[b] % size) * width);
    counts.push_back(static_cast<double>(count[b]));
  }
  return {Tensor::from(memory[0], x[0].shape()), Tensor::from(memory[1], x[0].shape()),
          Tensor::from(counts, {std::ssize(counts)})};
}

// A memory of so many entries, what has been written to each sequence, rows, and which are emptied first.
Tensors writing(const Shape& rows, std::int64_t size, const std::vector<std::int64_t>& count,
                const std::vector<std::uint8_t>& emptied) {
  const Shape memory{rows[0], size, rows[2], rows[3]};
  return {sample_normal(memory, "keys"),     sample_normal(memory, "values"),
          Tensor::from(count, {rows[0]}),    sample_normal(rows, "new_keys"),
          sample_normal(rows, "new_values"), Tensor::from(emptied, {rows[0]})};
}

}  // namespace

std::vector<OpSpec> memory_write_specs() {
  OpSpec spec{"memory_write", "row i to place (count + i) mod size of a ring, some sequences emptied first"};
  // Counts as numbers that can be compared; those of the samples are exact in every dtype.
  spec.run = [](const Tensors& x) {
    const MemoryEntries after = memory_write({x[0], x[1], x[2]}, x[3], x[4], x[5]);
    return Tensors{after.keys, after.values, raw::cast(after.count, x[0].dtype())};
  };
  spec.reference = reference_write;
  const auto strided = [](Tensors x) {
    for (const std::size_t i : {0u, 4u}) x[i] = strided_copy(x[i]);
    return x;
  };
  spec.samples = {
      {"size_0", writing({0, 2, 3, 5}, 4, {}, {}), false},
      {"size_1", writing({1, 1, 1, 1}, 1, {7}, {0}), false},
      {"no_rows", writing({3, 0, 2, 5}, 4, {0, 3, 9}, {0, 1, 0}), false},
      {"odd_tail", writing({3, 5, 3, 11}, 7, {0, 4, 23}, {0, 0, 0}), false},
      {"emptied", writing({3, 3, 2, 5}, 7, {5, 6, 9}, {1, 0, 1}), false},
      {"all_places", writing({2, 6, 2, 4}, 6, {6, 9}, {0, 0}), false},
      {"more_rows_than_places", writing({3, 11, 1, 3}, 4, {0, 3, 6}, {0, 0, 1}), false},
      {"strided", strided(writing({2, 3, 2, 5}, 7, {5, 1}, {0, 0})), false},
  };
  spec.roundings = 0;
  spec.bench = [] { return writing({1, 512, 8, 128}, 8192, {7936}, {0}); };
  return {spec};
}

}  // namespace eddy
