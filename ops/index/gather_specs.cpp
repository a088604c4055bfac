// Samples and references of the ops in gather.h.
#include "ops/core/op_spec.h"
#include "ops/index/gather.h"

namespace eddy {
namespace {

OpSpec embedding_spec() {
  OpSpec spec{"embedding", "y[i, :] = table[ids[i], :]"};
  spec.run = [](const Tensors& x) { return embedding(x[0], x[1]); };
  spec.reference = [](const Tensors& x) {
    const std::vector<double> table = x[0].to_vector<double>();
    const std::int64_t dim = x[0].dim(1);
    std::vector<double> result;
    for (const std::int64_t id : raw::cast(x[1], Dtype::i64).to_vector<std::int64_t>())
      for (std::int64_t c = 0; c < dim; ++c) result.push_back(table[static_cast<std::size_t>(id * dim + c)]);
    return Tensor::from(result, x[1].shape().inserted(x[1].rank(), dim));
  };
  const auto table = [](std::int64_t vocab, std::int64_t dim) {
    return sample_normal({vocab, dim}, "table");
  };
  const auto ids = [](const Shape& shape, std::int64_t vocab) { return sample_indices(shape, "ids", vocab); };
  spec.samples = {{"size_0", {table(5, 3), ids({0}, 5)}},
                  {"size_0_dim", {table(5, 0), ids({4}, 5)}},
                  {"size_1", {table(1, 1), ids({1}, 1)}},
                  {"scalar_id", {table(4, 3), ids({}, 4)}},
                  {"odd_tail", {table(7, 37), ids({2, 5}, 7)}},
                  {"repeated", {table(3, 5), ids({4, 9}, 2)}},
                  {"i32", {table(6, 4), raw::cast(ids({3, 3}, 6), Dtype::i32)}},
                  {"strided", {strided_copy(table(6, 5)), strided_copy(ids({3, 4}, 6))}},
                  {"many_chunks", {table(11, 150), ids({300}, 11)}, false},
                  {"large", {sample_normal({5, 3}, "table", 1e6), ids({6}, 5)}}};
  spec.roundings = 0;
  spec.bench = [table, ids] { return Tensors{table(16384, 512), ids({8, 1024}, 16384)}; };
  return spec;
}

OpSpec gather_spec() {
  OpSpec spec{"gather", "y[i, j, k] = x[i, index[i, j, k], k]"};
  spec.run = [](const Tensors& x) { return gather(x[0], 1, x[1]); };
  spec.reference = [](const Tensors& x) {
    const std::vector<double> values = x[0].to_vector<double>();
    const std::vector<std::int64_t> index = x[1].to_vector<std::int64_t>();
    const std::int64_t inner = x[0].rank() == 3 ? x[0].dim(2) : 1;
    std::vector<double> result;
    for (std::int64_t i = 0; i < x[0].dim(0); ++i)
      for (std::int64_t j = 0; j < x[1].dim(1); ++j)
        for (std::int64_t k = 0; k < inner; ++k) {
          const std::int64_t pick = index[static_cast<std::size_t>((i * x[1].dim(1) + j) * inner + k)];
          result.push_back(values[static_cast<std::size_t>((i * x[0].dim(1) + pick) * inner + k)]);
        }
    return Tensor::from(result, x[1].shape());
  };
  const auto values = [](const Shape& shape) { return sample_normal(shape, "x"); };
  const auto index = [](const Shape& shape, std::int64_t limit) {
    return sample_indices(shape, "index", limit);
  };
  spec.samples = {{"size_0", {values({3, 4}), index({3, 0}, 4)}},
                  {"size_0_outer", {values({0, 4, 2}), index({0, 3, 2}, 4)}},
                  {"size_1", {values({1, 1}), index({1, 1}, 1)}},
                  {"last_axis", {values({5, 7}), index({5, 1}, 7)}},
                  {"odd_tail", {values({2, 5, 7}), index({2, 3, 7}, 5)}},
                  {"repeated", {values({2, 3, 4}), index({2, 9, 4}, 3)}},
                  {"strided", {strided_copy(values({2, 4, 5})), strided_copy(index({2, 3, 5}, 4))}},
                  {"many_chunks", {values({2, 9, 150}), index({2, 300, 150}, 9)}, false},
                  {"more_entries_than_threads", {values({2, 300, 3}), index({2, 310, 3}, 300)}, false},
                  {"large", {sample_normal({3, 4}, "x", 1e6), index({3, 2}, 4)}}};
  spec.roundings = 0;
  spec.bench = [values, index] { return Tensors{values({4096, 1024}), index({4096, 64}, 1024)}; };
  return spec;
}

OpSpec embedding_sum_spec() {
  OpSpec spec{"embedding_sum", "y[i, :] = table[ids[i], :] + rows[i, :], in another dtype"};
  spec.run = [](const Tensors& x) { return embedding_sum(x[0], x[1], x[2], x[0].dtype()); };
  spec.reference = [](const Tensors& x) {
    const std::vector<double> table = x[0].to_vector<double>();
    const std::int64_t dim = x[0].dim(1);
    const Shape shape = x[1].shape().inserted(x[1].rank(), dim);
    std::vector<double> result = raw::copy(raw::expand(x[2], shape)).to_vector<double>();
    std::size_t place = 0;
    for (const std::int64_t id : raw::cast(x[1], Dtype::i64).to_vector<std::int64_t>())
      for (std::int64_t c = 0; c < dim; ++c) result[place++] += table[static_cast<std::size_t>(id * dim + c)];
    return Tensor::from(result, shape);
  };
  const auto sample = [](const Shape& ids, std::int64_t vocab, const Shape& rows) {
    return Tensors{sample_normal({vocab, rows[rows.rank() - 1]}, "table"), sample_indices(ids, "ids", vocab),
                   sample_normal(rows, "rows")};
  };
  const Tensors odd = sample({2, 5}, 7, {5, 37});
  spec.samples = {{"size_0", sample({0}, 5, {0, 3})},
                  {"size_1", sample({1}, 1, {1, 1})},
                  {"scalar_id", sample({}, 4, {3})},
                  {"odd_tail", odd},
                  {"by_four", sample({3, 5}, 6, {5, 8})},
                  {"one_row", sample({2, 5}, 7, {8})},
                  {"all_rows", sample({2, 3}, 4, {2, 3, 5})},
                  {"time_major", sample({5, 2}, 7, {5, 1, 12})},
                  {"blocks", sample({3, 2, 4}, 7, {3, 1, 4, 6})},
                  {"strided", strided_copies(odd)}};
  spec.roundings = 1;
  spec.bench = [] {
    return Tensors{sample_normal({16384, 512}, "table"), sample_indices({8, 1024}, "ids", 16384),
                   sample_normal({1024, 512}, "rows")};
  };
  return spec;
}

}  // namespace

std::vector<OpSpec> gather_specs() {
  return {embedding_spec(), embedding_sum_spec(), gather_spec()};
}

}  // namespace eddy
