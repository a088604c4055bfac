// Samples, references and costs of the ops in dropout.h.
#include "ops/dropout.h"
#include "ops/op_spec.h"

namespace eddy {

std::vector<OpSpec> dropout_specs() {
  static constexpr double kP = 0.3;
  static constexpr std::uint64_t kFirst = 0x3ffffffe5;  // odd, and the counter of its words passes 2^32 soon
  OpSpec spec;
  spec.name = "dropout";
  spec.formula = "x / (1 - p) where uniform01(word) >= p, else 0";
  const RandomKey key = random_key(7, "dropout sample", 3);
  spec.run = [key](const Tensors& x) { return Tensors{dropout(x[0], kP, key, kFirst)}; };
  spec.reference = [key](const Tensors& x) {
    std::vector<double> values = x[0].to_vector<double>();
    for (std::size_t i = 0; i < values.size(); ++i)
      values[i] = static_cast<double>(uniform01(key.word(kFirst + i))) >= kP ? values[i] / (1 - kP) : 0;
    return Tensors{Tensor::from(values, x[0].shape())};
  };
  const auto values = [](const Shape& shape) { return sample_normal(shape, "x"); };
  spec.samples = {{"size_0", {values({0, 3})}},
                  {"size_1", {values({1})}},
                  {"odd_tail", {values({3, 67})}},
                  {"strided", {strided_copy(values({5, 7}))}},
                  {"many_chunks", {values({3, 16389})}, false},
                  {"large", {sample_normal({33}, "x", 1e6)}}};
  spec.roundings = 2;
  spec.bench = [values] { return Tensors{raw::cast(values({2048, 1024}), Dtype::f32)}; };
  spec.cost = [](const Tensors& x) { return OpCost{0, 2 * static_cast<double>(x[0].bytes())}; };
  return {spec};
}

}  // namespace eddy
