// CPU loops of the pointwise ops, one instantiation per op, direction and type. Memory-bound but for exp and
// its kin.
#include "ops/pointwise.h"

#include "ops/pointwise_functors.h"
#include "tensor/thread_pool.h"

namespace eddy::EDDY_ISA {
namespace {

using namespace pointwise;

constexpr std::int64_t kGrain = 1 << 14;  // elements per chunk: 64 KiB of f32, so that a chunk stays in L2

template <class Op, class T>
void unary_forward(const UnaryArgs& args) {
  const T* x = static_cast<const T*>(args.x);
  T* y = static_cast<T*>(args.y);
  parallel_for(args.elements, kGrain, [=](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) y[i] = Op::forward(x[i]);
  });
}

template <class Op, class T>
void unary_backward(const UnaryArgs& args) {
  const T* saved = static_cast<const T*>(args.x);
  const T* dy = static_cast<const T*>(args.dy);
  T* dx = static_cast<T*>(args.y);
  parallel_for(args.elements, kGrain, [=](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) dx[i] = Op::vjp(dy[i], saved[i]);
  });
}

template <class Op, BinaryPart Part, class T>
EDDY_INLINE T apply(T dy, T a, T b) {
  if constexpr (Part == BinaryPart::forward) return Op::forward(a, b);
  if constexpr (Part == BinaryPart::gradient_a) return Op::vjp_a(dy, a, b);
  return Op::vjp_b(dy, a, b);
}

// One run of the last axis. The cases that matter get loops that vectorise.
template <class Op, BinaryPart Part, class T>
void binary_row(std::int64_t n, const T* a, std::int64_t step_a, const T* b, std::int64_t step_b, const T* dy,
                T* y) {
  constexpr bool kGradient = Part != BinaryPart::forward;
  if (step_a == 1 && step_b == 1) {
    for (std::int64_t i = 0; i < n; ++i) y[i] = apply<Op, Part, T>(kGradient ? dy[i] : T(0), a[i], b[i]);
  } else if (step_a == 1 && step_b == 0) {
    const T fixed = *b;
    for (std::int64_t i = 0; i < n; ++i) y[i] = apply<Op, Part, T>(kGradient ? dy[i] : T(0), a[i], fixed);
  } else {
    for (std::int64_t i = 0; i < n; ++i)
      y[i] = apply<Op, Part, T>(kGradient ? dy[i] : T(0), a[i * step_a], b[i * step_b]);
  }
}

template <class Op, BinaryPart Part, class T>
void binary_part(const BinaryArgs& args) {
  const T* const a = static_cast<const T*>(args.a);
  const T* const b = static_cast<const T*>(args.b);
  const T* const dy = static_cast<const T*>(args.dy);
  T* const y = static_cast<T*>(args.y);
  const int last = args.rank - 1;
  const std::int64_t width = args.shape[last], step_a = args.stride_a[last], step_b = args.stride_b[last];
  if (args.rank == 1) {
    parallel_for(width, kGrain, [=](std::int64_t begin, std::int64_t end) {
      binary_row<Op, Part, T>(end - begin, a + begin * step_a, step_a, b + begin * step_b, step_b,
                              dy == nullptr ? nullptr : dy + begin, y + begin);
    });
    return;
  }
  std::int64_t rows = 1;
  for (int i = 0; i < last; ++i) rows *= args.shape[i];
  const std::int64_t grain = width >= kGrain ? 1 : kGrain / width;
  parallel_for(rows, grain, [=, &args](std::int64_t begin, std::int64_t end) {
    // The index of the first row, then counted on.
    std::int64_t index[6] = {}, at_a = 0, at_b = 0, rest = begin;
    for (int i = last - 1; i >= 0; --i) {
      index[i] = rest % args.shape[i];
      rest /= args.shape[i];
      at_a += index[i] * args.stride_a[i];
      at_b += index[i] * args.stride_b[i];
    }
    for (std::int64_t row = begin; row < end; ++row) {
      binary_row<Op, Part, T>(width, a + at_a, step_a, b + at_b, step_b,
                              dy == nullptr ? nullptr : dy + row * width, y + row * width);
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

// Finds the op by its place in the list, then the type.
template <class... Ops>
void run_forward(const UnaryArgs& args, OpList<Ops...>) {
  int place = 0;
  ((place++ == args.op
        ? (args.dtype == Dtype::f32 ? unary_forward<Ops, float>(args) : unary_forward<Ops, double>(args))
        : void()),
   ...);
}

template <class... Ops>
void run_backward(const UnaryArgs& args, OpList<Ops...>) {
  int place = 0;
  ((place++ == args.op
        ? (args.dtype == Dtype::f32 ? unary_backward<Ops, float>(args) : unary_backward<Ops, double>(args))
        : void()),
   ...);
}

template <class Op, class T>
void run_part(const BinaryArgs& args) {
  switch (args.part) {
    case BinaryPart::forward:
      return binary_part<Op, BinaryPart::forward, T>(args);
    case BinaryPart::gradient_a:
      return binary_part<Op, BinaryPart::gradient_a, T>(args);
    case BinaryPart::gradient_b:
      return binary_part<Op, BinaryPart::gradient_b, T>(args);
  }
}

template <class... Ops>
void run_binary(const BinaryArgs& args, OpList<Ops...>) {
  int place = 0;
  ((place++ == args.op ? (args.dtype == Dtype::f32 ? run_part<Ops, float>(args) : run_part<Ops, double>(args))
                       : void()),
   ...);
}

}  // namespace

void install_pointwise();
void install_pointwise() {
  unary_forward_slot.function[0] = [](const UnaryArgs& args) { run_forward(args, UnaryOps{}); };
  unary_backward_slot.function[0] = [](const UnaryArgs& args) { run_backward(args, UnaryOps{}); };
  binary_slot.function[0] = [](const BinaryArgs& args) { run_binary(args, BinaryOps{}); };
}

}  // namespace eddy::EDDY_ISA
