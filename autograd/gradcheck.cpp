// Finite differences against the tape.
#include "autograd/gradcheck.h"

#include <fmt/ranges.h>
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "tensor/base/format.h"
#include "tensor/random/random_tensors.h"

namespace eddy {
namespace {

using Function = std::function<std::vector<Tensor>(const std::vector<Tensor>&)>;

constexpr double kEpsilon = std::numeric_limits<double>::epsilon();

// Returns a copy with the same strides, so that fn sees the given layout. Repeated elements (stride 0) get
// storage each, because changing one must not change the others.
Tensor copy_with_layout(const Tensor& x) {
  for (int axis = 0; axis < x.rank(); ++axis)
    if (x.strides()[axis] == 0 && x.shape()[axis] > 1) return raw::copy(x);
  const auto buffer = make_ref<Buffer>(x.buffer()->bytes(), kCpu);
  if (buffer->bytes() > 0)
    std::memcpy(buffer->data(), x.buffer()->data(), static_cast<std::size_t>(buffer->bytes()));
  return Tensor::over(buffer, x.offset(), x.shape(), x.strides(), x.dtype());
}

// All elements of the floating results, one after the other.
std::vector<double> values_of(const std::vector<Tensor>& ys) {
  std::vector<double> values;
  for (const Tensor& y : ys) {
    if (!y.defined() || !is_floating(y.dtype())) continue;
    const std::vector<double> part = y.to_vector<double>();
    values.insert(values.end(), part.begin(), part.end());
  }
  return values;
}

// The scalar function of one element of one input that is differentiated.
class Difference {
 public:
  Difference(const Function& fn, const std::vector<Tensor>& inputs, const std::vector<double>& cotangent)
      : fn_(fn), inputs_(inputs), cotangent_(cotangent) {}

  struct Estimate {
    double value = 0;
    double spread = 0;  // between D(h) and the extrapolated value: the error of the former
    double noise = 0;   // rounding of fn's values, seen through the division by h
  };

  Estimate at(const Tensor& x, double* element, double step) const {
    const double h = step * std::max(1.0, std::sqrt(std::abs(*element)));
    const Estimate near = central(x, element, h), far = central(x, element, 2 * h);
    Estimate result;
    result.value = (4 * near.value - far.value) / 3;
    result.spread = std::abs(result.value - near.value);
    result.noise = near.noise;
    return result;
  }

 private:
  std::vector<double> evaluate(const Tensor& x, double* element, double value) const {
    *element = value;
    x.buffer()->bump_version("gradcheck");  // fn may cache packed data by version
    const NoGrad no_recording;
    std::vector<double> values = values_of(fn_(inputs_));
    if (values.size() != cotangent_.size())
      fail<ValueError>(
          "gradcheck: the function gave {} elements and then {} (it must be a function of its inputs)",
          cotangent_.size(), values.size());
    return values;
  }

  Estimate central(const Tensor& x, double* element, double h) const {
    const double center = *element;
    const double right_at = center + h, left_at = center - h;
    const std::vector<double> right = evaluate(x, element, right_at), left = evaluate(x, element, left_at);
    *element = center;
    x.buffer()->bump_version("gradcheck");
    // Differences before the sum: results that do not depend on the element cancel exactly.
    Estimate estimate;
    for (std::size_t i = 0; i < right.size(); ++i) {
      if (right[i] == left[i]) continue;
      estimate.value += cotangent_[i] * (right[i] - left[i]);
      estimate.noise += std::abs(cotangent_[i]) * (std::abs(right[i]) + std::abs(left[i]));
    }
    estimate.value /= right_at - left_at;
    estimate.noise *= 8 * kEpsilon / (right_at - left_at);  // fn's own rounding: some units in the last place
    return estimate;
  }

