// CPU kernels of cross-entropy. The forward reads the logits once from memory (for the second pass a row
// comes from the cache) and writes three numbers per row. The backward reads the logits once and writes
// dlogits once. The kernel for loss and gradient together reads the logits once, writes dlogits once and
// computes each exponential once.
#include "ops/loss/cross_entropy.h"

#include "ops/cpu/isa.h"
#include "ops/cpu/row_exp.h"
#include "ops/cpu/rows.h"

namespace eddy::EDDY_ISA {
namespace {

template <class T>
void forward_kernel(const CrossEntropyArgs& args) {
  const T* const logits = static_cast<const T*>(args.logits);
  T* const row_loss = static_cast<T*>(args.row_loss);
  const std::int64_t classes = args.classes;
  parallel_for_rows(args.rows, classes, [=, &args](std::int64_t row) {
    const std::int64_t target = args.targets[row];
    if (target == args.ignore) {
      row_loss[row] = T(0);
      return;
    }
    const T* const x = logits + row * args.stride;
    const T top = lane_max(x, classes);
    const T sum = sum_of_exp(x, classes, top);
    row_loss[row] = vec::log(sum) - (x[target] - top);
    if (args.row_max != nullptr) {
      static_cast<T*>(args.row_max)[row] = top;
      static_cast<T*>(args.row_inverse)[row] = T(1) / sum;
    }
  });
}

// Gives the same bits as the separate kernels.
template <class T>
void loss_and_gradient_kernel(const CrossEntropyRowsArgs& args) {
  T *const logits = static_cast<T*>(args.logits), *const row_loss = static_cast<T*>(args.row_loss);
  const std::int64_t classes = args.classes;
  parallel_for_rows(args.rows, classes, [=, &args](std::int64_t row) {
    const std::int64_t target = args.targets[row];
    T* const x = logits + row * args.stride;
    if (target == args.ignore) {
      row_loss[row] = T(0);
      for (std::int64_t i = 0; i < classes; ++i) x[i] = T(0);
      return;
    }
    const T top = lane_max(x, classes), of_target = x[target];
    const T sum = sum_of_exp(x, classes, top, x);
    row_loss[row] = vec::log(sum) - (of_target - top);
    const T inverse = T(1) / sum;
    for (std::int64_t i = 0; i < classes; ++i) x[i] = inverse * x[i];
    x[target] -= T(1);
  });
}

template <class T>
void mean_kernel(const CrossEntropyMeanArgs& args) {
  const T* const row_loss = static_cast<const T*>(args.row_loss);
  double total = 0;
  std::int64_t scored = 0;
  for (std::int64_t row = 0; row < args.rows; ++row) {
    if (args.targets[row] == args.ignore) continue;
    total += static_cast<double>(row_loss[row]);
    ++scored;
  }
  const double inverse = scored > 0 ? 1.0 / static_cast<double>(scored) : 0.0;
  *static_cast<T*>(args.loss) = static_cast<T>(total * inverse);
  *static_cast<T*>(args.inverse_scored) = static_cast<T>(inverse);
}

template <class T>
void backward_kernel(const CrossEntropyBackwardArgs& args) {
  const T* const logits = static_cast<const T*>(args.logits);
  const T *const tops = static_cast<const T*>(args.row_max), *const inverses =
                                                                 static_cast<const T*>(args.row_inverse);
  T* const dlogits = static_cast<T*>(args.dlogits);
  const T beta = static_cast<T>(args.beta);
  const T scale = *static_cast<const T*>(args.dy) * *static_cast<const T*>(args.inverse_scored);
  const std::int64_t classes = args.classes;
  parallel_for_rows(args.rows, classes, [=, &args](std::int64_t row) {
    const std::int64_t target = args.targets[row];
    const T* const x = logits + row * args.stride;
    T* const dx = dlogits + row * args.stride;
    if (target == args.ignore) {
      for (std::int64_t i = 0; i < classes; ++i) dx[i] = beta == T(0) ? T(0) : beta * dx[i];
      return;
    }
    const T top = tops[row], factor = scale * inverses[row];
    if (beta == T(0)) {
      for (std::int64_t i = 0; i < classes; ++i) dx[i] = factor * vec::exp(x[i] - top);
    } else {
      for (std::int64_t i = 0; i < classes; ++i) dx[i] = beta * dx[i] + factor * vec::exp(x[i] - top);
    }
    dx[target] -= scale;
  });
}

}  // namespace

EDDY_CPU_KERNEL(cross_entropy_forward, forward_kernel)
EDDY_CPU_KERNEL(cross_entropy_mean, mean_kernel)
EDDY_CPU_KERNEL(cross_entropy_backward, backward_kernel)
EDDY_CPU_KERNEL(cross_entropy_rows, loss_and_gradient_kernel)

}  // namespace eddy::EDDY_ISA
