// Checks and the node of dropout.
#include "ops/dropout.h"

#include "autograd/tape.h"
#include "ops/checks.h"
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

}  // namespace eddy