  const Function& fn_;
  const std::vector<Tensor>& inputs_;
  const std::vector<double>& cotangent_;
};

// Returns the estimate whose two differences agree best. For a smooth function the first step is enough.
Difference::Estimate best_estimate(const Difference& difference, const Tensor& x, double* element,
                                   const GradcheckOptions& options) {
  Difference::Estimate best;
  bool first = true;
  for (const double factor : {1.0, 1.0 / 16, 1.0 / 256, 16.0}) {
    const Difference::Estimate estimate = difference.at(x, element, options.step * factor);
    if (first || estimate.spread < best.spread) best = estimate;
    first = false;
    if (best.spread <= options.tolerance * std::max(1.0, std::abs(best.value)) + best.noise) break;
  }
  return best;
}

// Calls visit(index, offset) for every element, in row-major order.
template <class Visit>
void for_each_element(const Tensor& x, Visit&& visit) {
  std::vector<std::int64_t> index(static_cast<std::size_t>(x.rank()), 0);
  for (std::int64_t i = 0; i < x.elements(); ++i) {
    std::int64_t rest = i, offset = 0;
    for (int axis = x.rank() - 1; axis >= 0; --axis) {
      index[static_cast<std::size_t>(axis)] = rest % x.shape()[axis];
      rest /= x.shape()[axis];
      offset += index[static_cast<std::size_t>(axis)] * x.strides()[axis];
    }
    visit(index, offset);
  }
}

std::vector<Tensor> make_leaves(const std::vector<Tensor>& inputs) {
  std::vector<Tensor> leaves;
  for (std::size_t k = 0; k < inputs.size(); ++k) {
    const Tensor& x = inputs[k];
    if (!x.defined() || !is_floating(x.dtype())) {
      leaves.push_back(x);
      continue;
    }
    if (x.dtype() != Dtype::f64)
      fail<DtypeError>("gradcheck: input {} is {} (f64: differences of less precise numbers say nothing)", k,
                       dtype_name(x.dtype()));
    if (x.device() != kCpu) fail<DeviceError>("gradcheck: input {} is on {} (cpu)", k, to_string(x.device()));
    leaves.push_back(require_grad(copy_with_layout(x)));
  }
  return leaves;
}

// Runs fn and backward once; returns the cotangent of all floating results. Leaves the gradients in the
// leaves.
std::vector<double> run_backward(const Function& fn, const std::vector<Tensor>& leaves, std::uint64_t seed) {
  const EnableGrad recording;
  const std::vector<Tensor> ys = fn(leaves);
  std::vector<Tensor> roots, root_cotangents, cotangents;
  for (std::size_t i = 0; i < ys.size(); ++i) {
    if (!ys[i].defined() || !is_floating(ys[i].dtype())) continue;
    if (ys[i].dtype() != Dtype::f64)
      fail<DtypeError>("gradcheck: result {} is {} (f64: differences of less precise numbers say nothing)", i,
                       dtype_name(ys[i].dtype()));
    cotangents.push_back(randn(ys[i].shape(), random_key(seed, "gradcheck", i, 0), Dtype::f64));
    if (!requires_grad(ys[i])) continue;
    roots.push_back(ys[i]);
    root_cotangents.push_back(cotangents.back());
  }
  backward(roots, root_cotangents);
  return values_of(cotangents);
}

}  // namespace

std::string GradcheckResult::describe() const {
  if (input < 0) return "gradcheck: nothing to compare";
  return fmt::format(
      "gradcheck: {}: input {} at [{}]: analytic {:.12g}, numeric {:.12g}, error {:.3g} (at most {:.3g}, "
      "{} elements compared)",
      ok ? "ok" : "failed", input, fmt::join(index, ", "), analytic, numeric, error, tolerance, compared);
}

GradcheckResult gradcheck(const Function& fn, const std::vector<Tensor>& inputs,
                          const GradcheckOptions& options) {
  const std::vector<Tensor> leaves = make_leaves(inputs);
  const std::vector<double> cotangent = run_backward(fn, leaves, options.seed);
  const Difference difference(fn, leaves, cotangent);
  GradcheckResult result;
  result.tolerance = options.tolerance;
  for (std::size_t k = 0; k < leaves.size(); ++k) {
    const Tensor& x = leaves[k];
    if (!x.defined() || !is_floating(x.dtype())) continue;
    const Tensor gradient = grad(x);
    const std::vector<double> analytic = gradient.defined()
                                             ? gradient.to_vector<double>()
                                             : std::vector<double>(static_cast<std::size_t>(x.elements()));
    std::size_t at = 0;
    for_each_element(x, [&](const std::vector<std::int64_t>& index, std::int64_t offset) {
      const double a = analytic[at++];
      const Difference::Estimate estimate =
          best_estimate(difference, x, x.mutable_data<double>() + offset, options);
      const double n = estimate.value;
      const double scale = std::max({std::abs(a), std::abs(n), options.floor});
      const double error = std::abs(a - n) / (scale + estimate.noise / options.tolerance);
      ++result.compared;
      if (!(error <= options.tolerance)) result.ok = false;
      // A NaN is worse than any number and stays.
      if (result.input >= 0 && (std::isnan(result.error) || error <= result.error)) return;
      result.input = static_cast<int>(k);
      result.index = index;
      result.analytic = a;
      result.numeric = n;
      result.error = error;
    });
  }
  return result;
}

}  // namespace eddy
