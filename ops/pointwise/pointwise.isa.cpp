// CPU loops of the pointwise ops, one for each op, direction and type. Memory-bound, except exp and the like.
#include "ops/pointwise/pointwise.h"

#include "ops/cpu/isa.h"
#include "ops/pointwise/pointwise_functors.h"
#include "tensor/threads/thread_pool.h"

namespace eddy::EDDY_ISA {
namespace {

using namespace pointwise;

constexpr std::int64_t kGrain = 1 << 14;  // elements per chunk: 64 KiB of f32, so that a chunk stays in L2

// A result overlaps an operand only if it is the same memory (in place), so the loops skip overlap checks
// (ivdep), which would compile each loop twice.
template <class Op, class T>
void unary_forward(const UnaryArgs& args) {
  const T* x = static_cast<const T*>(args.x);
  T* y = static_cast<T*>(args.y);
  parallel_for(args.elements, kGrain, [=](std::int64_t begin, std::int64_t end) {
#pragma GCC ivdep
    for (std::int64_t i = begin; i < end; ++i) y[i] = Op::forward(x[i]);
  });
}

template <class Op, class T>
void unary_backward(const UnaryArgs& args) {
  const T* saved = static_cast<const T*>(args.x);
  const T* dy = static_cast<const T*>(args.dy);
  T* dx = static_cast<T*>(args.y);
  parallel_for(args.elements, kGrain, [=](std::int64_t begin, std::int64_t end) {
#pragma GCC ivdep
    for (std::int64_t i = begin; i < end; ++i) dx[i] = Op::vjp(dy[i], saved[i]);
  });
}

template <class Op, BinaryPart Part, class T>
EDDY_INLINE T apply(const T* dy, std::int64_t i, T a, T b) {
  if constexpr (Part == BinaryPart::forward) return Op::forward(a, b);
  if constexpr (Part == BinaryPart::gradient_a) return Op::vjp_a(dy[i], a, b);
  if constexpr (Part == BinaryPart::gradient_b) return Op::vjp_b(dy[i], a, b);
}

// Addresses of one run of the last axis; dy is null in the forward pass.
template <class T>
struct Run {
  const T* a;
  std::int64_t step_a;
  const T* b;
  std::int64_t step_b;
  const T* dy;
  T* y;
};

// One run of n elements. The steps that matter get loops that vectorise, in f32.
template <class Op, BinaryPart Part, class T>
void binary_run(const Run<T>& run, std::int64_t n) {
  const T *const a = run.a, *const b = run.b, *const dy = run.dy;
  T* const y = run.y;
  const std::int64_t step_a = run.step_a, step_b = run.step_b;
  constexpr bool kFast = sizeof(T) == 4;
  if (kFast && step_a == 1 && step_b == 1) {
#pragma GCC ivdep
    for (std::int64_t i = 0; i < n; ++i) y[i] = apply<Op, Part>(dy, i, a[i], b[i]);
  } else if (kFast && step_a == 1 && step_b == 0) {
    const T fixed = *b;
#pragma GCC ivdep
    for (std::int64_t i = 0; i < n; ++i) y[i] = apply<Op, Part>(dy, i, a[i], fixed);
  } else {
    for (std::int64_t i = 0; i < n; ++i) y[i] = apply<Op, Part>(dy, i, a[i * step_a], b[i * step_b]);
  }
}

// Walks over the runs of the last axis. It calls the loop over elements through a pointer, so that the walk
// is compiled once for all ops.
template <class T>
void for_runs(const BinaryArgs& args, void (*body)(const Run<T>&, std::int64_t)) {
  const T* const a = static_cast<const T*>(args.a);
  const T* const b = static_cast<const T*>(args.b);
  const T* const dy = static_cast<const T*>(args.dy);
  T* const y = static_cast<T*>(args.y);
  const int last = args.rank - 1;
  const std::int64_t width = args.shape[last], step_a = args.stride_a[last], step_b = args.stride_b[last];
  if (args.rank == 1) {
    parallel_for(width, kGrain, [=](std::int64_t begin, std::int64_t end) {
      body({a + begin * step_a, step_a, b + begin * step_b, step_b, dy == nullptr ? nullptr : dy + begin,
            y + begin},
           end - begin);
    });
    return;
  }
  std::int64_t rows = 1;
  for (int i = 0; i < last; ++i) rows *= args.shape[i];
  const std::int64_t grain = width >= kGrain ? 1 : kGrain / width;
  parallel_for(rows, grain, [=, &args](std::int64_t begin, std::int64_t end) {
    // The index of the first row, incremented from row to row.
    std::int64_t index[6] = {}, at_a = 0, at_b = 0, rest = begin;
    for (int i = last - 1; i >= 0; --i) {
      index[i] = rest % args.shape[i];
      rest /= args.shape[i];
      at_a += index[i] * args.stride_a[i];
      at_b += index[i] * args.stride_b[i];
    }
    for (std::int64_t row = begin; row < end; ++row) {
      body({a + at_a, step_a, b + at_b, step_b, dy == nullptr ? nullptr : dy + row * width, y + row * width},
           width);
      for (int i = last - 1; i >= 0; --i) {
        at_a += args.stride_a[i];
        at_b += args.stride_b[i];
        if (++index[i] < args.shape[i]) break;
        at_a -= args.stride_a[i] * args.shape[i];
        at_b -= args.stride_b[i] * args.shape[i];
        index[i] = 0;
      }
    }
  });
}

// Kernels by the index of the op in the list.
template <class T>
void unary_forward_kernel(const UnaryArgs& args) {
  [&]<class... Ops>(OpList<Ops...>) {
    static constexpr void (*kKernels[])(const UnaryArgs&) = {unary_forward<Ops, T>...};
    kKernels[args.op](args);
  }(UnaryOps{});
}

template <class T>
void unary_backward_kernel(const UnaryArgs& args) {
  [&]<class... Ops>(OpList<Ops...>) {
    static constexpr void (*kKernels[])(const UnaryArgs&) = {unary_backward<Ops, T>...};
    kKernels[args.op](args);
  }(UnaryOps{});
}

template <class T>
using BinaryRun = void (*)(const Run<T>&, std::int64_t);

// The loop for a part of an op, or null if the op has no gradients.
template <class Op, BinaryPart Part, class T>
constexpr BinaryRun<T> binary_run_of() {
  if constexpr (Part == BinaryPart::forward || kHasGradients<Op>)
    return binary_run<Op, Part, T>;
  else
    return nullptr;
}

template <class T>
void binary_kernel(const BinaryArgs& args) {
  [&]<class... Ops>(OpList<Ops...>) {
    static constexpr BinaryRun<T> kKernels[][3] = {{binary_run_of<Ops, BinaryPart::forward, T>(),
                                                    binary_run_of<Ops, BinaryPart::gradient_a, T>(),
                                                    binary_run_of<Ops, BinaryPart::gradient_b, T>()}...};
    for_runs<T>(args, kKernels[args.op][static_cast<int>(args.part)]);
  }(BinaryOps{});
}

template <class T>
void scale(const ScaleArgs& args) {
  const T* const x = static_cast<const T*>(args.x);
  T* const y = static_cast<T*>(args.y);
  T factor = static_cast<T>(args.factor);
  if (args.device_factor != nullptr) factor *= *static_cast<const T*>(args.device_factor);
  parallel_for(args.n, kGrain, [=](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) y[i] = factor * x[i];
  });
}

}  // namespace

EDDY_CPU_KERNEL(unary_forward, unary_forward_kernel)
EDDY_CPU_KERNEL(unary_backward, unary_backward_kernel)
EDDY_CPU_KERNEL(binary, binary_kernel)
EDDY_CPU_KERNEL(scale, scale)

}  // namespace eddy::EDDY_ISA
