// Samples and references of the ops in reductions.h.
#include <cmath>
#include <limits>
#include <utility>

#include "ops/composed/reductions.h"
#include "ops/core/op_spec.h"
#include "ops/reduce/reduction_reference.h"

namespace eddy {
namespace {

OpSpec composed_spec(const char* name, const char* formula, OpFunction run, OpFunction reference) {
  return detail::reduction_spec(name, formula, std::move(run), std::move(reference), "composed");
}

OpSpec logsumexp_spec() {
  OpSpec spec = composed_spec(
      "logsumexp", "log of the sum of e^x over an axis", [](const Tensors& x) { return logsumexp(x[0], 1); },
      [](const Tensors& x) {
        const Tensor largest = detail::reference_reduction(
            x[0], 1, -INFINITY, [](double a, double b) { return b > a || b != b ? b : a; });
        Tensor sums =
            detail::reference_reduction(x[0], 1, 0, [](double a, double b) { return a + std::exp(b); });
        std::vector<double> values = sums.to_vector<double>();
        const std::vector<double> top = largest.to_vector<double>();
        // Where e^x overflows, the samples have one element that outweighs all others.
        for (std::size_t i = 0; i < values.size(); ++i)
          values[i] = std::isfinite(values[i]) ? std::log(values[i]) : top[i];
        return Tensor::from(values, sums.shape());
      });
  spec.samples.push_back({"overflow", {Tensor::from({1000.0, 0.0, -3.0, 2.0, 2000.0, 2.0}, {2, 3})}, false});
  constexpr double kInfinite = std::numeric_limits<double>::infinity();
  const std::vector<double> infinite = {-kInfinite, -kInfinite, 1, -kInfinite, kInfinite, 2, std::nan(""), 0};
  spec.samples.push_back({"infinite", {Tensor::from(infinite, {4, 2})}, false});
  spec.samples.erase(spec.samples.begin() + 6);  // of "large" no e^x is finite
  return spec;
}

// Deviations from the mean in a second pass; of the root too.
OpSpec var_spec(const char* name, const char* formula, OpFunction run, double correction, bool root) {
  OpSpec spec = composed_spec(name, formula, std::move(run), [correction, root](const Tensors& x) {
    const std::int64_t count = x[0].dim(1);
    const std::vector<double> rows =
        raw::contiguous(raw::transpose(x[0], 1, x[0].rank() - 1)).to_vector<double>();
    std::vector<double> result;
    for (auto row = rows.begin(); row != rows.end(); row += count) {
      double sum = 0, squares = 0;
      for (std::int64_t k = 0; k < count; ++k) sum += row[k];
      for (std::int64_t k = 0; k < count; ++k)
        squares += std::pow(row[k] - sum / static_cast<double>(count), 2);
      const double variance = squares / (static_cast<double>(count) - correction);
      result.push_back(root ? std::sqrt(variance) : variance);
    }
    return Tensor::from(result, x[0].shape().without(1));
  });
  if (correction == 1) spec.samples[1].gradcheck = false;  // NaN of one number
  spec.samples.push_back({"far_from_zero", {sample_uniform({3, 37}, "reduce", 1000, 1001)}, false});
  spec.roundings = 64;
  return spec;
}

OpSpec prod_spec() {
  OpSpec spec = composed_spec(
      "prod", "product over an axis", [](const Tensors& x) { return prod(x[0], 1); },
      [](const Tensors& x) {
        return detail::reference_reduction(x[0], 1, 1, [](double a, double b) { return a * b; });
      });
  const auto values = [](const Shape& shape) { return sample_uniform(shape, "reduce", 0.5, 1.5); };
  spec.samples = {{"size_0", {values({0, 3})}},
                  {"none", {values({3, 0})}, false},
                  {"size_1", {values({1, 1})}},
                  {"odd_tail", {values({3, 37})}},
                  {"middle_axis", {values({2, 7, 5})}},
                  {"zeros", {Tensor::from({0.0, 2.0, 3.0, 0.0, 0.0, 5.0, 1.5, 2.0, -3.0}, {3, 3})}},
                  {"strided", {strided_copy(values({5, 7}))}},
                  {"large", {sample_uniform({3, 5}, "reduce", 1e5, 1e6)}, false}};
  spec.roundings = 64;
  return spec;
}

}  // namespace

std::vector<OpSpec> reductions_specs() {
  return {logsumexp_spec(),
          var_spec(
              "var", "sum of (x - mean)^2 / (count - 1) over an axis",
              [](const Tensors& x) { return var(x[0], 1); }, 1, false),
          var_spec(
              "var_biased", "the same without the correction: / count",
              [](const Tensors& x) { return var(x[0], 1, false, 0); }, 0, false),
          var_spec(
              "std", "square root of var", [](const Tensors& x) { return std(x[0], 1); }, 1, true),
          prod_spec()};
}

}  // namespace eddy
