// A classifier with its loss in chunks: products by the gemm slot, then loss and gradient of each row in one
// pass (cross_entropy_rows_slot), since a chunk's logits do not fit a cache.
#include "ops/loss/linear_cross_entropy.h"

#include <algorithm>

#include "autograd/tape.h"
#include "ops/cast/widen.h"
#include "ops/core/checks.h"
#include "ops/loss/cross_entropy.h"
#include "ops/pointwise/pointwise.h"
#include "ops/product/product.h"
#include "ops/reduce/reduce.h"
#include "tensor/base/format.h"

namespace eddy {
namespace {

// The default size of a chunk's logits. Each chunk reads and writes the weight's gradient, so it must not
// have few rows; its logits should be small compared with the rest of a step. CPU: 32 MiB of f32, measured in
// docs/choices.md. GPU: 256 MiB; the products of 1300 rows do 1000 operations for each byte of that
// gradient. (Not measured on a GPU.)
constexpr std::int64_t kChunkElements = std::int64_t{1} << 23, kFewestRows = 256;
constexpr std::int64_t kChunkElementsOnGpu = std::int64_t{1} << 26, kFewestRowsOnGpu = 1024;

// What the products read.
struct Problem {
  Tensor rows;     // x as [rows, in]
  Tensor weight;   // of the dtype of rows
  Tensor bias;     // of dtype `inside`
  Tensor targets;  // [...] i64
  Dtype inside;    // of logits and losses, and of gradients until they are given
  std::int64_t ignore, chunk;

  std::int64_t count() const { return targets.elements(); }
  std::int64_t classes() const { return weight.dim(0); }
};

std::int64_t chosen_chunk(std::int64_t rows, std::int64_t classes, Device device) {
  const bool on_cpu = device == kCpu;
  const std::int64_t most =
      std::max(on_cpu ? kFewestRows : kFewestRowsOnGpu,
               (on_cpu ? kChunkElements : kChunkElementsOnGpu) / std::max<std::int64_t>(1, classes));
  // Chunks of equal size, except for the last.
  const std::int64_t chunks = std::max<std::int64_t>(1, (rows + most - 1) / most);
  return (rows + chunks - 1) / chunks;
}

Problem checked(const char* op, const Tensor& x, const Tensor& weight, const Tensor& bias,
                const Tensor& targets, std::int64_t ignore, std::int64_t chunk) {
  if (!widens(x)) checks::floating(op, x);
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
    return widens(x) ? raw::cast(rounded, Dtype::f32) : rounded;
  };
  const std::int64_t width = x.dim(-1);
  p.rows = raw::reshape(factor(raw::contiguous(x)), {p.targets.elements(), width});
  p.weight = factor(weight);
  if (bias.defined()) p.bias = bias.dtype() == p.inside ? raw::alias(bias) : raw::cast(bias, p.inside);
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
  const auto room = [&](const Shape& shape, Dtype dtype) { return Tensor::empty(shape, dtype, device); };
  const bool wanted = gradients.wanted(), bf16_products = p.rows.dtype() == Dtype::bf16;
  const Tensor logits = room({most, classes}, p.inside);
  // dz in the dtype of the other operand: in place of the logits, or rounded for bf16 products.
  const Tensor dlogits = wanted && bf16_products ? room({most, classes}, Dtype::bf16) : logits;
  const Tensor transposed = raw::transpose(p.weight, 0, 1);
  for (std::int64_t first = 0; first < rows; first += most) {
    const std::int64_t count = std::min(most, rows - first);
    const Tensor part = raw::narrow(p.rows, 0, first, count), z = raw::narrow(logits, 0, 0, count);
    const std::int64_t* const targets = p.targets.data<std::int64_t>() + first;
    multiply_into(z, part, transposed, 0, p.bias);
    void* const loss = raw::narrow(losses, 0, first, count).raw_data();
    if (!wanted) {
      cross_entropy_forward_slot(
          device, {p.inside, count, classes, p.ignore, z.raw_data(), targets, loss, nullptr, nullptr});
      continue;
    }
    const Tensor dz = raw::narrow(dlogits, 0, 0, count);
    cross_entropy_rows_slot(device, {p.inside, count, classes, p.ignore, z.raw_data(), targets, loss,
                                     dz.raw_data(), bf16_products});
    const float beta = first > 0 ? 1.0f : 0.0f;
    if (gradients.x.defined()) multiply_into(raw::narrow(gradients.x, 0, first, count), dz, p.weight, 0);
    if (gradients.weight.defined()) multiply_into(gradients.weight, raw::transpose(dz, 0, 1), part, beta);
    if (gradients.bias.defined()) sum_into(gradients.bias, dz, beta);
  }
  if (rows > 0) return;
  if (gradients.weight.defined()) raw::fill(gradients.weight, 0);
  if (gradients.bias.defined()) raw::fill(gradients.bias, 0);
}

// Passes on sum * factor as the gradient of input k. `factor` is one number in the device's memory. May
// overwrite sum.
void give_product(GradSink& sink, int k, const Tensor& sum, const Tensor& factor) {
  const auto multiply = [&](const Tensor& to) {
    if (to.elements() > 0)
      scale_slot(to.device(), {sum.dtype(), to.dtype(), sum.elements(), sum.raw_data(), to.raw_data(), 1.0,
                               factor.raw_data()});
  };
  if (sink.keeps(k, sum.dtype())) {
    multiply(sum);
    return sink.give(k, sum);
  }
  // If the gradient already has memory, as in an arena, or another dtype, the result is written there.
  sink.into(k, [&](const Tensor& dst, float beta) {
    const bool one_kernel = dst.dtype() == sum.dtype() || !(dst.device() == kCpu);
    if (beta == 0 && one_kernel && dst.contiguous()) return multiply(dst);
    multiply(sum);
    if (beta == 0)
      raw::cast_into(dst, sum);
    else
      raw::add_into(dst, dst.dtype() == sum.dtype() ? sum : raw::cast(sum, dst.dtype()));
  });
}

}  // namespace

