// CPU kernel of Adafactor. Memory-bound. Per f32 element of a factored matrix it moves 32 bytes: the gradient
// is read three times, the parameter is read twice and written once, the momentum is read and written. Other
// parameters take 40. Sums are f64 in 8 lanes, block by block; blocks are added in order.
#include "ops/optimizer/adafactor.h"

#include "ops/cpu/isa.h"
#include "ops/cpu/lanes.h"
#include "ops/cpu/vec_math.h"
#include "tensor/threads/thread_pool.h"

namespace eddy::EDDY_ISA {
namespace {

template <class T>
struct Step {
  const AdafactorArgs& args;
  double factor, beta2;  // clipping of the gradient; decay of the second moments
  double lr;

  T* params(const AdafactorTensor& tensor) const { return static_cast<T*>(args.p) + tensor.begin; }
  const T* grads(const AdafactorTensor& tensor) const { return static_cast<const T*>(args.g) + tensor.begin; }
  T* momentum(const AdafactorTensor& tensor) const { return static_cast<T*>(args.m) + tensor.begin; }
  T* second(const AdafactorTensor& tensor) const { return static_cast<T*>(args.second) + tensor.second; }

  double square(T g) const {
    const double value = factor * static_cast<double>(g);
    return value * value + args.options.square_eps;
  }

  // Pass 1 of a block of rows of a factored tensor.
  void factored_sums(const AdafactorTensor& tensor, const AdafactorBlock& block, std::int64_t number) const {
    const std::int64_t columns = tensor.columns;
    double* const sums = args.column_sums + tensor.scratch + (number - tensor.first_block) * columns;
    for (std::int64_t j = 0; j < columns; ++j) sums[j] = 0;
    T* const r = second(tensor);
    for (std::int64_t row = block.begin; row < block.end; ++row) {
      const T* const g = grads(tensor) + row * columns;
      const double total = sum_in_order<8>(columns, [&](std::int64_t j) { return square(g[j]); });
      for (std::int64_t j = 0; j < columns; ++j) sums[j] += square(g[j]);
      r[row] = static_cast<T>(beta2 * static_cast<double>(r[row]) +
                              (1 - beta2) * total / static_cast<double>(columns));
    }
    const std::int64_t start = block.begin * columns;
    args.block_sums[2 * number + 1] = squares(params(tensor) + start, block.end * columns - start);
  }

  // Pass 1 of a block of elements of another tensor: u^2 is known at once.
  void plain_sums(const AdafactorTensor& tensor, const AdafactorBlock& block, std::int64_t number) const {
    const std::int64_t n = block.end - block.begin;
    const T* const g = grads(tensor) + block.begin;
    T* const v = second(tensor) + block.begin;
    for (std::int64_t i = 0; i < n; ++i)
      v[i] = static_cast<T>(beta2 * static_cast<double>(v[i]) + (1 - beta2) * square(g[i]));
    args.block_sums[2 * number] = sum_in_order<8>(n, [&](std::int64_t i) {
      const double value = factor * static_cast<double>(g[i]);
      return value * value / static_cast<double>(v[i]);
    });
    args.block_sums[2 * number + 1] = squares(params(tensor) + block.begin, n);
  }

  static double squares(const T* x, std::int64_t n) {
    return sum_in_order<8>(n, [x](std::int64_t i) {
      const double value = static_cast<double>(x[i]);
      return value * value;
    });
  }

  // Pass 2 of a factored tensor.
  void columns_from_sums(const AdafactorTensor& tensor, std::int64_t number) const {
    const std::int64_t columns = tensor.columns;
    double* const sums = args.column_sums + tensor.scratch;
    for (std::int64_t block = 1; block < tensor.blocks; ++block)
      for (std::int64_t j = 0; j < columns; ++j) sums[j] += sums[block * columns + j];
    const T* const r = second(tensor);
    T* const c = second(tensor) + tensor.rows;
    for (std::int64_t j = 0; j < columns; ++j) {
      c[j] = static_cast<T>(beta2 * static_cast<double>(c[j]) +
                            (1 - beta2) * sums[j] / static_cast<double>(tensor.rows));
      sums[j] = 1 / vec::sqrt(static_cast<double>(c[j]));
    }
    const double total =
        sum_in_order<8>(tensor.rows, [r](std::int64_t row) { return static_cast<double>(r[row]); });
    args.tensor_values[2 * number] = total / static_cast<double>(tensor.rows);
  }

  // u = g row_scale(row) c^(-1/2), the clipping factor included.
  double row_scale(const AdafactorTensor& tensor, std::int64_t number, std::int64_t row) const {
    return factor * vec::sqrt(args.tensor_values[2 * number] / static_cast<double>(second(tensor)[row]));
  }

