// The precision of parameters, and what products keep of them.
#include "ops/core/parameter_cache.h"

namespace eddy {

using namespace detail;

namespace {

// All elements of a buffer as one row.
Tensor whole(const Ref<Buffer>& buffer, Dtype dtype) {
  const std::int64_t adjacent[] = {1};
  return Tensor::over(buffer, 0, {buffer->bytes() / static_cast<std::int64_t>(dtype_bytes(dtype))}, adjacent,
                      dtype);
}

}  // namespace

MatmulPrecision matmul_precision(const Tensor& x) {
  const ParameterCache* const cache = x.defined() ? ParameterCache::of(x) : nullptr;
  return cache == nullptr ? MatmulPrecision::f32 : cache->precision;
}

// Only mark_parameters fills the slot, so its type is known here.
ParameterCache* ParameterCache::of(const Tensor& x) {
  return static_cast<ParameterCache*>(x.buffer()->derived().get());
}

ParameterCache::ParameterCache(MatmulPrecision of_products, bool rounded)
    : precision(of_products), keeps_bf16(rounded) {}

// After a write.
void ParameterCache::renew(const Tensor& x) {
  Buffer& buffer = *x.buffer();
  if (buffer.derived_is_current()) return;
  panels_ = nullptr;
  if (copy_ != nullptr) round(x);
  buffer.mark_derived_current();
}

void ParameterCache::round(const Tensor& x) {
  raw::cast_into(whole(copy_, Dtype::bf16), whole(x.buffer(), Dtype::f32));
  copy_->bump_version(x.buffer()->last_writer());
}

Ref<RefCounted>& ParameterCache::panels(const Tensor& x) {
  renew(x);
  return panels_;
}

const Ref<Buffer>& ParameterCache::bf16_copy(const Tensor& x) {
  renew(x);
  if (copy_ == nullptr) {
    const std::int64_t elements = x.buffer()->bytes() / static_cast<std::int64_t>(sizeof(float));
    copy_ = Tensor::empty({elements}, Dtype::bf16, x.device()).buffer();
    round(x);
  }
  return copy_;
}

Buffer* ParameterCache::current_bf16_copy(const Tensor& x) const {
  return x.buffer()->derived_is_current() ? copy_.get() : nullptr;
}

void mark_parameters(const Tensor& x, MatmulPrecision precision, bool keeps_bf16) {
  x.buffer()->set_derived(make_ref<ParameterCache>(precision, keeps_bf16));
}

bool keeps_bf16_copy(const Tensor& x) {
  const ParameterCache* const cache = ParameterCache::of(x);
  return cache != nullptr && cache->keeps_bf16;
}

Tensor raw::to_bf16(const Tensor& x) {
  if (x.dtype() == Dtype::bf16) return x;
  if (x.dtype() != Dtype::f32 || !keeps_bf16_copy(x)) return raw::cast(x, Dtype::bf16);
  return Tensor::over(ParameterCache::of(x)->bf16_copy(x), x.offset(), x.shape(), x.strides(), Dtype::bf16);
}

}  // namespace eddy