Tensor linear_cross_entropy(const Tensor& x, const Tensor& weight, const Tensor& bias, const Tensor& targets,
                            std::int64_t ignore, std::int64_t chunk) {
  const Problem p = checked("linear_cross_entropy", x, weight, bias, targets, ignore, chunk);
  const Device device = x.device();
  const auto room = [&](const Tensor& input, const Shape& shape) {
    const bool wanted = grad_enabled() && input.defined() && requires_grad(input);
    return wanted ? Tensor::empty(shape, p.inside, device) : Tensor();
  };
  const SumGradients sums{room(x, p.rows.shape()), room(weight, weight.shape()),
                          room(bias, Shape{weight.dim(0)})};
  const Tensor losses = Tensor::empty({p.count()}, p.inside, device);
  run_chunks(p, losses, sums);
  const Tensor loss = Tensor::empty({}, p.inside, device);
  const Tensor inverse_scored = Tensor::empty({}, p.inside, device);
  cross_entropy_mean_slot(device, {p.inside, p.count(), ignore, p.targets.data<std::int64_t>(),
                                   losses.raw_data(), loss.raw_data(), inverse_scored.raw_data()});
  // The loss is the sum of losses over their number, so its gradient is that of the sum, times dy, over the
  // number. Nothing else uses the sum.
  return record("linear_cross_entropy", {x, weight, bias}, loss,
                {sums.x, sums.weight, sums.bias, inverse_scored}, [shape = x.shape()](VjpContext& v) {
                  const Tensor factor = raw::alias(v.dy()) * v.saved(3);
                  for (int k = 0; k < 3; ++k) {
                    if (!v.sink.needs(k)) continue;
                    give_product(v.sink, k, k == 0 ? raw::reshape(v.saved(k), shape) : v.saved(k), factor);
                  }
                });
}

Tensor linear_cross_entropy_rows(const Tensor& x, const Tensor& weight, const Tensor& bias,
                                 const Tensor& targets, std::int64_t ignore, std::int64_t chunk) {
  const Problem p = checked("linear_cross_entropy_rows", x, weight, bias, targets, ignore, chunk);
  const Tensor losses = Tensor::empty({p.count()}, p.inside, x.device());
  run_chunks(p, losses, {});
  return raw::reshape(losses, targets.shape());
}

}  // namespace eddy
