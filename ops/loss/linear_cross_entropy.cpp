// A classifier with its loss. In chunks: products by the gemm slot, then loss and gradient of each row in one
// pass (cross_entropy_rows_slot), since a chunk's logits do not fit a cache. As a whole: linear and
// cross_entropy, on a GPU as one node whose gradient takes the place of the logits.
#include "ops/loss/linear_cross_entropy.h"

#include <algorithm>

#include "autograd/tape.h"
#include "ops/cast/upcast.h"
#include "ops/core/checks.h"
#include "ops/core/cpu_path.h"
#include "ops/loss/cross_entropy.h"
#include "ops/pointwise/pointwise.h"
#include "ops/product/linear.h"
#include "ops/product/product.h"
#include "ops/reduce/reduce.h"
#include "tensor/base/format.h"

namespace eddy {

using namespace detail;

namespace {

// The default size of a chunk's logits. Each chunk reads and writes the weight's gradient, so it must not
// have few rows; its logits should be small compared with the rest of a step. CPU: 32 MiB of f32, measured in
// docs/choices.md. GPU: 256 MiB of bf16; the gradient of 50,257 classes is read and written 13 times for 32,768
// rows.
constexpr std::int64_t kChunkElements = std::int64_t{1} << 23, kFewestRows = 256;
constexpr std::int64_t kChunkElementsOnGpu = std::int64_t{1} << 27, kFewestRowsOnGpu = 1024;

// Rows of logits on a GPU are multiples of this many elements, 128 bytes of bf16.
constexpr std::int64_t kRowElements = 64;

// What the products read.
struct Problem {
  Tensor rows;          // x as [rows, in]
  Tensor weight, bias;  // of the dtype of rows, as the logits
  Tensor targets;       // [...] i64
  Dtype inside;         // of losses, and of gradients until they are given
  std::int64_t ignore, chunk;

  std::int64_t count() const { return targets.elements(); }
  std::int64_t classes() const { return weight.dim(0); }
  Tensor scratch(const Shape& shape) const { return Tensor::empty(shape, inside, rows.device()); }
  // Memory for the logits of some rows, [rows, classes], each of which begins at a multiple of 16 bytes.
  Tensor logits(std::int64_t count) const {
    const std::int64_t stride = uses_cpu_path(rows.device())
                                    ? classes()
                                    : (classes() + kRowElements - 1) / kRowElements * kRowElements;
    return raw::narrow(Tensor::empty({count, stride}, rows.dtype(), rows.device()), 1, 0, classes());
  }
};

std::int64_t chosen_chunk(std::int64_t rows, std::int64_t classes, Device device) {
  const bool on_cpu = uses_cpu_path(device);
  const std::int64_t most =
      std::max(on_cpu ? kFewestRows : kFewestRowsOnGpu,
               (on_cpu ? kChunkElements : kChunkElementsOnGpu) / std::max<std::int64_t>(1, classes));
  // Chunks of equal size, except for the last.
  const std::int64_t chunks = std::max<std::int64_t>(1, (rows + most - 1) / most);
  const std::int64_t count = (rows + chunks - 1) / chunks;
  // The gradient of the weight sums over a chunk's rows, in steps of a GPU's tile.
  return on_cpu || chunks == 1 ? count : (count + kRowElements - 1) / kRowElements * kRowElements;
}

Problem checked(const char* op, const Tensor& x, const Tensor& weight, const Tensor& bias,
                const Tensor& targets, std::int64_t ignore, std::int64_t chunk) {
  if (!must_upcast(x)) checks::floating(op, x);
  checks::parameter(op, x, weight);
  if (x.rank() < 1 || weight.rank() != 2 || x.dim(-1) != weight.dim(1))
    fail<ShapeError>("{}: x {} and weight {} (x [..., in], weight [classes, in])", op, to_string(x.shape()),
                     to_string(weight.shape()));
  if (bias.defined()) {
    checks::parameter(op, x, bias);
    if (bias.shape() != Shape{weight.dim(0)})
      fail<ShapeError>("{}: bias {} for weight {} (bias [classes])", op, to_string(bias.shape()),
                       to_string(weight.shape()));
  }
  if (chunk < 0) fail<ValueError>("{}: a chunk of {} rows (0 lets the op choose)", op, chunk);
  Problem p;
  p.targets = class_indices(op, targets, x.shape().without(x.rank() - 1), weight.dim(0), x.device(), ignore);
  p.inside = compute_dtype(x);
  p.ignore = ignore;
  p.chunk = chunk > 0 ? chunk : chosen_chunk(p.targets.elements(), weight.dim(0), x.device());
  // As in linear, bf16 products round f32 parameters. Devices without bf16 products compute in f32.
  const auto factor = [&x](const Tensor& part) {
    const Tensor rounded = x.dtype() == Dtype::bf16 ? raw::to_bf16(part) : part;
    return must_upcast(x) ? raw::cast(rounded, Dtype::f32) : rounded;
  };
  const std::int64_t width = x.dim(-1);
  p.rows = raw::reshape(factor(raw::contiguous(x)), {p.targets.elements(), width});
  p.weight = factor(weight);
  if (bias.defined()) p.bias = factor(bias);
  return p;
}

// The gradients of the sum of losses; undefined if not wanted.
struct SumGradients {
  Tensor x, weight, bias;

