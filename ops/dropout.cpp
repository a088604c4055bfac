// Checks and the node of dropout.
#include "ops/dropout.h"

#include "autograd/tape.h"
#include "ops/checks.h"
#include "ops/op_spec.h"
#include "ops/widen.h"
#include "tensor/format.h"

namespace eddy {

constinit Slot<DropoutArgs> dropout_slot{"dropout"};

Tensor dropout(const Tensor& input, double p, const RandomKey& key, std::uint64_t first_element) {
  if (!widens(input)) checks::floating("dropout", input);
  if (!(p >= 0 && p < 1)) fail<ValueError>("dropout: p out of range: {} (0 <= p < 1)", p);
  if (p == 0) return input;
  if (widens(input)) return narrowed(dropout(wide(input), p, key, first_element));
  const Tensor x = raw::contiguous(input);
  const Tensor y = Tensor::empty(x.shape(), x.dtype(), x.device());
  const double scale = 1 / (1 - p);
  if (y.elements() > 0)
    dropout_slot(y.device(),
                 {y.dtype(), y.elements(), x.raw_data(), y.raw_data(), p, key, first_element, scale, 0});
  // y = mask scale x is linear in x, so dx = mask scale dy, the mask drawn again from its key.
  return record("dropout", {input}, y, {}, [=](VjpContext& v) {
    v.sink.into(0, [&](const Tensor& dst, float beta) {
      const Tensor dy =
          raw::contiguous(dst.dtype() == v.dy().dtype() ? v.dy() : raw::cast(v.dy(), dst.dtype()));
      if (dst.elements() > 0)
        dropout_slot(dst.device(), {dst.dtype(), dst.elements(), dy.raw_data(), dst.raw_data(), p, key,
                                    first_element, scale, beta});
    });
  });
}

// ---- samples
// ---------------------------------------------------------------------------------------------------------

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
