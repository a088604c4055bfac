// Loops over the elements of CPU tensors: copies, sums, fills and casts. The walk over strides is compiled
// once and calls the loop over a row through a pointer: 30 casts need 30 such loops, but only one walk.
#include <cstring>

#include "tensor/base/format.h"
#include "tensor/convert.h"
#include "tensor/strided.h"
#include "tensor/tensor.h"
#include "tensor/threads/thread_pool.h"
#include "tensor/transfer.h"

namespace eddy::raw {
namespace {

template <class Visit>
void by_dtype(Dtype dtype, Visit&& visit) {
  switch (dtype) {
    case Dtype::f32:
      return visit(float{});
    case Dtype::bf16:
      return visit(bf16{});
    case Dtype::f64:
      return visit(double{});
    case Dtype::i32:
      return visit(std::int32_t{});
    case Dtype::i64:
      return visit(std::int64_t{});
    case Dtype::u8:
      return visit(std::uint8_t{});
  }
}

// n elements with strides `step` and `from_step`. Two rows are disjoint or the same, so the loops skip
// overlap checks (ivdep), which would compile each loop twice.
using Row = void (*)(void* to, std::int64_t step, const void* from, std::int64_t from_step, std::int64_t n);

void for_rows(const Tensor& to, const Tensor& from, Row row) {
  char* const target = static_cast<char*>(to.raw_data());
  const char* const source = static_cast<const char*>(from.raw_data());
  const auto bytes = static_cast<std::int64_t>(dtype_bytes(to.dtype()));
  const auto from_bytes = static_cast<std::int64_t>(dtype_bytes(from.dtype()));
  if (to.contiguous() && from.contiguous())
    return parallel_for(to.elements(), 1 << 15, [=](std::int64_t begin, std::int64_t end) {
      row(target + begin * bytes, 1, source + begin * from_bytes, 1, end - begin);
    });
  for_each_strided_row(
      to.shape(), to.strides(), from.strides(),
      [=](std::int64_t n, std::int64_t at, std::int64_t step, std::int64_t from_at, std::int64_t from_step) {
        row(target + at * bytes, step, source + from_at * from_bytes, from_step, n);
      });
}

template <class T>
void copy_row(void* to, std::int64_t step, const void* from, std::int64_t from_step, std::int64_t n) {
  if (step == 1 && from_step == 1) {
    std::memcpy(to, from, static_cast<std::size_t>(n) * sizeof(T));
    return;
  }
  T* const target = static_cast<T*>(to);
  const T* const source = static_cast<const T*>(from);
  for (std::int64_t i = 0; i < n; ++i) target[i * step] = source[i * from_step];
}

// bf16 is added in f32 and rounded to bf16. The result is the exact sum rounded once to nearest even, because
// f32 has more than 2 p + 2 bits for the p = 8 bits of bf16 (Figueroa, "When is double rounding innocuous?",
// 1995).
template <class T>
T sum_of(T a, T b) {
  if constexpr (std::is_same_v<T, bf16>)
    return bf16(static_cast<float>(a) + static_cast<float>(b));
  else
    return a + b;
}

template <class T>
void add_row(void* to, std::int64_t step, const void* from, std::int64_t from_step, std::int64_t n) {
  T* const target = static_cast<T*>(to);
  const T* const source = static_cast<const T*>(from);
  if (step == 1 && from_step == 1) {
#pragma GCC ivdep
    for (std::int64_t i = 0; i < n; ++i) target[i] = sum_of(target[i], source[i]);
  } else {
    for (std::int64_t i = 0; i < n; ++i) target[i * step] = sum_of(target[i * step], source[i * from_step]);
  }
}

template <class To, class From>
void cast_row(void* to, std::int64_t step, const void* from, std::int64_t from_step, std::int64_t n) {
  To* const target = static_cast<To*>(to);
  const From* const source = static_cast<const From*>(from);
  if (step == 1 && from_step == 1) {
#pragma GCC ivdep
    for (std::int64_t i = 0; i < n; ++i) target[i] = convert<To>(source[i]);
  } else {
    for (std::int64_t i = 0; i < n; ++i) target[i * step] = convert<To>(source[i * from_step]);
  }
}

}  // namespace

void copy_into(const Tensor& to, const Tensor& from) {
  if (to.shape() != from.shape() || to.dtype() != from.dtype())
    fail<ShapeError>("copy_into: {} of {} into {} of {} (shapes and dtypes must be equal)",
                     to_string(from.shape()), dtype_name(from.dtype()), to_string(to.shape()),
                     dtype_name(to.dtype()));
  if (to.device() != from.device())
    fail<DeviceError>("copy_into: from {} to {} (use to_device)", to_string(from.device()),
                      to_string(to.device()));
  if (to.elements() == 0) return;
  if (to.device().type != DeviceType::cpu) return transfer(to.device()).copy_strided(to, from);
  if (to.contiguous() && from.contiguous()) {
    std::memcpy(to.raw_data(), from.raw_data(), static_cast<std::size_t>(to.bytes()));
    return;
  }
  dispatch_by_size(to.dtype(), [&](auto width) { for_rows(to, from, copy_row<decltype(width)>); });
}

void copy_all(const std::vector<Tensor>& to, const std::vector<Tensor>& from) {
  std::vector<Tensor> targets, sources;
  for (std::size_t i = 0; i < to.size(); ++i) {
    const bool together = to[i].device().type != DeviceType::cpu && to[i].elements() > 0 &&
                          to[i].shape() == from[i].shape() && to[i].dtype() == from[i].dtype() &&
                          to[i].device() == from[i].device();
    if (!together) {
      copy_into(to[i], from[i]);
      continue;
    }
    targets.push_back(to[i]);
    sources.push_back(from[i]);
  }
  if (targets.size() == 1) return copy_into(targets[0], sources[0]);
  if (!targets.empty()) transfer(targets[0].device()).copy_all(targets, sources);
}

Tensor concat(const std::vector<Tensor>& tensors, int axis) {
  const Tensor& first = tensors[0];
  const int axis_number = first.shape().normal_axis(axis);
  std::int64_t sum = 0;
  for (const Tensor& x : tensors) sum += x.dim(axis_number);
  const Tensor all = Tensor::empty(first.shape().with(axis_number, sum), first.dtype(), first.device());
  std::vector<Tensor> places;
  std::int64_t start = 0;
  for (const Tensor& x : tensors) {
    places.push_back(narrow(all, axis_number, start, x.dim(axis_number)));
    start += x.dim(axis_number);
  }
  copy_all(places, tensors);
  return all;
}

Tensor add(const Tensor& a, const Tensor& b) {
  if (a.device().type == DeviceType::cpu || a.shape() != b.shape() || a.dtype() != b.dtype()) {
    const Tensor sum = copy(a);
    add_into(sum, b);
    return sum;
  }
  const Tensor sum = Tensor::empty(a.shape(), a.dtype(), a.device());
  if (sum.elements() > 0) transfer(a.device()).add(sum, a, b);
  return sum;
}

void add_into(const Tensor& to, const Tensor& from) {
  if (to.shape() != from.shape() || to.dtype() != from.dtype())
    fail<ShapeError>("add_into: {} of {} into {} of {} (shapes and dtypes must be equal)",
                     to_string(from.shape()), dtype_name(from.dtype()), to_string(to.shape()),
                     dtype_name(to.dtype()));
  if (to.elements() == 0) return;
  if (to.device().type != DeviceType::cpu) return transfer(to.device()).add_into(to, from);
  switch (to.dtype()) {
    case Dtype::f32:
      return for_rows(to, from, add_row<float>);
    case Dtype::f64:
      return for_rows(to, from, add_row<double>);
    case Dtype::bf16:
      return for_rows(to, from, add_row<bf16>);
    default:
      fail<DtypeError>("add_into: {} (floating types only)", dtype_name(to.dtype()));
  }
}

void fill(const Tensor& x, double value) {
  if (x.elements() == 0) return;
  if (x.device().type != DeviceType::cpu) return transfer(x.device()).fill(x, value);
  if (value == 0 && x.contiguous()) {
    std::memset(x.raw_data(), 0, static_cast<std::size_t>(x.bytes()));
    return;
  }
  by_dtype(x.dtype(), [&](auto type) {
    using T = decltype(type);
    T* const target = static_cast<T*>(x.raw_data());
    const T filled = convert<T>(value);
    for_each_strided_row(x.shape(), x.strides(), x.strides(),
                         [&](std::int64_t n, std::int64_t at, std::int64_t step, std::int64_t, std::int64_t) {
                           for (std::int64_t i = 0; i < n; ++i) target[at + i * step] = filled;
                         });
  });
}

void cast_into(const Tensor& to, const Tensor& from) {
  if (to.dtype() == from.dtype()) return copy_into(to, from);
  if (to.shape() != from.shape())
    fail<ShapeError>("cast_into: {} into {} (shapes must be equal)", to_string(from.shape()),
                     to_string(to.shape()));
  if (to.device() != from.device())
    fail<DeviceError>("cast_into: from {} to {} (use to_device)", to_string(from.device()),
                      to_string(to.device()));
  if (to.elements() == 0) return;
  if (to.device().type != DeviceType::cpu) return transfer(to.device()).cast(to, from);
  by_dtype(to.dtype(), [&](auto to_type) {
    by_dtype(from.dtype(),
             [&](auto from_type) { for_rows(to, from, cast_row<decltype(to_type), decltype(from_type)>); });
  });
}

}  // namespace eddy::raw
