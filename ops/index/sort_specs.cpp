// Samples and references of the ops in sort.h.
#include <utility>

#include "ops/core/op_spec.h"
#include "ops/index/sort.h"

namespace eddy {
namespace {

// By repeated exchange of neighbours along axis 1; then the first `count`, or all with a count of -1.
Tensors reference_sort(const Tensor& x, std::int64_t count, bool descending) {
  const Tensor rows = raw::contiguous(raw::transpose(x, 1, -1));
  const std::int64_t size = x.dim(1);
  std::vector<double> values = rows.to_vector<double>(), kept;
  std::vector<std::int64_t> places;
  const std::int64_t taken = count < 0 ? size : count;
  for (std::size_t row = 0; row < values.size(); row += static_cast<std::size_t>(size)) {
    std::vector<std::pair<double, std::int64_t>> line;
    for (std::int64_t i = 0; i < size; ++i) line.emplace_back(values[row + static_cast<std::size_t>(i)], i);
    for (std::size_t round = 0; round < line.size(); ++round)
      for (std::size_t i = 0; i + 1 < line.size(); ++i)
        if (descending ? line[i].first < line[i + 1].first : line[i].first > line[i + 1].first)
          std::swap(line[i], line[i + 1]);
    for (std::int64_t i = 0; i < taken; ++i) {
      kept.push_back(line[static_cast<std::size_t>(i)].first);
      places.push_back(line[static_cast<std::size_t>(i)].second);
    }
  }
  const Shape shape = rows.shape().with(rows.rank() - 1, taken);
  return {raw::contiguous(raw::transpose(Tensor::from(kept, shape), 1, -1)),
          raw::contiguous(raw::transpose(Tensor::from(places, shape), 1, -1))};
}

OpSpec sort_spec(const char* name, const char* formula, OpFunction run, std::int64_t count, bool descending) {
  OpSpec spec{name, formula};
  spec.run = std::move(run);
  spec.reference = [=](const Tensors& x) { return reference_sort(x[0], count, descending); };
  const auto values = [name](const Shape& shape) { return sample_normal(shape, name); };
  spec.samples = {{"size_0", {values({0, 3})}},
                  {"size_2", {values({1, 2})}},
                  {"odd_tail", {values({3, 37})}},
                  {"middle_axis", {values({2, 7, 5})}},
                  {"equal", {Tensor::from({1.0, 3.0, 1.0, 3.0, 2.0, 1.0}, {1, 6})}, false},
                  {"strided", {strided_copy(values({5, 7}))}},
                  {"large", {sample_normal({2, 5}, name, 1e6)}, false}};
  spec.roundings = 0;
  spec.bench = [=] { return values({256, 1024}); };
  return spec;
}

}  // namespace

std::vector<OpSpec> sort_specs() {
  const auto tensors = [](const detail::SortedValues& sorted) {
    return Tensors{sorted.values, sorted.indices};
  };
  return {sort_spec(
              "sort", "elements in rising order and their places",
              [=](const Tensors& x) { return tensors(sort(x[0], 1)); }, -1, false),
          sort_spec(
              "sort_descending", "the same in falling order",
              [=](const Tensors& x) { return tensors(sort(x[0], 1, true)); }, -1, true),
          sort_spec(
              "topk", "the two largest and their places",
              [=](const Tensors& x) { return tensors(topk(x[0], 2, 1)); }, 2, true)};
}

}  // namespace eddy
