// The tensor handle: one pointer to {buffer, offset, shape, strides, dtype, autograd data}. Copies alias.
// Functions here know nothing of gradients; differentiable operations are the free functions of ops/.
#pragma once

#include <atomic>
#include <cstdint>
#include <utility>
#include <vector>

#include "tensor/base/device.h"
#include "tensor/base/dtype.h"
#include "tensor/memory/ref.h"
#include "tensor/shape.h"
#include "tensor/view.h"

namespace eddy {

// Bytes on a device, shared by all tensors that view them. `version` counts in-place writes; a tensor saved
// for the backward pass remembers the version it saw.
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
  // Bookkeeping of autograd: how many saved tensors view this buffer, and where the first one counted its
  // bytes.
  std::int32_t saves = 0;
  std::int64_t* first_save_bytes = nullptr;

  // Lets raw::to_bf16 keep a rounded copy of this buffer of f32: for parameters, which many products read
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
  // That copy, as many bf16 as there are f32 here, and the version it was made of; null before the first use.
  Ref<Buffer> bf16_copy;
  std::uint32_t bf16_copy_version = 0;
};

// What autograd hangs onto a tensor; defined in autograd/.
class AutogradData : public RefCounted {};

class Tensor {
 public:
  Tensor() = default;  // undefined: no storage; defined() is false

  // An uninitialised row-major tensor.
  // errors: OutOfMemoryError, DeviceError.
  static Tensor empty(const Shape& shape, Dtype dtype = Dtype::f32, Device device = kCpu);
  static Tensor zeros(const Shape& shape, Dtype dtype = Dtype::f32, Device device = kCpu);
  static Tensor full(const Shape& shape, double value, Dtype dtype = Dtype::f32, Device device = kCpu);
  // A copy of `values` in row-major order.
  // errors: ShapeError when the count differs from the shape's.
  template <class T>
  static Tensor from(const std::vector<T>& values, const Shape& shape);
  // A tensor over an existing buffer; the caller vouches that it fits.
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
  // Whether no other tensor can see these bytes.
  bool exclusive() const { return impl_->ref_count() == 1 && impl_->buffer->ref_count() == 1; }
  bool same(const Tensor& other) const { return impl_ == other.impl_; }

  // The address of the first element.
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
  template <class T>
  View<T> view() const {
    check_dtype(dtype_of<T>);
    return make_view<T>();
  }
  template <class T>
  ConstView<T> const_view() const {
    check_dtype(dtype_of<T>);
    return make_view<const T>();
  }

  // The value of a tensor with one element, as double or int64.
  // errors: ShapeError with more than one.
  double item() const;
  std::int64_t item_int() const;
  // All elements in row-major order.
  // errors: DtypeError when T is not the tensor's type.
  template <class T>
  std::vector<T> to_vector() const;

  // The autograd side; see autograd/tape.h for what users call.
  AutogradData* autograd() const { return defined() ? impl_->autograd.get() : nullptr; }
  void set_autograd(Ref<AutogradData> data) const { impl_->autograd = std::move(data); }

  explicit operator bool() const = delete;  // ask defined()

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
  template <class T>
  View<T> make_view() const {
    View<T> view;
    view.data = static_cast<T*>(raw_data());
    view.rank = rank();
    for (int i = 0; i < view.rank; ++i) {
      view.shape[i] = impl_->shape[i];
      view.strides[i] = impl_->strides[i];
    }
    return view;
  }

  Ref<Impl> impl_;
};

// Views without gradients. Each returns a tensor over the same buffer and drops autograd data; the
// differentiable forms in ops/views/views.h call these.
namespace raw {

// x seen with other sizes.
// errors: ShapeError when the counts differ or the strides do not allow it without a copy.
Tensor reshape(const Tensor& x, const Shape& shape);
// Two axes swapped.
Tensor transpose(const Tensor& x, int axis_a, int axis_b);
// `length` entries of an axis from `start`.
// errors: ShapeError outside the axis.
Tensor narrow(const Tensor& x, int axis, std::int64_t start, std::int64_t length);
// One entry of an axis; the axis goes.
Tensor select(const Tensor& x, int axis, std::int64_t index);
// Sizes of 1 (and missing leading axes) repeated with stride 0.
// errors: ShapeError.
Tensor expand(const Tensor& x, const Shape& shape);
// The same storage without autograd data.
Tensor alias(const Tensor& x);
// A row-major copy with its own buffer.
Tensor copy(const Tensor& x);
// x itself when it is row-major, else a copy.
Tensor contiguous(const Tensor& x);
// Overwrites the elements of `to` (any strides) with `from` (same shape, same dtype). Does not bump the
// version.
void copy_into(const Tensor& to, const Tensor& from);
// to += from, elementwise, for floating types and any strides. Does not bump the version.
void add_into(const Tensor& to, const Tensor& from);
void fill(const Tensor& x, double value);
// A copy in another dtype.
Tensor cast(const Tensor& x, Dtype dtype);
// Overwrites the elements of `to` with those of `from`, of any dtypes. Does not bump the version.
// errors: ShapeError when the shapes differ; DeviceError.
void cast_into(const Tensor& to, const Tensor& from);
// The numbers of x in bf16: x itself where it is bf16. Where the buffer keeps a rounded copy, a view of that,
// made anew when the buffer's version has moved on: cast once for all uses between two writes, whoever of its
// tensors asks. Else a copy.
Tensor to_bf16(const Tensor& x);
// A copy on another device.
Tensor to_device(const Tensor& x, Device device);

}  // namespace raw

}  // namespace eddy
