// The tensor handle: one pointer to {buffer, offset, shape, strides, dtype, autograd data}. A copy shares
// it. The functions here ignore gradients; the differentiable operations are the functions of ops/, the usual of
// which are methods too.
#pragma once

#include <atomic>
#include <concepts>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <type_traits>
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
  // Uninitialised.
  // errors: OutOfMemoryError, DeviceError.
  Buffer(std::int64_t bytes, Device device);
  ~Buffer() override;
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  // Where the bytes are, how many, and which write was the last.
  void* data() const { return data_; }
  std::int64_t bytes() const { return bytes_; }
  Device device() const { return device_; }
  std::uint32_t version() const { return version_; }
  const char* last_writer() const { return last_writer_; }
  // Used by autograd: how many saved tensors view this buffer, and the counter that its bytes were added to.
  std::int32_t saves = 0;
  std::int64_t* saved_bytes_counter = nullptr;

  // The slot for what upper floors derive from these bytes and keep with them, such as a copy in another form. Its
  // owner alone knows its type; null for most buffers.
  const Ref<RefCounted>& derived() const { return derived_; }
  void set_derived(Ref<RefCounted> derived) {
    derived_ = std::move(derived);
    mark_derived_current();
  }
  // Whether nothing was written since what is in the slot was last marked as made from the bytes as they are.
  bool derived_is_current() const { return derived_version_ == version_; }
  void mark_derived_current() { derived_version_ = version_; }

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
  const char* last_writer_ = "";
  Ref<RefCounted> derived_;
  std::uint32_t derived_version_ = 0;
};

// Base of the data that autograd attaches to a tensor (autograd/node.h).
class AutogradData : public RefCounted {};

namespace detail {
// What C++ would take for an axis and is none: sum(x, true), max(x, 0.5).
template <class T>
concept NoAxis = std::same_as<T, bool> || std::floating_point<T>;
}  // namespace detail

// A handle to a view of a buffer: copying it is cheap, and copies share the bytes.
class Tensor {
 public:
  Tensor() = default;  // undefined: no storage; defined() is false
  // Another handle of the same tensor.
  Tensor(const Tensor&) = default;
  // The same; the other one is undefined afterwards.
  Tensor(Tensor&&) noexcept = default;
  ~Tensor() = default;
  // Of a variable alone: x.select(0, 1) = y would give a temporary handle another tensor, and not write to x.
  Tensor& operator=(const Tensor&) & = default;
  Tensor& operator=(Tensor&&) & noexcept = default;

  // Returns an uninitialised row-major tensor.
  // errors: OutOfMemoryError, DeviceError.
  static Tensor empty(const Shape& shape, Dtype dtype = Dtype::f32, Device device = kCpu);
  static Tensor zeros(const Shape& shape, Dtype dtype = Dtype::f32, Device device = kCpu);
  static Tensor full(const Shape& shape, double value, Dtype dtype = Dtype::f32, Device device = kCpu);
  // Returns a tensor filled with `values` in row-major order; its dtype is that of T.
  // errors: ShapeError when the count differs from the shape's.
  template <class T>
  static Tensor from(const std::vector<T>& values, const Shape& shape);
  template <class T>
  static Tensor from(std::initializer_list<T> values, const Shape& shape) {
    return from(std::vector<T>(values), shape);
  }
  // Returns a tensor over an existing buffer; nothing checks that it fits.
  static Tensor over(Ref<Buffer> buffer, std::int64_t offset, const Shape& shape, const std::int64_t* strides,
                     Dtype dtype);

  // Whether there is a storage.
  bool defined() const { return impl_ != nullptr; }
  // All that follows throws a ValueError on an undefined tensor.
  const Shape& shape() const { return impl().shape; }
  std::int64_t dim(int axis) const { return impl().shape.dim(axis); }
  int rank() const { return impl().shape.rank(); }
  std::int64_t elements() const { return impl().shape.elements(); }
  std::int64_t bytes() const { return elements() * static_cast<std::int64_t>(dtype_bytes(dtype())); }
  const std::int64_t* strides() const { return impl().strides; }
  std::int64_t offset() const { return impl().offset; }  // of the first element in the buffer, in elements
  Dtype dtype() const { return impl().dtype; }
  Device device() const { return impl().buffer->device(); }
  const Ref<Buffer>& buffer() const { return impl().buffer; }
  bool contiguous() const;
  // Whether no other tensor shares these bytes.
  bool exclusive() const { return impl().ref_count() == 1 && impl().buffer->ref_count() == 1; }
  bool same(const Tensor& other) const { return impl_ == other.impl_; }

