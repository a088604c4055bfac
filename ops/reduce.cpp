// Checks, axes and gradients of the reductions.
#include "ops/reduce.h"

#include <algorithm>
#include <cmath>

#include "autograd/tape.h"
#include "ops/checks.h"
#include "ops/op_spec.h"
#include "ops/widen.h"
#include "tensor/format.h"

namespace eddy {

constinit Slot<SumArgs> sum_slot{"sum"};
constinit Slot<MaxArgs> max_forward_slot{"max_forward"};
constinit Slot<MaxBackwardArgs> max_backward_slot{"max_backward"};

namespace {

// A shape around one axis: [outer, count, inner].
struct Around {
  std::int64_t outer = 1, count = 1, inner = 1;
};

Around around(const Shape& shape, int axis) {
  Around sizes;
  for (int i = 0; i < axis; ++i) sizes.outer *= shape[i];
  sizes.count = shape[axis];
  for (int i = axis + 1; i < shape.rank(); ++i) sizes.inner *= shape[i];
  return sizes;
}

int checked_axis(const char* op, const Tensor& x, int axis) {
  checks::floating(op, x);
  if (axis < -x.rank() || axis >= x.rank())
    fail<ShapeError>("{}: there is no axis {} in {} (from {} to {})", op, axis, to_string(x.shape()),
                     -x.rank(), x.rank() - 1);
  return x.shape().normal_axis(axis);
}

Shape reduced_shape(const Shape& shape, int axis, bool keep) {
  return keep ? shape.with(axis, 1) : shape.without(axis);
}

// y = beta * y + scale * (x summed over the middle axis); both row-major. y is f32 where x is bf16.
void run_sum(const Around& sizes, const Tensor& x, const Tensor& y, float beta, double scale) {
  if (y.elements() == 0) return;
  const std::int64_t blocks = sum_blocks(sizes.count, sizes.inner);
  const Tensor partials =
      blocks > 1 ? Tensor::empty({sizes.outer, blocks, sizes.inner}, y.dtype(), x.device()) : Tensor();
  sum_slot(x.device(), {x.dtype(), sizes.outer, sizes.count, sizes.inner, x.raw_data(), y.raw_data(), beta,
                        scale, blocks > 1 ? partials.raw_data() : nullptr});
}

Tensor scaled(const Tensor& x, double factor) {
  const Tensor packed = raw::contiguous(x);
  const Tensor y = Tensor::empty(x.shape(), x.dtype(), x.device());
  run_sum({1, 1, x.elements()}, packed, y, 0, factor);
  return y;
}

// y = scale * sum(x), so dx = scale * dy for every summed element: a view of dy with stride 0.
Tensor reduce_all(const char* op, const Tensor& x, double scale) {
  const Tensor packed = raw::contiguous(x);
  const Tensor y = Tensor::empty({}, x.dtype(), x.device());
  run_sum({1, x.elements(), 1}, packed, y, 0, scale);
  return record(op, {x}, y, {}, [scale, shape = x.shape()](VjpContext& v) {
    v.sink.give(0, raw::expand(scale == 1 ? v.dy() : scaled(v.dy(), scale), shape));
  });
}

Tensor reduce_axis(const char* op, const Tensor& x, int axis, bool keep, double scale) {
  const Tensor packed = raw::contiguous(x);
  const Tensor y = Tensor::empty(reduced_shape(x.shape(), axis, keep), x.dtype(), x.device());
  run_sum(around(x.shape(), axis), packed, y, 0, scale);
  return record(op, {x}, y, {}, [scale, axis, shape = x.shape()](VjpContext& v) {
    const Tensor dy = raw::reshape(raw::contiguous(v.dy()), shape.with(axis, 1));
    v.sink.give(0, raw::expand(scale == 1 ? dy : scaled(dy, scale), shape));
  });
}

}  // namespace

Tensor sum(const Tensor& x) {
  if (widens_anywhere(x)) return narrowed(sum(wide(x)));
  checks::floating("sum", x);
  return reduce_all("sum", x, 1);
}

Tensor sum(const Tensor& x, int axis, bool keep) {
  if (widens_anywhere(x)) return narrowed(sum(wide(x), axis, keep));
  return reduce_axis("sum", x, checked_axis("sum", x, axis), keep, 1);
}

Tensor mean(const Tensor& x) {
  if (widens_anywhere(x)) return narrowed(mean(wide(x)));
  checks::floating("mean", x);
  if (x.elements() == 0)
    fail<ShapeError>("mean: an average of no elements: {} (at least one)", to_string(x.shape()));
  return reduce_all("mean", x, 1.0 / static_cast<double>(x.elements()));
}

Tensor mean(const Tensor& x, int axis, bool keep) {
  if (widens_anywhere(x)) return narrowed(mean(wide(x), axis, keep));
  const int a = checked_axis("mean", x, axis);
  const std::int64_t count = x.shape()[a];
  if (count == 0 && x.shape().without(a).elements() > 0)
    fail<ShapeError>("mean: an average of no elements: axis {} of {} (at least one entry)", a,
                     to_string(x.shape()));
  return reduce_axis("mean", x, a, keep, 1.0 / static_cast<double>(std::max<std::int64_t>(count, 1)));
}

Tensor max(const Tensor& x, int axis, bool keep) {
  if (widens_anywhere(x)) return narrowed(max(wide(x), axis, keep));
  const int a = checked_axis("max", x, axis);
  const Around sizes = around(x.shape(), a);
  if (sizes.count == 0 && sizes.outer * sizes.inner > 0)
    fail<ShapeError>("max: the largest of no elements: axis {} of {} (at least one entry)", a,
                     to_string(x.shape()));
  const Tensor packed = raw::contiguous(x);
  const Tensor y = Tensor::empty(reduced_shape(x.shape(), a, keep), x.dtype(), x.device());
  const Tensor index = Tensor::empty(y.shape(), Dtype::i64, x.device());
  if (y.elements() > 0)
    max_forward_slot(x.device(), {x.dtype(), sizes.outer, sizes.count, sizes.inner, packed.raw_data(),
                                  y.raw_data(), index.data<std::int64_t>()});
  // dx is dy where the maximum was found and zero elsewhere.
  return record("max", {x}, y, {index}, [sizes](VjpContext& v) {
    const Tensor dy = raw::contiguous(v.dy());
    v.sink.into(0, [&](const Tensor& dx, float beta) {
      if (dx.elements() > 0)
        max_backward_slot(dy.device(), {dy.dtype(), sizes.outer, sizes.count, sizes.inner, dy.raw_data(),
                                        v.saved(0).data<std::int64_t>(), dx.raw_data(), beta});
    });
  });
}

Tensor sum_to(const Tensor& x, const Shape& shape) {
  if (!widens_anywhere(x)) checks::floating("sum_to", x);
  if (x.shape() == shape) return raw::alias(x);
  const Tensor y = Tensor::empty(shape, x.dtype(), x.device());
  sum_into(y, x, 0);
  return y;
}

void sum_into(const Tensor& dst, const Tensor& x, float beta) {
  if (widens(x) && dst.dtype() != Dtype::bf16) return sum_into(dst, raw::cast(x, Dtype::f32), beta);
  if (widens_anywhere(x) && dst.dtype() == Dtype::bf16) {  // summed in f32, rounded once
    const Tensor total =
        beta == 0 ? Tensor::empty(dst.shape(), Dtype::f32, dst.device()) : raw::cast(dst, Dtype::f32);
    sum_into(total, x, beta);
    return raw::cast_into(dst, total);
  }
  checks::floating("sum_to", x);
  checks::parameter("sum_to", x, dst);
  const int extra = x.rank() - dst.rank();
  bool fits = extra >= 0;
  for (int i = 0; fits && i < dst.rank(); ++i)
    fits = dst.shape()[i] == x.shape()[i + extra] || dst.shape()[i] == 1;
  if (!fits)
    fail<ShapeError>("sum_to: {} does not repeat to {} (sizes aligned at the end must be equal, or 1)",
                     to_string(dst.shape()), to_string(x.shape()));
  if (dst.elements() == 0) return;
  if (!dst.contiguous()) {
    const Tensor packed = raw::copy(dst);
    sum_into(packed, x, beta);
    return raw::copy_into(dst, packed);
  }

  // Neighbouring axes of the same fate merge, so that kept and summed groups alternate.
  struct Group {
    std::int64_t size;
    bool summed;
  };
  Group groups[kMaxRank];
  int count = 0, summed = 0;
  for (int i = 0; i < x.rank(); ++i) {
    const std::int64_t size = x.shape()[i];
    if (size == 1) continue;
    const bool goes = i < extra || dst.shape()[i - extra] == 1;
    if (count > 0 && groups[count - 1].summed == goes) {
      groups[count - 1].size *= size;
    } else {
      groups[count++] = {size, goes};
      summed += goes;
    }
  }
  Tensor rest = raw::contiguous(x);
  if (summed == 0) return run_sum({1, 1, x.elements()}, rest, dst, beta, 1);
  // One summed group after the other, the largest first: it leaves the least to do for the next.
  for (; summed > 0; --summed) {
    int place = -1;
    for (int i = 0; i < count; ++i)
      if (groups[i].summed && (place < 0 || groups[i].size > groups[place].size)) place = i;
    Around sizes;
    for (int i = 0; i < place; ++i) sizes.outer *= groups[i].size;
    sizes.count = groups[place].size;
    for (int i = place + 1; i < count; ++i) sizes.inner *= groups[i].size;
    const Tensor y = summed == 1 ? dst : Tensor::empty({sizes.outer, sizes.inner}, dst.dtype(), x.device());
    run_sum(sizes, rest, y, summed == 1 ? beta : 0, 1);
    groups[place] = {1, false};
    rest = y;
  }
}

namespace {

// The reference: y[o, i] = visit over k of x[o, k, i], in f64.
template <class Combine>
Tensor reference_axis(const Tensor& x, int axis, double start, Combine combine) {
  const Around sizes = around(x.shape(), axis);
  const std::vector<double> values = x.to_vector<double>();
  std::vector<double> result(static_cast<std::size_t>(sizes.outer * sizes.inner), start);
  for (std::int64_t o = 0; o < sizes.outer; ++o)
    for (std::int64_t k = 0; k < sizes.count; ++k)
      for (std::int64_t i = 0; i < sizes.inner; ++i) {
        double& to = result[static_cast<std::size_t>(o * sizes.inner + i)];
        to = combine(to, values[static_cast<std::size_t>((o * sizes.count + k) * sizes.inner + i)]);
      }
  return Tensor::from(result, x.shape().without(axis));
}

double plus(double a, double b) {
  return a + b;
}

OpCost read_once(const Tensors& x) {
  return {static_cast<double>(x[0].elements()), static_cast<double>(x[0].bytes())};
}

Tensors bench_input() {
  return {raw::cast(sample_normal({4096, 1024}, "reduce"), Dtype::f32)};
}

std::vector<OpSample> samples_of_axis_1() {
  const auto values = [](const Shape& shape) { return sample_normal(shape, "reduce"); };
  return {{"size_0", {values({0, 3})}},
          {"size_1", {values({1, 1})}},
          {"odd_tail", {values({3, 37})}},
          {"middle_axis", {values({2, 7, 5})}},
          {"long_axis", {values({2, 301, 2})}},
          {"strided", {strided_copy(values({5, 7}))}},
          {"large", {sample_normal({3, 65}, "reduce", 1e6)}, false}};
}

OpSpec axis_spec(const char* name, const char* formula, OpFunction run, OpFunction reference) {
  OpSpec spec;
  spec.name = name;
  spec.formula = formula;
  spec.run = std::move(run);
  spec.reference = std::move(reference);
  spec.samples = samples_of_axis_1();
  spec.roundings = 32;  // some 300 terms in 32 lanes and a fold of 5, with cancellation
  spec.bench = bench_input;
  spec.cost = read_once;
  return spec;
}

OpSpec all_spec(const char* name, const char* formula, OpFunction run, bool average) {
  OpSpec spec = axis_spec(name, formula, std::move(run), [average](const Tensors& x) {
    double total = 0;
    for (const double value : x[0].to_vector<double>()) total += value;
    return Tensors{
        Tensor::full({}, average ? total / static_cast<double>(x[0].elements()) : total, Dtype::f64)};
  });
  if (average) spec.samples.erase(spec.samples.begin());  // no average of nothing
  return spec;
}

OpSpec sum_to_spec() {
  OpSpec spec;
  spec.name = "sum_to";
  spec.formula = "x summed to the shape of y";
  spec.run = [](const Tensors& x) { return Tensors{sum_to(x[0], x[1].shape())}; };
  spec.reference = [](const Tensors& x) {
    const Shape from = x[0].shape(), to = x[1].shape();
    const std::vector<double> values = x[0].to_vector<double>();
    std::vector<double> result(static_cast<std::size_t>(to.elements()), 0.0);
    for (std::size_t n = 0; n < values.size(); ++n) {
      std::int64_t rest = static_cast<std::int64_t>(n), at = 0, step = 1;
      for (int i = from.rank() - 1, j = to.rank() - 1; i >= 0; --i, --j) {
        if (j >= 0 && to[j] != 1) {
          at += rest % from[i] * step;
          step *= to[j];
        }
        rest /= from[i];
      }
      result[static_cast<std::size_t>(at)] += values[n];
    }
    return Tensors{Tensor::from(result, to)};
  };
  const auto pair = [](const Shape& from, const Shape& to) {
    return Tensors{sample_normal(from, "sum_to"), Tensor::zeros(to, Dtype::f64)};
  };
  spec.samples = {
      {"size_0", pair({0, 3}, {3}), false},
      {"size_1", pair({1, 1}, {}), false},
      {"rows", pair({301, 5}, {5}), false},
      {"batch", pair({4, 3, 5}, {3, 5}), false},
      {"columns", pair({7, 37}, {7, 1}), false},
      {"alternating", pair({2, 3, 4, 5, 3}, {3, 1, 5, 1}), false},
      {"equal", pair({3, 4}, {3, 4}), false},
      {"wide", pair({3, 2051}, {2051}), false},
      {"strided", {strided_copy(sample_normal({6, 7}, "sum_to")), Tensor::zeros({7}, Dtype::f64)}, false}};
  spec.roundings = 32;
  spec.bench = [] { return Tensors{bench_input()[0], Tensor::zeros({1024})}; };
  spec.cost = read_once;
  return spec;
}

}  // namespace

std::vector<OpSpec> reduce_specs() {
  return {
      all_spec(
          "sum", "sum of all x", [](const Tensors& x) { return Tensors{sum(x[0])}; }, false),
      axis_spec(
          "sum_axis", "sum over an axis", [](const Tensors& x) { return Tensors{sum(x[0], 1)}; },
          [](const Tensors& x) { return Tensors{reference_axis(x[0], 1, 0, plus)}; }),
      all_spec(
          "mean", "average of all x", [](const Tensors& x) { return Tensors{mean(x[0])}; }, true),
      axis_spec(
          "mean_axis", "average over an axis", [](const Tensors& x) { return Tensors{mean(x[0], 1)}; },
          [](const Tensors& x) {
            const double count = static_cast<double>(x[0].dim(1));
            return Tensors{reference_axis(x[0], 1, 0, [count](double a, double b) { return a + b / count; })};
          }),
      axis_spec(
          "max", "largest over an axis", [](const Tensors& x) { return Tensors{max(x[0], 1)}; },
          [](const Tensors& x) {
            return Tensors{
                reference_axis(x[0], 1, -INFINITY, [](double a, double b) { return b > a ? b : a; })};
          }),
      sum_to_spec(),
  };
}

}  // namespace eddy
