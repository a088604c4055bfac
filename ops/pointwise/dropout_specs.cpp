// Samples and references of the ops in dropout.h.
#include "ops/core/op_spec.h"
#include "ops/pointwise/dropout.h"

namespace eddy {
namespace {

constexpr double kP = 0.3;

OpSpec tiled_dropout_spec() {
  constexpr std::int64_t kTile = 5, kFirst = 3;
  OpSpec spec{"tiled_dropout",
              "x[b, t, d] / (1 - p) where uniform01(word (first + t) % tile dim + d) >= p, else 0"};
  const RandomKey key = random_key(7, "tiled dropout sample", 3);
  spec.run = [key](const Tensors& x) { return tiled_dropout(x[0], kP, key, kTile, kFirst); };
  spec.reference = [key](const Tensors& x) {
    std::vector<double> values = x[0].to_vector<double>();
    const std::int64_t time = x[0].dim(1), dim = x[0].dim(2);
    for (std::int64_t i = 0; i < x[0].elements(); ++i) {
      const std::int64_t word = (kFirst + i / dim % time) % kTile * dim + i % dim;
      const double drawn = uniform01(key.word(static_cast<std::uint64_t>(word)));
      values[static_cast<std::size_t>(i)] *= drawn >= kP ? 1 / (1 - kP) : 0;
    }
    return Tensor::from(values, x[0].shape());
  };
  const auto values = [](const Shape& shape) { return sample_normal(shape, "x"); };
  spec.samples = {{"size_0", {values({2, 0, 3})}},
                  {"size_1", {values({1, 1, 1})}},
                  {"odd_tail", {values({2, 13, 67})}},
                  {"by_four", {values({3, 7, 8})}},
                  {"strided", {strided_copy(values({2, 5, 7}))}},
                  {"many_chunks", {values({2, 33, 1029})}, false},
                  {"large", {sample_normal({1, 4, 9}, "x", 1e6)}}};
  spec.roundings = 2;
  spec.bench = [values] { return values({4, 512, 1024}); };
  return spec;
}

}  // namespace

std::vector<OpSpec> dropout_specs() {
  static constexpr std::uint64_t kFirst = 0x3ffffffe5;  // odd, and the counter of its words passes 2^32 soon
  OpSpec spec{"dropout", "x / (1 - p) where uniform01(word) >= p, else 0"};
  const RandomKey key = random_key(7, "dropout sample", 3);
  spec.run = [key](const Tensors& x) { return dropout(x[0], kP, key, kFirst); };
  spec.reference = [key](const Tensors& x) {
    std::vector<double> values = x[0].to_vector<double>();
    for (std::size_t i = 0; i < values.size(); ++i)
      values[i] = static_cast<double>(uniform01(key.word(kFirst + i))) >= kP ? values[i] / (1 - kP) : 0;
    return Tensor::from(values, x[0].shape());
  };
  const auto values = [](const Shape& shape) { return sample_normal(shape, "x"); };
  spec.samples = {{"size_0", {values({0, 3})}},
                  {"size_1", {values({1})}},
                  {"odd_tail", {values({3, 67})}},
                  {"strided", {strided_copy(values({5, 7}))}},
                  {"many_chunks", {values({3, 16389})}, false},
                  {"large", {sample_normal({33}, "x", 1e6)}}};
  spec.roundings = 2;
  spec.bench = [values] { return values({2048, 1024}); };
  return {spec, tiled_dropout_spec()};
}

}  // namespace eddy
