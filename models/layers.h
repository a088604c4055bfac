// The small modules that models are built from: Linear, FeedForward, LayerNorm, Embedding. Each declares its parameters
// under a scope and is called with tensors.
#pragma once

#include <optional>
#include <utility>

#include "models/config.h"
#include "models/params.h"
#include "ops/index/gather.h"
#include "ops/norm/layer_norm.h"
#include "ops/product/linear.h"

namespace eddy {

// The initial deviation of projections into the residual stream: init_std / sqrt(2 layers).
double residual_deviation(const CommonKeys& config);

// x W^T + b. Parameters: weight [out, in], and bias [out] with `with_bias`.
class Linear {
 public:
  Linear(const ParamScope& scope, std::int64_t in, std::int64_t out, double deviation, bool with_bias);
  // With other initial values; without `of_bias` there is no bias.
  Linear(const ParamScope& scope, std::int64_t in, std::int64_t out, const Init& of_weight,
         const std::optional<Init>& of_bias = {});
  template <class Size>
  requires std::is_arithmetic_v<Size> Linear(Size, Size) {
    static_assert(sizeof(Size) == 0,
                  "write Linear(scope.scope(name), in, out, deviation, with_bias) in a module");
  }
  Tensor operator()(const Tensor& x) const { return linear(x, weight, bias); }
  // The result for x, which is about to be added to something.
  LinearTerm term(const Tensor& x) const { return {x, weight, bias}; }

  Tensor weight, bias;
};

// down(act(up(x))), act being ReLU or GELU. Parameters: up and down.
class FeedForward {
 public:
  FeedForward(Linear up_layer, Linear down_layer, bool gelu_activation = false)
      : up(std::move(up_layer)), down(std::move(down_layer)), gelu(gelu_activation) {}
  // act(up(x))
  Tensor hidden(const Tensor& x) const;
  // The same as a whole, added to the residual stream if there is one.
  Tensor operator()(const Tensor& x, const Tensor& residual = {}) const {
    return linear(hidden(x), down.weight, down.bias, {.residual = residual});
  }

  Linear up, down;
  bool gelu;
};

// Layer norm over the last axis: weight [width] of ones, and with `with_bias` bias [width] of zeros.
class LayerNorm {
 public:
  LayerNorm(const ParamScope& scope, std::int64_t width, double epsilon, bool with_bias);
  Tensor operator()(const Tensor& x) const { return layer_norm(x, weight, bias, eps); }
  // x + delta and its norm.
  SumAndNorm of_sum(const Tensor& x, const Tensor& delta) const {
    return add_layer_norm(x, delta, weight, bias, eps);
  }
  SumAndNorm of_sum(const Tensor& x, const LinearTerm& delta) const {
    return add_layer_norm(x, delta, weight, bias, eps);
  }

  Tensor weight, bias;
  double eps;
};

// Rows of a table by id.
class Embedding {
 public:
  Embedding(const ParamScope& scope, std::int64_t entries, std::int64_t width, double deviation);
  Tensor operator()(const Tensor& ids) const { return embedding(weight, ids); }
  // The same in `dtype`, plus `rows` if they are defined (embedding_sum).
  Tensor operator()(const Tensor& ids, Dtype dtype, const Tensor& rows = {}) const {
    return embedding_sum(weight, ids, rows, dtype);
  }

  Tensor weight;
};

}  // namespace eddy
