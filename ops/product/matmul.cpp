// matmul: products of matrices, one by one or in batches.
#include "ops/product/matmul.h"

#include "autograd/tape.h"
#include "ops/cast/upcast.h"
#include "ops/core/checks.h"
#include "ops/product/product.h"
#include "tensor/base/format.h"
#include "tensor/transfer.h"

namespace eddy {

using namespace detail;

Tensor matmul(const Tensor& a, const Tensor& b, MatmulPrecision given) {
  if (!must_upcast(a)) checks::floating("matmul", a);
  checks::same_kind("matmul", a, b);
  if (a.rank() < 2 || b.rank() < 2)
    fail<ShapeError>("matmul: {} and {} (both need at least two axes)", to_string(a.shape()),
                     to_string(b.shape()));
  if (a.dim(-1) != b.dim(-2))
    fail<ShapeError>("matmul: inner sizes differ: {} and {} ([..., m, k] by [..., k, n])",
                     to_string(a.shape()), to_string(b.shape()));
  const MatmulPrecision precision = coarsest(given, a, b);
  const bool shared_b = b.rank() == 2 && a.rank() > 2;
  if (!shared_b) {
    bool equal = a.rank() == b.rank();
    for (int i = 0; equal && i + 2 < a.rank(); ++i) equal = a.shape()[i] == b.shape()[i];
    if (!equal)
      fail<ShapeError>("matmul: leading axes differ: {} and {} (equal, or a plain matrix on the right)",
                       to_string(a.shape()), to_string(b.shape()));
  }
  if (shared_b) {  // fold the batch into the rows: one large product beats many small ones
    const Shape shape = a.shape().with(-1, b.dim(-1));
    const Tensor rows = flat_rows(a);
    const Tensor y = Tensor::empty(shape, a.dtype(), a.device());
    multiply_into(raw::reshape(y, {rows.dim(0), b.dim(1)}), rows, b, 0, {.precision = precision});
    return record("matmul", {a, b}, y, {rows, b}, [shape_a = a.shape(), precision](VjpContext& v) {
      const Tensor dy = flat_rows(v.dy());
      if (v.sink.needs(0))
        v.sink.into(0, [&](const Tensor& dst, float beta) {
          multiply_into(raw::reshape(dst, {dy.dim(0), shape_a.dim(-1)}), dy, raw::transpose(v.saved(1), 0, 1),
                        beta, {.precision = precision});
        });
      if (v.sink.needs(1))
        v.sink.into(1, [&](const Tensor& dst, float beta) {
          multiply_into(dst, raw::transpose(v.saved(0), 0, 1), dy, beta, {.precision = precision});
        });
    });
  }
  const Tensor y = Tensor::empty(a.shape().with(-1, b.dim(-1)), a.dtype(), a.device());
  multiply_into(y, a, b, 0, {.precision = precision});
  return record("matmul", {a, b}, y, {a, b}, [precision](VjpContext& v) {
    const Tensor dy = readable_by_gemm(v.dy());
    if (v.sink.needs(0))
      v.sink.into(0, [&](const Tensor& dst, float beta) {
        multiply_into(dst, dy, raw::transpose(v.saved(1), -1, -2), beta, {.precision = precision});
      });
    if (v.sink.needs(1))
      v.sink.into(1, [&](const Tensor& dst, float beta) {
        multiply_into(dst, raw::transpose(v.saved(0), -1, -2), dy, beta, {.precision = precision});
      });
  });
}

}  // namespace eddy
