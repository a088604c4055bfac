// Linear layers: x W^T + b, with what else the product can do on its way: ReLU, a residual stream, several weights side
// by side.
#pragma once

#include <vector>

#include "tensor/tensor.h"

namespace eddy {

class VjpContext;

// What a product does besides.
struct LinearOptions {
  bool relu = false;  // max(x W^T + b, 0): the product applies it, and the values before it are not stored
  Tensor residual{};  // [..., out], of x's dtype, or undefined: added last, on a GPU by the product if it can
  // gelu(x W^T + b): in bf16 on a GPU by the kernel that sums the bias's gradient, or by the products' (gemm.h)
  bool gelu = false;
  // A result for x in bf16 is f32, as upcast(linear(...)) makes it but never rounded to bf16: for what reads f32 next.
  bool upcast = false;
};

// Returns x W^T + b, with `options` max(x W^T + b, 0) or gelu(x W^T + b), or any of them added to the residual.
// shapes: x [..., in], weight [out, in], bias [out] or undefined; result [..., out].
// dtypes: f32, f64, bf16; with x in bf16, weight and bias may be f32: they are rounded for the product, and
// their gradients are f32.
// errors: ShapeError, DtypeError, DeviceError; ValueError with both ReLU and GELU, or with one of these or a residual
// beside `upcast`.
// grad: dx = dy W, dW = dy^T x (accumulated directly into the parameter's gradient), db = sum of dy over
// rows, dresidual = dy; with ReLU dy is set to 0 first where the result of ReLU is not positive, with GELU it is
// multiplied by its derivative. A NaN before ReLU may become 0 on a GPU.
Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias = {},
              const LinearOptions& options = {});

// Returns x W_i^T for several weights, side by side, like `linear` with the stacked weights. On a GPU this is
// one product if the weights are adjacent in memory (parameters declared one after the other usually are),
// otherwise one product per weight. The same holds for the gradients.
// shapes: x [..., in], weights [out_i, in]; result [..., sum of out_i].
// dtypes: as linear.
// errors: ValueError without weights; otherwise as linear.
// grad: as linear.
Tensor linear(const Tensor& x, const std::vector<Tensor>& weights);
// Returns the same products as separate tensors, for ops that read them one by one.
// aliasing: on a GPU slices of one buffer, with its row stride.
// grad: as linear; none for the weight of a part that received no gradient.
std::vector<Tensor> linear_parts(const Tensor& x, const std::vector<Tensor>& weights);

// A linear layer x W^T + b that is about to be added to something (add_layer_norm, add_rms_norm).
struct LinearTerm {
  Tensor x, weight, bias{};  // as `linear` takes them
};

namespace detail {
// Passes on the gradients of z = x W^T + b for a node with the inputs x, weight and bias, which saved x as rows and the
// weight, as the product read them.
// shapes: dz [rows, out].
void linear_gradients(VjpContext& v, const Tensor& dz);
}  // namespace detail

}  // namespace eddy
