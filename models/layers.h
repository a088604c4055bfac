// The small modules that models are built from: Linear, FeedForward, LayerNorm, RmsNorm, Embedding. Each declares its
// parameters under a scope and is called with tensors.
#pragma once

#include <concepts>
#include <optional>
#include <utility>

#include "models/config.h"
#include "models/params.h"
#include "ops/index/gather.h"
#include "ops/norm/layer_norm.h"
#include "ops/norm/rms_norm.h"
#include "ops/product/linear.h"

namespace eddy {

// The initial deviation of projections into the residual stream: init_std / sqrt(2 layers).
double residual_deviation(const CommonKeys& config);

// x W^T + b. Parameters: weight [out, in], and bias [out] with `with_bias`.
class Linear {
 public:
  // A weight with this standard deviation, and with `with_bias` a bias of zeros.
  Linear(const ParamScope& scope, std::int64_t in, std::int64_t out, double deviation, bool with_bias = true);
  // A flag there would be PyTorch's bias, and a weight of zeros: write the deviation with a point.
  template <std::integral Whole>
  Linear(const ParamScope&, std::int64_t, std::int64_t, Whole, bool = true) = delete;
  // With other initial values; without `of_bias` there is no bias.
  Linear(const ParamScope& scope, std::int64_t in, std::int64_t out, const Init& of_weight,
         const std::optional<Init>& of_bias = {});
  // Without a scope there is nothing to declare parameters in: the compiler asks for it.
  template <class Size>
  requires std::is_arithmetic_v<Size> Linear(Size, Size) {
    static_assert(sizeof(Size) == 0,
                  "write Linear(scope.scope(name), in, out, deviation, with_bias) in a module");
  }
  // x W^T + b
  Tensor operator()(const Tensor& x, const LinearOptions& options = {}) const {
    return linear(x, weight, bias, options);
  }
  // The result for x, which is about to be added to something.
  LinearTerm term(const Tensor& x) const { return {x, weight, bias}; }

  Tensor weight, bias;  // [out, in], and [out] or undefined
};

// down(act(up(x))), act being ReLU or GELU. Parameters: up and down.
class FeedForward {
 public:
  // Of two layers that exist.
  FeedForward(Linear up_layer, Linear down_layer, bool gelu_activation = false)
      : up(std::move(up_layer)), down(std::move(down_layer)), gelu(gelu_activation) {}
  // act(up(x))
  Tensor hidden(const Tensor& x) const;
  // The result for x, which is about to be added to something.
  LinearTerm term(const Tensor& x) const { return down.term(hidden(x)); }
  // The same as a whole, added to the residual stream if there is one.
  Tensor operator()(const Tensor& x, const Tensor& residual = {}) const {
    return linear(hidden(x), down.weight, down.bias, {.residual = residual});
  }

  Linear up, down;  // dim -> mlp_dim -> dim
  bool gelu;        // the exact GELU, else ReLU
};

// Layer norm over the last axis: weight [width] of ones, and with `with_bias` bias [width] of zeros.
class LayerNorm {
 public:
  // Over rows of `width` numbers.
  LayerNorm(const ParamScope& scope, std::int64_t width, double epsilon = 1e-5, bool with_bias = true);
  // A flag in the place of epsilon would be a number: the compiler asks for epsilon.
  template <std::same_as<bool> Flag>
  LayerNorm(const ParamScope&, std::int64_t, Flag) {
    static_assert(sizeof(Flag) == 0, "write LayerNorm(scope, width, 1e-5, with_bias)");
  }
  // The norm of x.
  Tensor operator()(const Tensor& x) const { return layer_norm(x, weight, bias, eps); }
  // x + delta and its norm.
  SumAndNorm of_sum(const Tensor& x, const Tensor& delta) const {
    return add_layer_norm(x, delta, weight, bias, eps);
  }
  // The same for the result of a linear layer, which is not computed apart where the device can add it.
  SumAndNorm of_sum(const Tensor& x, const LinearTerm& delta) const {
    return add_layer_norm(x, delta, weight, bias, eps);
  }

  Tensor weight, bias;  // [width] each; bias may be undefined
  double eps;           // added to the variance
};

// RMS norm over the last axis: weight [width] of ones.
class RmsNorm {
 public:
  // Over rows of `width` numbers.
  RmsNorm(const ParamScope& scope, std::int64_t width, double epsilon = 1e-5);
  // The norm of x.
  Tensor operator()(const Tensor& x) const { return rms_norm(x, weight, eps); }
  // x + delta and its norm.
  SumAndNorm of_sum(const Tensor& x, const Tensor& delta) const {
    return add_rms_norm(x, delta, weight, eps);
  }

  Tensor weight;  // [width]
  double eps;     // added to the mean square
};

// Rows of a table by id.
class Embedding {
 public:
  // A table [entries, width] with this standard deviation.
  Embedding(const ParamScope& scope, std::int64_t entries, std::int64_t width, double deviation);
  // A whole number there would be PyTorch's padding_idx, and a table of zeros: write the deviation with a point.
  template <std::integral Whole>
  Embedding(const ParamScope&, std::int64_t, std::int64_t, Whole) = delete;
  // The rows of these ids: [..., width].
  Tensor operator()(const Tensor& ids) const { return embedding(weight, ids); }
  // The same in `dtype`, plus `rows` if they are defined (embedding_sum).
  Tensor operator()(const Tensor& ids, Dtype dtype, const Tensor& rows = {}) const {
    return embedding_sum(weight, ids, rows, dtype);
  }

  Tensor weight;  // [entries, width]
};

// The weight of the head, [outputs, width]: the token table where it is tied, else a parameter of this shape and
// standard deviation.
Tensor head_weight(const ParamScope& scope, const Embedding& embed, bool tied, const Shape& shape,
                   double deviation);

}  // namespace eddy
