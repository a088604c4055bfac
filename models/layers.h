// The small modules that models are built from: Linear, LayerNorm, Embedding. Each declares its parameters
// under a scope and is called with tensors.
#pragma once

#include "models/config.h"
#include "models/params.h"
#include "ops/index/gather.h"
#include "ops/norm/layer_norm.h"
#include "ops/product/matmul.h"

namespace eddy {

// The initial deviation of projections into the residual stream: init_std / sqrt(2 layers).
double residual_deviation(const CommonKeys& config);

// x W^T + b. Parameters: weight [out, in], and bias [out] with `with_bias`.
class Linear {
 public:
  Linear(const ParamScope& scope, std::int64_t in, std::int64_t out, double deviation, bool with_bias);
  template <class Size>
  requires std::is_arithmetic_v<Size> Linear(Size, Size) {
    static_assert(sizeof(Size) == 0,
                  "write Linear(scope.scope(name), in, out, deviation, with_bias) in a module");
  }
  Tensor operator()(const Tensor& x) const { return linear(x, weight, bias); }

  Tensor weight, bias;
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
  // The same for delta = linear(z, matrix, shift).
  SumAndNorm of_sum(const Tensor& x, const Tensor& z, const Tensor& matrix, const Tensor& shift = {}) const;

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
