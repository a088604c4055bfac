// Sample values for OpSpecs.
#include "ops/core/op_spec.h"

#include <cmath>

#include "tensor/random/philox.h"

namespace eddy {
namespace {
constexpr std::uint64_t kSampleSeed = 20240607;
}

Tensor sample_normal(const Shape& shape, const char* stream, double scale) {
  const RandomKey key = random_key(kSampleSeed, stream, 0);
  std::vector<double> values(static_cast<std::size_t>(shape.elements()));
  for (std::size_t i = 0; i < values.size(); ++i) {
    const Philox4 word = key.words(i);
    const double radius = std::sqrt(-2.0 * std::log((word.word[0] + 0.5) * 0x1p-32));
    values[i] = static_cast<float>(scale * radius * std::cos(6.283185307179586 * word.word[1] * 0x1p-32));
  }
  return Tensor::from(values, shape);
}

Tensor sample_uniform(const Shape& shape, const char* stream, double low, double high) {
  const RandomKey key = random_key(kSampleSeed, stream, 0);
  std::vector<double> values(static_cast<std::size_t>(shape.elements()));
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] = static_cast<float>(low + (high - low) * uniform01(key.word(i)));
  return Tensor::from(values, shape);
}

Tensor sample_indices(const Shape& shape, const char* stream, std::int64_t limit) {
  const RandomKey key = random_key(kSampleSeed, stream, 0);
  std::vector<std::int64_t> values(static_cast<std::size_t>(shape.elements()));
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] = static_cast<std::int64_t>(key.word(i) % static_cast<std::uint32_t>(limit));
  return Tensor::from(values, shape);
}

Tensor strided_copy(const Tensor& x) {
  if (x.rank() == 0) return x;
  if (x.rank() == 1) {
    const Tensor wide = Tensor::zeros({x.dim(0), 2}, x.dtype());
    const Tensor view = raw::select(wide, 1, 0);
    raw::copy_into(view, x);
    return view;
  }
  return raw::transpose(raw::copy(raw::transpose(x, -1, -2)), -1, -2);
}

Tensors strided_copies(const Tensors& inputs) {
  Tensors copies;
  for (const Tensor& x : inputs) copies.push_back(strided_copy(x));
  return copies;
}

}  // namespace eddy
