// The order of rows, and their elements by gather.
#include "ops/index/sort.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "autograd/tape.h"
#include "ops/cast/upcast.h"
#include "ops/core/checks.h"
#include "ops/index/gather.h"
#include "tensor/base/format.h"
#include "tensor/transfer.h"

namespace eddy {

using namespace detail;

namespace {

int sorted_axis(const char* op, const Tensor& x, int axis) {
  checks::defined(op, x);
  if (!is_bf16(x)) checks::floating(op, x);
  return x.shape().normal_axis(axis);
}

// The first `count` of each row in the order, from x with the axis in the last place.
SortedValues first_in_order(const Tensor& x, int axis, std::int64_t count, bool descending) {
  if (x.device().type == DeviceType::counting) {  // which has no values
    const Tensor unknown = Tensor::empty(x.shape().with(axis, count), Dtype::i64, x.device());
    return {gather(x, axis, unknown), unknown};
  }
  const Tensor rows =
      raw::contiguous(raw::transpose(raw::cast(raw::to_device(detach(x), kCpu), Dtype::f64), axis, -1));
  const std::int64_t size = x.shape()[axis];
  const std::vector<double> values = rows.to_vector<double>();
  std::vector<std::int64_t> indices, order(static_cast<std::size_t>(size));
  // Whether the first is after the second; NaN is above all.
  const auto above = [](double a, double b) { return a > b || (std::isnan(a) && !std::isnan(b)); };
  for (auto row = values.begin(); row != values.end(); row += size) {
    std::iota(order.begin(), order.end(), 0);
    std::partial_sort(order.begin(), order.begin() + count, order.end(), [&](std::int64_t i, std::int64_t j) {
      const double a = row[i], b = row[j];
      if (above(a, b) != above(b, a)) return above(a, b) == descending;
      return i < j;
    });
    indices.insert(indices.end(), order.begin(), order.begin() + count);
  }
  const Tensor places = raw::contiguous(
      raw::transpose(Tensor::from(indices, rows.shape().with(rows.rank() - 1, count)), axis, -1));
  const Tensor there = raw::to_device(places, x.device());
  return {gather(x, axis, there), there};
}

}  // namespace

SortedValues sort(const Tensor& x, int axis, bool descending) {
  const int along = sorted_axis("sort", x, axis);
  return first_in_order(x, along, x.shape()[along], descending);
}

SortedValues topk(const Tensor& x, std::int64_t k, int axis) {
  const int along = sorted_axis("topk", x, axis);
  if (k < 0 || k > x.shape()[along])
    fail<ValueError>("topk: the {} largest along axis {} of {} (0 to {})", k, along, to_string(x.shape()),
                     x.shape()[along]);
  return first_in_order(x, along, k, true);
}

}  // namespace eddy
