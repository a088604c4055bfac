// Checks and nodes of dropout.
#include "ops/pointwise/dropout.h"

#include "autograd/tape.h"
#include "ops/cast/upcast.h"
#include "ops/core/checks.h"
#include "tensor/base/format.h"

namespace eddy {

using namespace detail;

namespace {

void check(const char* op, const Tensor& x, double p) {
  if (!must_upcast(x)) checks::floating(op, x);
  if (!(p >= 0 && p < 1)) fail<ValueError>("{}: p out of range: {} (0 <= p < 1)", op, p);
}

}  // namespace

Tensor dropout(const Tensor& input, double p, const RandomKey& key, std::uint64_t first_element) {
  check("dropout", input, p);
  if (p == 0) return input;
  if (must_upcast(input)) return downcast(dropout(upcast(input), p, key, first_element));
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

Tensor tiled_dropout(const Tensor& input, double p, const RandomKey& key, std::int64_t tile,
                     std::int64_t first) {
  check("tiled_dropout", input, p);
  if (input.rank() != 3)
    fail<ShapeError>("tiled_dropout: x has shape {} ([batch, time, dim])", to_string(input.shape()));
  if (tile < 1 || first < 0)
    fail<ValueError>("tiled_dropout: a tile of {} positions from position {} (at least 1 from at least 0)",
                     tile, first);
  if (p == 0) return input;
  if (must_upcast(input)) return downcast(tiled_dropout(upcast(input), p, key, tile, first));
  const auto masked = [p, key, tile, first](const Tensor& given) {
    const Tensor x = raw::contiguous(given), y = Tensor::empty(x.shape(), x.dtype(), x.device());
    if (y.elements() > 0)
      tiled_dropout_slot(y.device(), {y.dtype(), y.dim(0), y.dim(1), y.dim(2), tile, first, x.raw_data(),
                                      y.raw_data(), p, key, 1 / (1 - p)});
    return y;
  };
  // y = mask x, so dx = mask dy.
  return record("tiled_dropout", {input}, masked(input), {},
                [masked](VjpContext& v) { v.sink.accumulate(0, masked(v.dy())); });
}

}  // namespace eddy
