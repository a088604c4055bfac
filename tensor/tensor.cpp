// Tensors and their untracked views. Loops over elements are in elements.cpp; copies between devices use the
// Transfer that a backend installs (transfer.h).
#include "tensor/tensor.h"

#include <cstring>

#include "tensor/base/format.h"
#include "tensor/memory/allocator.h"
#include "tensor/memory/recycled.h"
#include "tensor/transfer.h"

namespace eddy {

Buffer::Buffer(std::int64_t bytes, Device device)
    : data_(allocator(device).allocate(static_cast<std::size_t>(bytes))), bytes_(bytes), device_(device) {}

Buffer::~Buffer() {
  allocator(device_).deallocate(data_, static_cast<std::size_t>(bytes_));
}

namespace {

void row_major_strides(const Shape& shape, std::int64_t* strides) {
  std::int64_t step = 1;
  for (int i = shape.rank() - 1; i >= 0; --i) {
    strides[i] = step;
    step *= shape[i];
  }
}

}  // namespace

Tensor Tensor::over(Ref<Buffer> buffer, std::int64_t offset, const Shape& shape, const std::int64_t* strides,
                    Dtype dtype) {
  Tensor tensor;
  tensor.impl_ = Ref<Impl>(new detail::Recycled<Impl>);
  tensor.impl_->buffer = std::move(buffer);
  tensor.impl_->offset = offset;
  tensor.impl_->shape = shape;
  tensor.impl_->dtype = dtype;
  for (int i = 0; i < shape.rank(); ++i) tensor.impl_->strides[i] = strides[i];
  return tensor;
}

Tensor Tensor::empty(const Shape& shape, Dtype dtype, Device device) {
  std::int64_t bytes = static_cast<std::int64_t>(dtype_bytes(dtype));
  for (const std::int64_t size : shape)
    if (__builtin_mul_overflow(bytes, size, &bytes))
      fail<OutOfMemoryError>("tensor: {} of {} is more than 2^63 bytes", to_string(shape), dtype_name(dtype));
  std::int64_t strides[kMaxRank];
  row_major_strides(shape, strides);
  return over(Ref<Buffer>(new detail::Recycled<Buffer>(bytes, device)), 0, shape, strides, dtype);
}

Tensor Tensor::zeros(const Shape& shape, Dtype dtype, Device device) {
  Tensor tensor = empty(shape, dtype, device);
  raw::fill(tensor, 0);
  return tensor;
}

Tensor Tensor::full(const Shape& shape, double value, Dtype dtype, Device device) {
  Tensor tensor = empty(shape, dtype, device);
  raw::fill(tensor, value);
  return tensor;
}

template <class T>
Tensor Tensor::from(const std::vector<T>& values, const Shape& shape) {
  if (std::ssize(values) != shape.elements())
    fail<ShapeError>("tensor: {} values do not fill {} ({} elements)", values.size(), to_string(shape),
                     shape.elements());
  Tensor tensor = empty(shape, dtype_of<T>);
  if (!values.empty()) std::memcpy(tensor.raw_data(), values.data(), values.size() * sizeof(T));
  return tensor;
}

template <class T>
std::vector<T> Tensor::to_vector() const {
  check_dtype(dtype_of<T>);
  const Tensor packed = raw::contiguous(raw::to_device(*this, kCpu));
  std::vector<T> values(static_cast<std::size_t>(elements()));
  if (!values.empty()) std::memcpy(values.data(), packed.raw_data(), values.size() * sizeof(T));
  return values;
}

#define EDDY_INSTANTIATE(T)                                                    \
  template Tensor Tensor::from<T>(const std::vector<T>& values, const Shape&); \
  template std::vector<T> Tensor::to_vector<T>() const;
EDDY_INSTANTIATE(float)
EDDY_INSTANTIATE(bf16)
EDDY_INSTANTIATE(double)
EDDY_INSTANTIATE(std::int32_t)
EDDY_INSTANTIATE(std::int64_t)
EDDY_INSTANTIATE(std::uint8_t)
#undef EDDY_INSTANTIATE

bool Tensor::contiguous() const {
  std::int64_t expected = 1;
  for (int i = rank() - 1; i >= 0; --i) {
    if (shape()[i] != 1 && strides()[i] != expected) return elements() == 0;
    expected *= shape()[i];
  }
  return true;
}

void Tensor::undefined() {
  fail<ValueError>(
      "tensor: it is undefined (a default-constructed Tensor has no elements: create one first)");
}

void Tensor::dtype_mismatch(Dtype wanted) const {
  fail<DtypeError>("tensor: it holds {} and is read as {} (cast it first)", dtype_name(dtype()),
                   dtype_name(wanted));
}

double Tensor::item() const {
  if (elements() != 1)
    fail<ShapeError>("item: the tensor has {} elements: {} (one)", elements(), to_string(shape()));
  return raw::cast(raw::to_device(*this, kCpu), Dtype::f64).to_vector<double>()[0];
}

std::int64_t Tensor::item_int() const {
  if (elements() != 1)
    fail<ShapeError>("item: the tensor has {} elements: {} (one)", elements(), to_string(shape()));
  return raw::cast(raw::to_device(*this, kCpu), Dtype::i64).to_vector<std::int64_t>()[0];
}

namespace raw {

Tensor reshape(const Tensor& x, const Shape& wanted) {
  if (wanted.elements() != x.elements())
    fail<ShapeError>("reshape: {} has {} elements and {} has {}", to_string(x.shape()), x.elements(),
                     to_string(wanted), wanted.elements());
  std::int64_t strides[kMaxRank];
  row_major_strides(wanted, strides);
  if (!x.contiguous()) {
    // Old axes with contiguous addresses form a run; each run must split evenly into new axes.
    struct Run {
      std::int64_t size, stride;
    };
    Run runs[kMaxRank];
    int last = -1;
    for (int i = 0; i < x.rank(); ++i) {
      if (x.shape()[i] == 1) continue;
      if (last >= 0 && runs[last].stride == x.strides()[i] * x.shape()[i]) {
        runs[last] = {runs[last].size * x.shape()[i], x.strides()[i]};
      } else {
        runs[++last] = {x.shape()[i], x.strides()[i]};
      }
    }
    for (int i = wanted.rank() - 1; i >= 0; --i) {
      if (wanted[i] == 1) continue;
      if (runs[last].size == 1) --last;
      if (runs[last].size % wanted[i] != 0)
        fail<ShapeError>(
            "reshape: {} with strides cannot be seen as {} without a copy (make it contiguous first)",
            to_string(x.shape()), to_string(wanted));
      strides[i] = runs[last].stride;
      runs[last] = {runs[last].size / wanted[i], runs[last].stride * wanted[i]};
    }
  }
  return Tensor::over(x.buffer(), x.offset(), wanted, strides, x.dtype());
}

Tensor transpose(const Tensor& x, int axis_a, int axis_b) {
  const int a = x.shape().normal_axis(axis_a), b = x.shape().normal_axis(axis_b);
  Shape shape = x.shape();
  std::int64_t strides[kMaxRank];
  for (int i = 0; i < x.rank(); ++i) strides[i] = x.strides()[i];
  std::swap(shape[a], shape[b]);
  std::swap(strides[a], strides[b]);
  return Tensor::over(x.buffer(), x.offset(), shape, strides, x.dtype());
}

Tensor narrow(const Tensor& x, int axis, std::int64_t start, std::int64_t length) {
  const int a = x.shape().normal_axis(axis);
  if (start < 0 || length < 0 || start > x.shape()[a] - length)
    fail<ShapeError>("narrow: {} entries from {} of axis {} of {} (the axis has {})", length, start, a,
                     to_string(x.shape()), x.shape()[a]);
  return Tensor::over(x.buffer(), x.offset() + start * x.strides()[a], x.shape().with(a, length), x.strides(),
                      x.dtype());
}

Tensor select(const Tensor& x, int axis, std::int64_t index) {
  const int a = x.shape().normal_axis(axis);
  if (index < 0 || index >= x.shape()[a])
    fail<ShapeError>("select: entry {} of axis {} of {} (the axis has {})", index, a, to_string(x.shape()),
                     x.shape()[a]);
  std::int64_t strides[kMaxRank];
  for (int i = 0, to = 0; i < x.rank(); ++i)
    if (i != a) strides[to++] = x.strides()[i];
  return Tensor::over(x.buffer(), x.offset() + index * x.strides()[a], x.shape().without(a), strides,
                      x.dtype());
}

Tensor expand(const Tensor& x, const Shape& shape) {
  const int extra = shape.rank() - x.rank();
  bool fits = extra >= 0;
  std::int64_t strides[kMaxRank] = {};
  for (int i = 0; fits && i < x.rank(); ++i) {
    const std::int64_t from = x.shape()[i], to = shape[i + extra];
    fits = from == to || from == 1;
    strides[i + extra] = from == to ? x.strides()[i] : 0;
  }
  if (!fits)
    fail<ShapeError>("expand: {} to {} (only sizes of 1 repeat, aligned at the end)", to_string(x.shape()),
                     to_string(shape));
  return Tensor::over(x.buffer(), x.offset(), shape, strides, x.dtype());
}

Tensor alias(const Tensor& x) {
  return Tensor::over(x.buffer(), x.offset(), x.shape(), x.strides(), x.dtype());
}

Tensor copy(const Tensor& x) {
  Tensor result = Tensor::empty(x.shape(), x.dtype(), x.device());
  copy_into(result, x);
  return result;
}

Tensor contiguous(const Tensor& x) {
  return x.contiguous() ? x : copy(x);
}

Tensor cast(const Tensor& x, Dtype dtype) {
  if (x.dtype() == dtype) return copy(x);
  const Tensor result = Tensor::empty(x.shape(), dtype, x.device());
  cast_into(result, x);
  return result;
}

Tensor to_device(const Tensor& x, Device device) {
  if (x.device() == device) return x;
  return transfer(x.device().type == DeviceType::cpu ? device : x.device()).to_device(x, device);
}

std::optional<std::vector<std::int64_t>> integers_at_hand(const Tensor& x) {
  if (x.dtype() != Dtype::i32 && x.dtype() != Dtype::i64 && x.dtype() != Dtype::u8)
    fail<DtypeError>("integers_at_hand: {} (i32, i64 or u8)", dtype_name(x.dtype()));
  if (x.device() != kCpu) return {};
  return contiguous(cast(x, Dtype::i64)).to_vector<std::int64_t>();
}

}  // namespace raw
}  // namespace eddy