  // Pass 3.
  void factored_update_squares(const AdafactorTensor& tensor, const AdafactorBlock& block,
                               std::int64_t number) const {
    const double* const column_scale = args.column_sums + tensor.scratch;
    double total = 0;
    for (std::int64_t row = block.begin; row < block.end; ++row) {
      const T* const g = grads(tensor) + row * tensor.columns;
      const double scale = row_scale(tensor, block.tensor, row);
      total += sum_in_order<8>(tensor.columns, [=](std::int64_t j) {
        const double value = scale * static_cast<double>(g[j]) * column_scale[j];
        return value * value;
      });
    }
    args.block_sums[2 * number] = total;
  }

  // Pass 4.
  void set_rate(const AdafactorTensor& tensor, std::int64_t number) const {
    double update_squares = 0, param_squares = 0;
    for (std::int64_t block = tensor.first_block; block < tensor.first_block + tensor.blocks; ++block) {
      update_squares += args.block_sums[2 * block];
      param_squares += args.block_sums[2 * block + 1];
    }
    const double elements = static_cast<double>(tensor.rows) * static_cast<double>(tensor.columns);
    const double clip_ratio = vec::sqrt(update_squares / elements) / args.options.update_clip;
    const double param_rms = vec::sqrt(param_squares / elements), least = args.options.least_scale;
    args.tensor_values[2 * number + 1] =
        lr * (param_rms > least ? param_rms : least) / (clip_ratio > 1 ? clip_ratio : 1);
  }

  // Pass 5.
  void apply(const AdafactorTensor& tensor, const AdafactorBlock& block) const {
    const T keep = static_cast<T>(args.options.momentum);
    const T take = static_cast<T>((1 - args.options.momentum) * args.tensor_values[2 * block.tensor + 1]);
    if (!tensor.factored) {
      T *const p = params(tensor), *const m = momentum(tensor);
      const T *const g = grads(tensor), *const v = second(tensor);
      const T scale = static_cast<T>(factor);
#pragma GCC ivdep
      for (std::int64_t i = block.begin; i < block.end; ++i) {
        m[i] = keep * m[i] + take * (scale * g[i] / vec::sqrt(v[i]));
        p[i] -= m[i];
      }
      return;
    }
    const double* const column_scale = args.column_sums + tensor.scratch;
    for (std::int64_t row = block.begin; row < block.end; ++row) {
      const std::int64_t start = row * tensor.columns;
      T *const p = params(tensor) + start, *const m = momentum(tensor) + start;
      const T* const g = grads(tensor) + start;
      const double scale = row_scale(tensor, block.tensor, row);
#pragma GCC ivdep
      for (std::int64_t j = 0; j < tensor.columns; ++j) {
        m[j] = keep * m[j] + take * static_cast<T>(scale * static_cast<double>(g[j]) * column_scale[j]);
        p[j] -= m[j];
      }
    }
  }
};

template <class T>
void adafactor(const AdafactorArgs& args) {
  const AdafactorScalars scalars = *args.scalars;
  double factor = 1;
  if (args.norm != nullptr) {
    if (!(*args.norm - *args.norm == 0)) return;  // NaN or infinite
    factor = clip_factor(*args.norm, scalars.clip);
  }
  const double t = static_cast<double>(scalars.step);
  const Step<T> step{args, factor, 1 - ::pow(t + 1, -args.options.decay_exponent), scalars.lr};
  const auto for_blocks = [&args](auto&& body) __attribute__((always_inline)) {
    parallel_for(args.block_count, 1, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t number = begin; number < end; ++number)
        body(args.tensors[args.blocks[number].tensor], args.blocks[number], number);
    });
  };
  for_blocks([&](const AdafactorTensor& tensor, const AdafactorBlock& block, std::int64_t number) {
    tensor.factored ? step.factored_sums(tensor, block, number) : step.plain_sums(tensor, block, number);
  });
  parallel_for(args.tensor_count, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t number = begin; number < end; ++number)
      if (args.tensors[number].factored) step.columns_from_sums(args.tensors[number], number);
  });
  for_blocks([&](const AdafactorTensor& tensor, const AdafactorBlock& block, std::int64_t number) {
    if (tensor.factored) step.factored_update_squares(tensor, block, number);
  });
  for (std::int64_t number = 0; number < args.tensor_count; ++number)
    step.set_rate(args.tensors[number], number);
  for_blocks([&](const AdafactorTensor& tensor, const AdafactorBlock& block, std::int64_t) {
    step.apply(tensor, block);
  });
}

}  // namespace

EDDY_CPU_KERNEL(adafactor, adafactor)

}  // namespace eddy::EDDY_ISA
