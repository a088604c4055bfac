// Samples and references of the ops in reduce.h.
#include <algorithm>
#include <cmath>
#include <functional>

#include "ops/core/op_spec.h"
#include "ops/reduce/reduce.h"
#include "ops/reduce/reduction_reference.h"

namespace eddy {
namespace {

OpSpec axis_spec(const char* name, const char* formula, OpFunction run, OpFunction reference) {
  return detail::reduction_spec(name, formula, std::move(run), std::move(reference), "reduce");
}

OpSpec all_spec(const char* name, const char* formula, OpFunction run, bool average) {
  OpSpec spec = axis_spec(name, formula, std::move(run), [average](const Tensors& x) {
    double total = 0;
    for (const double value : x[0].to_vector<double>()) total += value;
    return Tensor::full({}, average ? total / static_cast<double>(x[0].elements()) : total, Dtype::f64);
  });
  if (average) spec.samples.erase(spec.samples.begin());  // no average of nothing
  return spec;
}

// The first of all elements in the order of `before`.
template <class Before>
OpSpec one_of_all_spec(const char* name, const char* formula, OpFunction run, Before before) {
  OpSpec spec = axis_spec(name, formula, std::move(run), [before](const Tensors& x) {
    const std::vector<double> values = x[0].to_vector<double>();
    return Tensor::full({}, *std::min_element(values.begin(), values.end(), before), Dtype::f64);
  });
  spec.samples.erase(spec.samples.begin());  // there is none of nothing
  spec.roundings = 0;
  return spec;
}

// The place of the first along an axis, in the order of `before`.
template <class Before>
OpSpec place_spec(const char* name, const char* formula, OpFunction run, Before before) {
  OpSpec spec = axis_spec(name, formula, std::move(run), [before](const Tensors& x) {
    const Shape shape = x[0].shape().without(1);
    const std::vector<double> rows =
        raw::contiguous(raw::transpose(x[0], 1, x[0].rank() - 1)).to_vector<double>();
    std::vector<std::int64_t> places;
    for (auto row = rows.begin(); row != rows.end(); row += x[0].dim(1))
      places.push_back(std::min_element(row, row + x[0].dim(1), before) - row);
    return Tensor::from(places, shape);
  });
  for (OpSample& sample : spec.samples) sample.gradcheck = false;
  spec.roundings = 0;
  return spec;
}

OpSpec sum_to_spec() {
  OpSpec spec{"sum_to", "x summed to the shape of y"};
  spec.run = [](const Tensors& x) { return sum_to(x[0], x[1].shape()); };
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
    return Tensor::from(result, to);
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
  spec.bench = [] { return Tensors{sample_normal({4096, 1024}, "reduce"), Tensor::zeros({1024})}; };
  return spec;
}

}  // namespace

std::vector<OpSpec> reduce_specs() {
  const auto over_axis = [](double start, auto combine) {
    return [=](const Tensors& x) { return detail::reference_reduction(x[0], 1, start, combine); };
  };
  const auto average = [](const Tensors& x) {
    const auto count = static_cast<double>(x[0].dim(1));
    return detail::reference_reduction(x[0], 1, 0, [count](double a, double b) { return a + b / count; });
  };
  const auto larger = [](double a, double b) { return b > a ? b : a; };
  const auto smaller = [](double a, double b) { return b < a ? b : a; };
  const auto sum_of = [](const Tensors& x) { return sum(x[0]); };
  const auto sum_axis = [](const Tensors& x) { return sum(x[0], 1); };
  const auto mean_of = [](const Tensors& x) { return mean(x[0]); };
  const auto mean_axis = [](const Tensors& x) { return mean(x[0], 1); };
  const auto max_of = [](const Tensors& x) { return max(x[0]); };
  const auto max_axis = [](const Tensors& x) { return max(x[0], 1); };
  const auto min_of = [](const Tensors& x) { return min(x[0]); };
  const auto min_axis = [](const Tensors& x) { return min(x[0], 1); };
  const auto argmax_axis = [](const Tensors& x) { return argmax(x[0], 1); };
  const auto argmin_axis = [](const Tensors& x) { return argmin(x[0], 1); };
  return {all_spec("sum", "sum of all x", sum_of, false),
          axis_spec("sum_axis", "sum over an axis", sum_axis, over_axis(0, std::plus<double>())),
          all_spec("mean", "average of all x", mean_of, true),
          axis_spec("mean_axis", "average over an axis", mean_axis, average),
          axis_spec("max", "largest over an axis", max_axis, over_axis(-INFINITY, larger)),
          one_of_all_spec("max_all", "largest of all x", max_of, std::greater<double>()),
          axis_spec("min", "smallest over an axis", min_axis, over_axis(INFINITY, smaller)),
          one_of_all_spec("min_all", "smallest of all x", min_of, std::less<double>()),
          place_spec("argmax", "place of the largest over an axis", argmax_axis, std::greater<double>()),
          place_spec("argmin", "place of the smallest over an axis", argmin_axis, std::less<double>()),
          sum_to_spec()};
}

}  // namespace eddy
