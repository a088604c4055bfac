// Checks, broadcasting and nodes of the pointwise ops.
#include "ops/pointwise/pointwise.h"

#include "autograd/tape.h"
#include "ops/cast/upcast.h"
#include "ops/core/checks.h"
#include "ops/core/cpu_path.h"
#include "ops/pointwise/pointwise_functors.h"
#include "ops/reduce/reduce.h"

namespace eddy {

using namespace detail;

namespace {

using namespace pointwise;

// The gradient of x: vjp(dy, saved), where the op saves something; dy is contiguous.
template <class Op>
Tensor unary_gradient(const Tensor& dy, const Tensor& saved) {
  const Tensor dx = Tensor::empty(dy.shape(), dy.dtype(), dy.device());
  if (dx.elements() > 0)
    unary_backward_slot(dy.device(),
                        {IndexOf<Op, UnaryOps>::value, dy.dtype(), dy.elements(),
                         saved.defined() ? saved.raw_data() : dy.raw_data(), dy.raw_data(), dx.raw_data()});
  return dx;
}

template <class Op>
Tensor unary(const Tensor& input) {
  if (must_upcast(input)) return downcast(unary<Op>(upcast(input)));
  checks::floating(Op::kName, input);
  constexpr int number = IndexOf<Op, UnaryOps>::value;
  const Tensor x = raw::contiguous(input);
  const Tensor y = Tensor::empty(x.shape(), x.dtype(), x.device());
  if (x.elements() > 0)
    unary_forward_slot(x.device(), {number, x.dtype(), x.elements(), x.raw_data(), nullptr, y.raw_data()});
  const Tensor saved = Op::kSaves == Saves::input ? x : Op::kSaves == Saves::output ? y : Tensor();
  return record(Op::kName, {input}, y, {saved}, [](VjpContext& v) {
    v.sink.accumulate(0, unary_gradient<Op>(raw::contiguous(v.dy()), v.saved(0)));
  });
}

// Strides of `x` over a broadcast shape, 0 where it repeats.
void broadcast_strides(const Tensor& x, const Shape& shape, std::int64_t* strides) {
  const int extra = shape.rank() - x.rank();
  for (int i = 0; i < shape.rank(); ++i)
    strides[i] = i < extra || x.shape()[i - extra] == 1 ? 0 : x.strides()[i - extra];
}

// Runs one part of a binary op, with neighbouring axes merged where both operands allow it.
Tensor run_binary(int number, BinaryPart part, const Shape& shape, const Tensor& a, const Tensor& b,
                  const Tensor& dy) {
  const Tensor y = Tensor::empty(shape, a.dtype(), a.device());
  if (shape.elements() == 0) return y;
  std::int64_t stride_a[kMaxRank], stride_b[kMaxRank];
  broadcast_strides(a, shape, stride_a);
  broadcast_strides(b, shape, stride_b);
  BinaryArgs args{number,       part,         a.dtype(),        0,           {}, {}, {},
                  a.raw_data(), b.raw_data(), data_or_null(dy), y.raw_data()};
  for (int i = 0; i < shape.rank(); ++i) {
    if (shape[i] == 1) continue;
    const int last = args.rank - 1;
    if (last >= 0 && args.stride_a[last] == stride_a[i] * shape[i] &&
        args.stride_b[last] == stride_b[i] * shape[i]) {
      args.shape[last] *= shape[i];
      args.stride_a[last] = stride_a[i];
      args.stride_b[last] = stride_b[i];
    } else {
      args.shape[args.rank] = shape[i];
      args.stride_a[args.rank] = stride_a[i];
      args.stride_b[args.rank++] = stride_b[i];
    }
  }
  if (args.rank == 0) {
    args.rank = 1;
    args.shape[0] = 1;
  }
  binary_slot(y.device(), args);
  return y;
}

template <class Op>
Tensor binary(const Tensor& a, const Tensor& b) {
  if (must_upcast(a) && must_upcast(b)) return downcast(binary<Op>(upcast(a), upcast(b)));
  if (!must_upcast(a)) checks::floating(Op::kName, a);  // else b is of another kind: the next line says so
  checks::same_kind(Op::kName, a, b);
  constexpr int number = IndexOf<Op, BinaryOps>::value;
  const Shape shape = broadcast_shape(Op::kName, a.shape(), b.shape());
  const Tensor y = run_binary(number, BinaryPart::forward, shape, a, b, {});
  // Sums and comparisons save no operand, mul saves each factor only for the gradient of the other, the rest save
  // both.
  constexpr bool kProduct = std::is_same_v<Op, Mul>;
  const Tensor kept_a = !kHasGradients<Op> || (kProduct && !requires_grad(b)) ? Tensor() : a;
  const Tensor kept_b = !kHasGradients<Op> || (kProduct && !requires_grad(a)) ? Tensor() : b;
  return record(
      Op::kName, {a, b}, y, {kept_a, kept_b}, [shape_a = a.shape(), shape_b = b.shape()](VjpContext& v) {
        const Tensor dy = raw::contiguous(v.dy());
        const auto gradient = [&](BinaryPart part) {
          if constexpr (kHasGradients<Op>) {
            // The kernel does not read an operand that was not saved.
            const auto kept = [&](int k) { return v.saved(k).defined() ? v.saved(k) : dy; };
            return run_binary(number, part, dy.shape(), kept(0), kept(1), dy);
          } else {
            return std::is_same_v<Op, Sub> && part == BinaryPart::gradient_b ? unary_gradient<Neg>(dy, {})
                                                                             : dy;
          }
        };
        const auto give = [&](int k, BinaryPart part, const Shape& to) {
          if (!v.sink.needs(k)) return;
          const Tensor dx = gradient(part);
          v.sink.accumulate(k, dx.shape() == to ? dx : sum_to(dx, to));
        };
        give(0, BinaryPart::gradient_a, shape_a);
        give(1, BinaryPart::gradient_b, shape_b);
      });
}

// bf16 times a number that is f32, on a device with a kernel for that.
Tensor times(const Tensor& a, double b) {
  const auto multiplied = [b](const Tensor& given) {
    const Tensor x = raw::contiguous(given), y = Tensor::empty(x.shape(), Dtype::bf16, x.device());
    if (y.elements() > 0)
      scale_slot(y.device(), {x.dtype(), y.dtype(), x.elements(), x.raw_data(), y.raw_data(), b});
    return y;
  };
  return record("mul", {a}, multiplied(a), {},
                [=](VjpContext& v) { v.sink.accumulate(0, multiplied(v.dy())); });
}

// Compares by numbers of the operands' dtype, and integers by f64, in which ids and counts are exact.
template <class Op>
Tensor compare(const Tensor& a, const Tensor& b) {
  checks::same_kind(Op::kName, a, b);
  if (!is_floating(a.dtype()) && uses_cpu_path(a.device()))
    return compare<Op>(raw::cast(a, Dtype::f64), raw::cast(b, Dtype::f64));
  const NoGrad untracked;
  return raw::cast(binary<Op>(a, b), Dtype::u8);
}

}  // namespace

#define EDDY_UNARY(Name, name, ...) \
  Tensor name(const Tensor& x) {    \
    return unary<Name>(x);          \
  }
EDDY_UNARY_OPS(EDDY_UNARY)

#define EDDY_BINARY(Name, name, ...)              \
  Tensor name(const Tensor& a, const Tensor& b) { \
    return binary<Name>(a, b);                    \
  }
EDDY_SUMS(EDDY_BINARY)
EDDY_BINARY_OPS(EDDY_BINARY)

#define EDDY_COMPARISON(Name, name, sign)         \
  Tensor name(const Tensor& a, const Tensor& b) { \
    return compare<Name>(a, b);                   \
  }
EDDY_COMPARISONS(EDDY_COMPARISON)

Tensor number_like(const Tensor& a, double value) {
  checks::defined("number", a);
  return Tensor::full({}, value, a.dtype(), a.device());
}

Tensor add(const Tensor& a, double b) {
  if (is_bf16(a)) return downcast(add(upcast(a), b));
  return add(a, number_like(a, b));
}
Tensor add(double a, const Tensor& b) {
  return add(b, a);
}
Tensor sub(const Tensor& a, double b) {
  return add(a, -b);
}
Tensor sub(double a, const Tensor& b) {
  return add(neg(b), a);
}
Tensor mul(const Tensor& a, double b) {
  if (must_upcast(a)) return downcast(mul(upcast(a), b));
  if (is_bf16(a)) return times(a, b);
  return mul(a, number_like(a, b));
}
Tensor mul(double a, const Tensor& b) {
  return mul(b, a);
}
Tensor div(const Tensor& a, double b) {
  if (is_bf16(a)) return downcast(div(upcast(a), b));
  return div(a, number_like(a, b));
}
Tensor div(double a, const Tensor& b) {
  if (is_bf16(b)) return downcast(div(a, upcast(b)));
  return div(number_like(b, a), b);
}
Tensor pow(const Tensor& a, double b) {
  if (is_bf16(a)) return downcast(pow(upcast(a), b));
  return pow(a, number_like(a, b));
}

}  // namespace eddy