  // Returns the address of the first element, to read: on the CPU by the host too. Elements lie where strides()
  // says.
  // errors: DtypeError when T is not the tensor's type.
  template <class T>
  const T* data() const {
    check_dtype(dtype_of<T>);
    return static_cast<const T*>(raw_data());
  }
  // The same, to write. Counts as a write: a backward pass that needs the old values throws a VersionError.
  // Call it anew for writes after a forward pass.
  // errors: DtypeError when T is not the tensor's type.
  template <class T>
  T* mutable_data() const {
    check_dtype(dtype_of<T>);
    impl_->buffer->bump_version("mutable_data");
    return static_cast<T*>(raw_data());
  }
  // The same for kernels: without a type, and without counting as a write.
  void* raw_data() const {
    return static_cast<char*>(impl().buffer->data()) +
           impl_->offset * static_cast<std::int64_t>(dtype_bytes(impl_->dtype));
  }

  // Returns the value of a tensor with one element, as double or int64.
  // errors: ShapeError with more than one.
  double item() const;
  std::int64_t item_int() const;
  template <class T>
  T item() const {
    return static_cast<T>(item());
  }
  // Returns all elements in row-major order.
  // errors: DtypeError when T is not the tensor's type.
  template <class T>
  std::vector<T> to_vector() const;

  // Returns entry `index` of the first axis as a view, select(x, 0, index); -1 is the last entry. Gradients
  // flow. To write through a view, use mutable_data: an assignment to x[i] does not compile.
  // errors: ShapeError outside the axis, or for a scalar.
  const Tensor operator[](std::int64_t index) const;
  template <class T>
  void operator=(const T&) const =
      delete;  // x[i] = y, narrow(x, ..) = y: use where, concat, or x.mutable_data<T>()

  // The ops of the same names as methods: x.sum(1) is sum(x, 1). Shapes, errors and gradients are those of the
  // functions, in the headers of ops/; ops/tensor_methods.cpp defines the methods.
  Tensor sum() const;
  Tensor sum(int axis, bool keep = false) const;
  Tensor mean() const;
  Tensor mean(int axis, bool keep = false) const;
  void sum(detail::NoAxis auto, bool = false) const = delete;
  void mean(detail::NoAxis auto, bool = false) const = delete;
  void max(detail::NoAxis auto, bool = false) const = delete;
  void min(detail::NoAxis auto, bool = false) const = delete;
  Tensor max() const;
  Tensor max(int axis, bool keep = false) const;
  Tensor min() const;
  Tensor min(int axis, bool keep = false) const;
  Tensor argmax() const;
  Tensor argmax(int axis, bool keep = false) const;
  Tensor argmin() const;
  Tensor argmin(int axis, bool keep = false) const;
  Tensor exp() const;
  Tensor log() const;
  Tensor sqrt() const;
  Tensor abs() const;
  Tensor tanh() const;
  Tensor sigmoid() const;
  Tensor relu() const;
  Tensor pow(double exponent) const;
  Tensor clamp(double low, double high) const;
  Tensor matmul(const Tensor& other) const;
  Tensor reshape(const Shape& shape) const;
  Tensor reshape(std::initializer_list<std::int64_t> sizes) const;  // one of them may be -1
  Tensor flatten() const;
  Tensor transpose(int axis_a, int axis_b) const;
  Tensor permute(const std::vector<int>& axes) const;
  Tensor squeeze() const;
  Tensor squeeze(int axis) const;
  Tensor unsqueeze(int axis) const;
  Tensor narrow(int axis, std::int64_t start, std::int64_t length) const;
  Tensor select(int axis, std::int64_t index) const;
  Tensor expand(const Shape& shape) const;

  // The autograd side; see autograd/tape.h for what users call.
  AutogradData* autograd() const { return defined() ? impl_->autograd.get() : nullptr; }
  void set_autograd(Ref<AutogradData> data) const { impl_->autograd = std::move(data); }

 private:
  struct Impl : RefCounted {
    Ref<Buffer> buffer;
    std::int64_t offset = 0;
    Shape shape;
    std::int64_t strides[kMaxRank] = {};
    Dtype dtype = Dtype::f32;
    Ref<AutogradData> autograd;
  };
  const Impl& impl() const {
    if (impl_ == nullptr) undefined();
    return *impl_;
  }
  [[noreturn]] static void undefined();
  void check_dtype(Dtype wanted) const {
    if (dtype() != wanted) dtype_mismatch(wanted);
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
// Returns a copy on another device.
Tensor to_device(const Tensor& x, Device device);
// Returns the integers or flags of a tensor in the host's memory; nothing for one elsewhere, where reading waits for
// the device.
// errors: DtypeError for other dtypes than i32, i64 and u8.
std::optional<std::vector<std::int64_t>> integers_at_hand(const Tensor& x);

}  // namespace raw

}  // namespace eddy
