// Comparing what an op gives: with an oracle up to rounding, and with itself to the bit. For tests, and for the check
// of a GPU's kernels.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>

#include "autograd/tape.h"
#include "ops/core/op_spec.h"
#include "tensor/base/format.h"

namespace eddy::spec_check {

// What one call of an op gives, and the gradients of its floating inputs for given cotangents.
struct Outcome {
  Tensors results;
  Tensors gradients;  // one for each input; undefined where there is none
};

// The distance from 1 to the next number.
inline double epsilon(Dtype dtype) {
  return dtype == Dtype::f32 ? std::numeric_limits<float>::epsilon() : std::numeric_limits<double>::epsilon();
}

// Normals from a fixed stream, in a dtype.
inline Tensor normal(const Shape& shape, const char* stream, Dtype dtype = Dtype::f64) {
  return raw::cast(sample_normal(shape, stream), dtype);
}

// The sample's inputs with the floating ones in another dtype. What was strided stays strided.
inline Tensors inputs_as(const Tensors& inputs, Dtype dtype) {
  Tensors result;
  for (const Tensor& x : inputs) {
    if (!x.defined() || !is_floating(x.dtype())) {
      result.push_back(x);
    } else {
      const Tensor typed = raw::cast(x, dtype);
      result.push_back(x.contiguous() ? typed : strided_copy(typed));
    }
  }
  return result;
}

// The same values on a device with the strides that strided_copy gives on the CPU: the last two axes swapped
// in memory, or a step of two for one axis.
inline Tensor strided_on(const Tensor& x, Device device) {
  if (x.rank() == 0) return raw::to_device(x, device);
  if (x.rank() == 1) {
    const Tensor wide = Tensor::zeros({x.dim(0), 2}, x.dtype(), device);
    const Tensor view = raw::select(wide, 1, 0);
    raw::copy_into(view, raw::to_device(x, device));
    return view;
  }
  return raw::transpose(raw::to_device(raw::copy(raw::transpose(x, -1, -2)), device), -1, -2);
}

// A sample's inputs on a device, the floating ones as f32. What was strided stays strided.
inline Tensors inputs_on(const Tensors& inputs, Device device) {
  Tensors result;
  for (const Tensor& x : inputs) {
    if (!x.defined()) {
      result.push_back(x);
      continue;
    }
    const Tensor typed = is_floating(x.dtype()) ? raw::cast(x, Dtype::f32) : raw::copy(x);
    result.push_back(x.contiguous() ? raw::to_device(typed, device) : strided_on(typed, device));
  }
  return result;
}

// Every tensor of the list, rewritten by a function of a tensor.
template <class Change>
Tensors changed(const Tensors& tensors, Change&& change) {
  Tensors result;
  for (const Tensor& x : tensors) result.push_back(x.defined() ? change(x) : x);
  return result;
}

// One cotangent for each result: normals, so that no gradient hides behind a sum that is constant; zeros for
// whole numbers, which have no gradient.
inline Tensors cotangents(const Tensors& results) {
  Tensors dys;
  for (std::size_t i = 0; i < results.size(); ++i) {
    const std::string stream = fmt::format("cotangent {}", i);
    const double scale = is_floating(results[i].dtype()) ? 1 : 0;
    const Tensor dy = raw::cast(sample_normal(results[i].shape(), stream.c_str(), scale), results[i].dtype());
    dys.push_back(raw::to_device(dy, results[i].device()));
  }
  return dys;
}

struct EvaluateOptions {
  Tensors dys;                  // cotangents; made from the results when empty
  bool twice = false;           // call the op two times on the same leaves and run both backwards at once
  bool pinned = false;          // gather each gradient in storage that holds NaN before
  int tied_to = -1, tied = -1;  // the first is in the place of the second, whose gradient is missing then
};

// Runs an op on fresh leaves over the inputs' storage, and its backward where the op has one.
inline Outcome evaluate(const OpSpec& spec, const Tensors& inputs, const EvaluateOptions& options = {}) {
  Tensors leaves;
  for (const Tensor& x : inputs) {
    if (options.tied_to >= 0 && options.tied == static_cast<int>(leaves.size())) {
      leaves.push_back(leaves[static_cast<std::size_t>(options.tied_to)]);
      continue;
    }
    leaves.push_back(x.defined() ? raw::alias(x) : x);
    if (!x.defined() || !is_floating(x.dtype())) continue;
    require_grad(leaves.back());
    if (options.pinned)
      set_grad_storage(leaves.back(), Tensor::full(x.shape(), std::numeric_limits<double>::quiet_NaN(),
                                                   x.dtype(), x.device()));
  }
  Outcome outcome;
  Tensors ys, dys;
  for (int call = 0; call < (options.twice ? 2 : 1); ++call) {
    outcome.results = spec.run(leaves);
    const Tensors chosen = options.dys.empty() ? cotangents(outcome.results) : options.dys;
    for (std::size_t i = 0; i < chosen.size(); ++i)
      if (requires_grad(outcome.results[i])) {
        ys.push_back(outcome.results[i]);
        dys.push_back(chosen[i]);
      }
  }
  if (!ys.empty()) backward(ys, dys);
  for (const Tensor& leaf : leaves)
    outcome.gradients.push_back(leaf.defined() && requires_grad(leaf) && !ys.empty() ? grad(leaf) : Tensor());
  if (options.tied_to >= 0) outcome.gradients[static_cast<std::size_t>(options.tied)] = Tensor();
  // A result may be a leaf itself (dropout with p = 0): hand out plain tensors.
  for (Tensor& y : outcome.results) y = detach(y);
  return outcome;
}

// Calls check(first, second, inputs) for the pairs of a sample's inputs, both floating and of one shape, with
// inputs in which the second is a copy of the first.
template <class Check>
void for_pairs(const Tensors& inputs, Check&& check) {
  for (std::size_t second = 1; second < inputs.size(); ++second)
    for (std::size_t first = 0; first < second; ++first) {
      const Tensor &a = inputs[first], &b = inputs[second];
      if (!a.defined() || !b.defined() || !is_floating(a.dtype()) || a.dtype() != b.dtype() ||
          a.shape() != b.shape())
        continue;
      Tensors equal = inputs;
      equal[second] = raw::copy(a);
      check(static_cast<int>(first), static_cast<int>(second), equal);
    }
}

// Nothing, or what differs: |got - want| <= roundings * eps * scale, the scale being the largest finite
// |want|, so that an element that is small by cancellation is held to the roundings of the terms it came
// from. With own_size the scale is the element's |want|, but at least what f32 kernels may take for 0, and
// 100 times as many roundings are allowed: small results come of e^x, where x is as large as 88 and each of
// its roundings counts so often. With 0 roundings, equal. NaN and infinities must stand at the same places.
inline std::string difference(const std::string& what, const Tensor& got, const Tensor& want,
                              double roundings, double eps, bool own_size = false) {
  if (own_size) roundings *= 100;
  if (got.defined() != want.defined())
    return fmt::format("{}: {} but should be", what, got.defined() ? "is there" : "is missing");
  if (!got.defined()) return "";
  if (got.shape() != want.shape())
    return fmt::format("{}: shape {} and should have {}", what, to_string(got.shape()),
                       to_string(want.shape()));
  const std::vector<double> a = raw::cast(got, Dtype::f64).to_vector<double>();
  const std::vector<double> b = raw::cast(want, Dtype::f64).to_vector<double>();
  double largest = 0;
  for (const double value : b)
    if (std::isfinite(value)) largest = std::max(largest, std::abs(value));
  const auto scale_of = [&](std::size_t i) {
    constexpr double kFlushed = 0x1p-125 / std::numeric_limits<float>::epsilon();
    return own_size && std::isfinite(b[i]) ? std::max(std::abs(b[i]), kFlushed) : largest;
  };
  double worst = -1;  // relative to the element's scale
  std::size_t place = 0;
  for (std::size_t i = 0; i < b.size(); ++i) {
    if (std::isnan(a[i]) && std::isnan(b[i])) continue;
    const double error = a[i] == b[i] ? 0 : std::abs(a[i] - b[i]);
    const double relative = error == 0 ? 0 : error / scale_of(i);
    if (relative <= worst) continue;  // not taken for NaN: it becomes the worst
    worst = relative;
    place = i;
    if (std::isnan(relative)) break;
  }
  if (b.empty() || worst <= roundings * eps) return "";
  return fmt::format(
      "{}: element {} of {}: {:.17g} and should be {:.17g}: error {:.3g}, tolerance {:.3g} = {} roundings x "
      "{:.3g} x {:.3g}",
      what, place, to_string(want.shape()), a[place], b[place], worst * scale_of(place),
      roundings * eps * scale_of(place), roundings, eps, scale_of(place));
}

// Nothing, or the first element whose bits differ.
inline std::string bit_difference(const std::string& what, const Tensor& got, const Tensor& want) {
  if (got.defined() != want.defined()) return fmt::format("{}: one is missing", what);
  if (!got.defined()) return "";
  if (got.shape() != want.shape() || got.dtype() != want.dtype())
    return fmt::format("{}: {} of {} and {} of {}", what, to_string(got.shape()), dtype_name(got.dtype()),
                       to_string(want.shape()), dtype_name(want.dtype()));
  const Tensor a = raw::contiguous(got), b = raw::contiguous(want);
  const std::size_t width = dtype_bytes(a.dtype());
  for (std::int64_t i = 0; i < a.elements(); ++i) {
    const std::size_t at = static_cast<std::size_t>(i) * width;
    if (std::memcmp(static_cast<const char*>(a.raw_data()) + at, static_cast<const char*>(b.raw_data()) + at,
                    width) != 0)
      return fmt::format("{}: bits of element {} of {} differ: {:.17g} and {:.17g}", what, i,
                         to_string(a.shape()),
                         raw::cast(a, Dtype::f64).to_vector<double>()[static_cast<std::size_t>(i)],
                         raw::cast(b, Dtype::f64).to_vector<double>()[static_cast<std::size_t>(i)]);
  }
  return "";
}

// The first difference between two outcomes, to the bit.
inline std::string bit_difference(const std::string& what, const Outcome& got, const Outcome& want) {
  for (std::size_t i = 0; i < want.results.size(); ++i) {
    const std::string text =
        bit_difference(fmt::format("{} result {}", what, i), got.results[i], want.results[i]);
    if (!text.empty()) return text;
  }
  for (std::size_t i = 0; i < want.gradients.size(); ++i) {
    const std::string text =
        bit_difference(fmt::format("{} gradient {}", what, i), got.gradients[i], want.gradients[i]);
    if (!text.empty()) return text;
  }
  return "";
}

// The first difference between gradients, up to rounding.
inline std::string gradient_difference(const std::string& what, const Tensors& got, const Tensors& want,
                                       double roundings, double eps, bool own_size = false) {
  for (std::size_t i = 0; i < want.size(); ++i) {
    const std::string text =
        difference(fmt::format("{} gradient {}", what, i), got[i], want[i], roundings, eps, own_size);
    if (!text.empty()) return text;
  }
  return "";
}

// A gradient is computed from the forward's results, then by a few operations of its own, and may sum over
// what was broadcast or repeated: it is allowed this many roundings.
inline double gradient_roundings(const OpSpec& spec) {
  return 4 * spec.roundings + 16;
}

}  // namespace eddy::spec_check
