// The tensor handle: one pointer to {buffer, offset, shape, strides, dtype, autograd data}. A copy shares
// it. The functions here ignore gradients; the differentiable operations are the free functions of ops/.
#pragma once

#include <atomic>
#include <cstdint>
#include <utility>
#include <vector>

#include "tensor/base/device.h"
#include "tensor/base/dtype.h"
#include "tensor/memory/ref.h"
#include "tensor/shape.h"

namespace eddy {

// Bytes on a device, shared by all tensors that view them. `version` counts in-place writes; a tensor that is
// saved for backward remembers the version at that time.
class Buffer : public RefCounted {
 public:
  Buffer(std::int64_t bytes, Device device);
  ~Buffer() override;
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  void* data() const { return data_; }
  std::int64_t bytes() const { return bytes_; }
  Device device() const { return device_; }
  std::uint32_t version() const { return version_; }
  const char* last_writer() const { return last_writer_; }
  // Used by autograd: how many saved tensors view this buffer, and the counter that its bytes were added to.
  std::int32_t saves = 0;
  std::int64_t* saved_bytes_counter = nullptr;

  // Lets raw::to_bf16 cache a rounded copy of this f32 buffer, for parameters, which many products read
  // between two writes.
  void keep_bf16_copy() { keeps_bf16_copy_ = true; }
  bool keeps_bf16_copy() const { return keeps_bf16_copy_; }

  // Marks an in-place write by `writer` (a string that lives forever).
  void bump_version(const char* writer) {
    ++version_;
    last_writer_ = writer;
  }

 private:
  void* data_;
  std::int64_t bytes_;
  Device device_;
  std::uint32_t version_ = 0;
  bool keeps_bf16_copy_ = false;
  const char* last_writer_ = "";

 public:
  // The cached copy (one bf16 for each f32) and the version it was made from; null before the first use.
  Ref<Buffer> bf16_copy;
  std::uint32_t bf16_copy_version = 0;
};

// Base of the data that autograd attaches to a tensor (autograd/node.h).
class AutogradData : public RefCounted {};

class Tensor {
 public:
  Tensor() = default;  // undefined: no storage; defined() is false

  // Returns an uninitialised row-major tensor.
  // errors: OutOfMemoryError, DeviceError.
  static Tensor empty(const Shape& shape, Dtype dtype = Dtype::f32, Device device = kCpu);
  static Tensor zeros(const Shape& shape, Dtype dtype = Dtype::f32, Device device = kCpu);
  static Tensor full(const Shape& shape, double value, Dtype dtype = Dtype::f32, Device device = kCpu);
  // Returns a tensor filled with `values` in row-major order.
  // errors: ShapeError when the count differs from the shape's.
  template <class T>
  static Tensor from(const std::vector<T>& values, const Shape& shape);
  // Returns a tensor over an existing buffer; nothing checks that it fits.
  static Tensor over(Ref<Buffer> buffer, std::int64_t offset, const Shape& shape, const std::int64_t* strides,
                     Dtype dtype);

  bool defined() const { return impl_ != nullptr; }
  const Shape& shape() const { return impl_->shape; }
  std::int64_t dim(int axis) const { return impl_->shape.dim(axis); }
  int rank() const { return impl_->shape.rank(); }
  std::int64_t elements() const { return impl_->shape.elements(); }
  std::int64_t bytes() const { return elements() * static_cast<std::int64_t>(dtype_bytes(dtype())); }
  const std::int64_t* strides() const { return impl_->strides; }
  std::int64_t offset() const { return impl_->offset; }  // of the first element in the buffer, in elements
  Dtype dtype() const { return impl_->dtype; }
  Device device() const { return impl_->buffer->device(); }
  const Ref<Buffer>& buffer() const { return impl_->buffer; }
  bool contiguous() const;
  // Whether no other tensor shares these bytes.
  bool exclusive() const { return impl_->ref_count() == 1 && impl_->buffer->ref_count() == 1; }
  bool same(const Tensor& other) const { return impl_ == other.impl_; }