  bool wanted() const { return x.defined() || weight.defined() || bias.defined(); }
};

// Writes each row's loss, and the gradients that are defined.
void run_chunks(const Problem& p, const Tensor& losses, const SumGradients& gradients) {
  const Device device = p.rows.device();
  const std::int64_t rows = p.count(), most = std::min(p.chunk, rows), classes = p.classes();
  const Tensor logits = p.logits(most);
  const Dtype dtype = logits.dtype();
  const std::int64_t stride = logits.strides()[0];
  const Tensor transposed = raw::transpose(p.weight, 0, 1);
  const MatmulPrecision precision = matmul_precision(p.weight);
  for (std::int64_t first = 0; first < rows; first += most) {
    const std::int64_t count = std::min(most, rows - first);
    const Tensor part = raw::narrow(p.rows, 0, first, count), z = raw::narrow(logits, 0, 0, count);
    const std::int64_t* const targets = p.targets.data<std::int64_t>() + first;
    multiply_into(z, part, transposed, 0, {.bias = p.bias});
    void* const loss = raw::narrow(losses, 0, first, count).raw_data();
    if (!gradients.wanted()) {
      cross_entropy_forward_slot(
          device, {dtype, count, classes, stride, p.ignore, z.raw_data(), targets, loss, nullptr, nullptr});
      continue;
    }
    cross_entropy_rows_slot(device, {dtype, count, classes, stride, p.ignore, z.raw_data(), targets, loss});
    // Now z is its gradient.
    const float beta = first > 0 ? 1.0f : 0.0f;
    if (gradients.x.defined()) multiply_into(raw::narrow(gradients.x, 0, first, count), z, p.weight, 0);
    if (gradients.weight.defined())
      multiply_into(gradients.weight, raw::transpose(z, 0, 1), part, beta, {.precision = precision});
    if (gradients.bias.defined()) sum_into(gradients.bias, z, beta);
  }
  if (rows > 0) return;
  if (gradients.weight.defined()) raw::fill(gradients.weight, 0);
  if (gradients.bias.defined()) raw::fill(gradients.bias, 0);
}

// Passes on sum * factor as the gradient of input k. `factor` is one number in the device's memory. May
// overwrite sum.
void accumulate_product(GradSink& sink, int k, const Tensor& sum, const Tensor& factor) {
  const auto multiply = [&](const Tensor& to) {
    if (to.elements() > 0)
      scale_slot(to.device(), {sum.dtype(), to.dtype(), sum.elements(), sum.raw_data(), to.raw_data(), 1.0,
                               factor.raw_data()});
  };
  if (sink.keeps(k, sum.dtype())) {
    multiply(sum);
    return sink.accumulate(k, sum);
  }
  // If the gradient already has memory, as in an arena, or another dtype, the result is written there.
  sink.into(k, [&](const Tensor& dst, float beta) {
    const bool one_kernel = dst.dtype() == sum.dtype() || !uses_cpu_path(dst.device());
    if (beta == 0 && one_kernel && dst.contiguous()) return multiply(dst);
    multiply(sum);
    if (beta == 0)
      raw::cast_into(dst, sum);
    else
      raw::add_into(dst, dst.dtype() == sum.dtype() ? sum : raw::cast(sum, dst.dtype()));
  });
}

// The mean of the scored rows' losses, and 1 over their number.
struct Mean {
  Tensor loss, inverse_scored;
};
Mean mean_of(const Problem& p, const Tensor& losses) {
  const Mean mean{p.scratch({}), p.scratch({})};
  cross_entropy_mean_slot(p.rows.device(),
                          {p.inside, p.count(), p.ignore, p.targets.data<std::int64_t>(), losses.raw_data(),
                           mean.loss.raw_data(), mean.inverse_scored.raw_data()});
  return mean;
}

// All logits at once, on a GPU. The backward pass writes their gradient, that of the mean, in their place.
Tensor loss_as_a_whole(const Problem& p, const Tensor& x, const Tensor& weight, const Tensor& bias) {
  const Tensor z = p.logits(p.count()), losses = p.scratch({p.count()}), row_max = p.scratch({p.count()}),
               row_inverse = p.scratch({p.count()});
  multiply_into(z, p.rows, raw::transpose(p.weight, 0, 1), 0, {.bias = p.bias});
  cross_entropy_forward_slot(z.device(), {z.dtype(), p.count(), p.classes(), z.strides()[0], p.ignore,
                                          z.raw_data(), p.targets.data<std::int64_t>(), losses.raw_data(),
                                          row_max.raw_data(), row_inverse.raw_data()});
  const Mean mean = mean_of(p, losses);
  return record("linear_cross_entropy", {x, weight, bias}, mean.loss,
                {p.rows, p.weight, z, p.targets, row_max, row_inverse, mean.inverse_scored},
                [ignore = p.ignore](VjpContext& v) {
                  const Tensor &dz = v.saved(2), dy = raw::contiguous(v.dy());
                  cross_entropy_backward_slot(
                      dz.device(), {dz.dtype(), dz.dim(0), dz.dim(1), dz.strides()[0], ignore, dy.raw_data(),
                                    dz.raw_data(), v.saved(3).data<std::int64_t>(), v.saved(4).raw_data(),
                                    v.saved(5).raw_data(), v.saved(6).raw_data(), dz.raw_data(), 0});
                  detail::linear_gradients(v, dz);
                });
}

}  // namespace

Tensor linear_cross_entropy(const Tensor& x, const Tensor& weight, const Tensor& bias, const Tensor& targets,
                            std::int64_t ignore, std::int64_t chunk) {
  const Problem p = checked("linear_cross_entropy", x, weight, bias, targets, ignore, chunk);
  if (chunk == 0 && p.classes() < kManyClasses)
    return uses_cpu_path(x.device()) ? cross_entropy(linear(x, weight, bias), targets, ignore)
                                     : loss_as_a_whole(p, x, weight, bias);
  const auto scratch = [&](const Tensor& input, const Shape& shape) {
    return grad_enabled() && input.defined() && requires_grad(input) ? p.scratch(shape) : Tensor();
  };
  const SumGradients sums{scratch(x, p.rows.shape()), scratch(weight, weight.shape()),
                          scratch(bias, Shape{weight.dim(0)})};
  const Tensor losses = p.scratch({p.count()});
  run_chunks(p, losses, sums);
  const Mean mean = mean_of(p, losses);
  // The loss is the sum of losses over their number, so its gradient is that of the sum, times dy, over the
  // number. Nothing else uses the sum.
  return record("linear_cross_entropy", {x, weight, bias}, mean.loss,
                {sums.x, sums.weight, sums.bias, mean.inverse_scored}, [shape = x.shape()](VjpContext& v) {
                  const Tensor factor = raw::alias(v.dy()) * v.saved(3);
                  for (int k = 0; k < 3; ++k) {
                    if (!v.sink.needs(k)) continue;
                    accumulate_product(v.sink, k, k == 0 ? raw::reshape(v.saved(k), shape) : v.saved(k),
                                       factor);
                  }
                });
}

Tensor linear_cross_entropy_rows(const Tensor& x, const Tensor& weight, const Tensor& bias,
                                 const Tensor& targets, std::int64_t ignore, std::int64_t chunk) {
  const Problem p = checked("linear_cross_entropy_rows", x, weight, bias, targets, ignore, chunk);
  const bool tracked = grad_enabled() &&
                       (requires_grad(x) || requires_grad(weight) || (bias.defined() && requires_grad(bias)));
  if (tracked) return cross_entropy_rows(linear(upcast(x), upcast(weight), upcast(bias)), targets, ignore);
  if (chunk == 0 && p.classes() < kManyClasses && uses_cpu_path(x.device()))
    return cross_entropy_rows(linear(x, weight, bias), targets, ignore);
  const Tensor losses = p.scratch({p.count()});
  run_chunks(p, losses, {});
  return raw::reshape(losses, targets.shape());
}

}  // namespace eddy
