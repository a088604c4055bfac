// What products keep of a buffer of parameters until these are written: a copy in bf16, and packed panels. And the
// precision of products with them. It lies in the buffer's slot
// (Buffer::derived).
#pragma once

#include "ops/core/matmul_precision.h"
#include "tensor/tensor.h"

namespace eddy {

namespace detail {
class ParameterCache : public RefCounted {
 public:
  // Returns the cache of the buffer that x views; null if it holds no parameters.
  static ParameterCache* of(const Tensor& x);

  ParameterCache(MatmulPrecision precision, bool keeps_bf16);

  // x views the buffer of the parameters.
  // Returns the place of their panels (PackedWeights in ops/product/packed_weights.h); null in it before the first
  // use and after a write.
  Ref<RefCounted>& panels(const Tensor& x);
  // Returns their copy in bf16, one element for each f32 of the buffer. It is made at the first call, and rounded again
  // after a write.
  const Ref<Buffer>& bf16_copy(const Tensor& x);
  // Returns that copy if it is equal to the rounded values now, else null.
  Buffer* current_bf16_copy(const Tensor& x) const;

  const MatmulPrecision precision;
  const bool keeps_bf16;  // whether raw::to_bf16 gives views of the copy

 private:
  void renew(const Tensor& x);
  void round(const Tensor& x);

  Ref<RefCounted> panels_;
  Ref<Buffer> copy_;
};
}  // namespace detail

// Makes x's buffer one of parameters. `keeps_bf16`: they are read in bf16, and raw::to_bf16 rounds them once between
// two writes.
void mark_parameters(const Tensor& x, MatmulPrecision precision, bool keeps_bf16 = false);
// Returns whether x views parameters that are read in bf16.
bool keeps_bf16_copy(const Tensor& x);

namespace raw {
// Returns x in bf16: x itself if it is bf16, else a copy. If the buffer keeps a rounded copy of itself, the result is a
// view of that copy. It is made again only after a write to the buffer, so all tensors of the buffer share one cast.
Tensor to_bf16(const Tensor& x);
}  // namespace raw

}  // namespace eddy