  // Returns the address of the first element.
  // errors: DtypeError when T is not the tensor's type.
  void* raw_data() const {
    return static_cast<char*>(impl_->buffer->data()) +
           impl_->offset * static_cast<std::int64_t>(dtype_bytes(dtype()));
  }
  template <class T>
  T* data() const {
    check_dtype(dtype_of<T>);
    return static_cast<T*>(raw_data());
  }

  // Returns the value of a tensor with one element, as double or int64.
  // errors: ShapeError with more than one.
  double item() const;
  std::int64_t item_int() const;
  // Returns all elements in row-major order.
  // errors: DtypeError when T is not the tensor's type.
  template <class T>
  std::vector<T> to_vector() const;

  // The autograd side; see autograd/tape.h for what users call.
  AutogradData* autograd() const { return defined() ? impl_->autograd.get() : nullptr; }
  void set_autograd(Ref<AutogradData> data) const { impl_->autograd = std::move(data); }

  explicit operator bool() const = delete;  // use defined()

 private:
  struct Impl : RefCounted {
    Ref<Buffer> buffer;
    std::int64_t offset = 0;
    Shape shape;
    std::int64_t strides[kMaxRank] = {};
    Dtype dtype = Dtype::f32;
    Ref<AutogradData> autograd;
  };
  void check_dtype(Dtype wanted) const {
    if (impl_->dtype != wanted) dtype_mismatch(wanted);
  }
  [[noreturn]] void dtype_mismatch(Dtype wanted) const;

  Ref<Impl> impl_;
};

// Views without gradients. Each returns a tensor over the same buffer and drops autograd data; the
// differentiable forms in ops/views/views.h call these.
namespace raw {

// Returns x with another shape.
// errors: ShapeError when the numbers of elements differ or the strides do not allow it without a copy.
Tensor reshape(const Tensor& x, const Shape& shape);
// Returns x with two axes swapped.
Tensor transpose(const Tensor& x, int axis_a, int axis_b);
// Returns `length` entries of an axis from `start`.
// errors: ShapeError outside the axis.
Tensor narrow(const Tensor& x, int axis, std::int64_t start, std::int64_t length);
// Returns one entry of an axis, without that axis.
Tensor select(const Tensor& x, int axis, std::int64_t index);
// Returns x with sizes of 1 (and missing leading axes) repeated by stride 0.
// errors: ShapeError when another size differs.
Tensor expand(const Tensor& x, const Shape& shape);
// Returns the same storage without autograd data.
Tensor alias(const Tensor& x);
// Returns a row-major copy with its own buffer.
Tensor copy(const Tensor& x);
// Returns x itself when it is row-major, else a row-major copy.
Tensor contiguous(const Tensor& x);
// Overwrites the elements of `to` (any strides) with `from` (same shape and dtype). Does not bump the
// version.
void copy_into(const Tensor& to, const Tensor& from);
// Computes to += from, elementwise, for floating types and any strides. Does not bump the version.
void add_into(const Tensor& to, const Tensor& from);
void fill(const Tensor& x, double value);
// Returns a copy in another dtype.
Tensor cast(const Tensor& x, Dtype dtype);
// Overwrites the elements of `to` with those of `from`, of any dtypes. Does not bump the version.
// errors: ShapeError when the shapes differ; DeviceError.
void cast_into(const Tensor& to, const Tensor& from);
// Returns x in bf16: x itself if it is bf16, else a copy. If the buffer keeps a rounded copy of itself, the
// result is a view of that copy. It is made again only after a write to the buffer, so all tensors of the
// buffer share one cast.
Tensor to_bf16(const Tensor& x);
// Returns a copy on another device.
Tensor to_device(const Tensor& x, Device device);

}  // namespace raw

}  // namespace eddy
