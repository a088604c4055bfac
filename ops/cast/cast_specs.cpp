// Samples and references of the ops in cast.h.
#include "ops/cast/cast.h"
#include "ops/core/op_spec.h"

namespace eddy {

// There and back again through f32 and bf16: exact on the samples, whose values are exact in bf16. A finite
// difference would see the rounding, so the gradient is tested against the identity in
// tests/ops/views/test_views.cpp.
std::vector<OpSpec> cast_specs() {
  OpSpec spec{"cast", "x in another dtype"};
  spec.run = [](const Tensors& x) { return cast(cast(cast(x[0], Dtype::f32), Dtype::bf16), x[0].dtype()); };
  spec.reference = [](const Tensors& x) { return Tensor::from(x[0].to_vector<double>(), x[0].shape()); };
  const auto values = [](const Shape& shape, double scale = 1) {
    return raw::cast(raw::cast(sample_normal(shape, "cast", scale), Dtype::bf16), Dtype::f64);
  };
  spec.samples = {{"size_0", {values({0, 3})}, false},
                  {"size_1", {values({1})}, false},
                  {"odd_tail", {values({3, 37})}, false},
                  {"strided", {strided_copy(values({5, 7}))}, false},
                  {"large", {values({33}, 1e6)}, false}};
  spec.roundings = 0;
  spec.bench = [values] { return values({2048, 1024}); };
  return {spec};
}

}  // namespace eddy
