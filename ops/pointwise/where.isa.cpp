// CPU kernel of where. It moves bits, so one instantiation per element size serves all types. Four bytes, the
// size of f32, has its own loops for the common strides.
#include "ops/pointwise/where.h"

#include "ops/cpu/isa.h"
#include "tensor/convert.h"
#include "tensor/threads/thread_pool.h"

namespace eddy::EDDY_ISA {
namespace {

constexpr std::int64_t kGrain = 1 << 14;  // elements per chunk

// One run of the last axis. y overlaps no operand. With constant steps a loop vectorises.
template <class T>
void row(std::int64_t n, const std::uint8_t* mask, std::int64_t step_mask, const T* a, std::int64_t step_a,
         const T* b, std::int64_t step_b, T* y) {
  constexpr bool kFast = sizeof(T) == 4;
  if (kFast && step_mask == 1 && step_a == 1 && step_b == 1) {
#pragma GCC ivdep
    for (std::int64_t i = 0; i < n; ++i) {
      const T yes = a[i], no = b[i];
      y[i] = mask[i] != 0 ? yes : no;
    }
  } else if (kFast && step_mask == 1 && step_a == 1 && step_b == 0) {
    const T no = *b;
#pragma GCC ivdep
    for (std::int64_t i = 0; i < n; ++i) {
      const T yes = a[i];
      y[i] = mask[i] != 0 ? yes : no;
    }
  } else if (kFast && step_mask == 1 && step_a == 0 && step_b == 1) {
    const T yes = *a;
#pragma GCC ivdep
    for (std::int64_t i = 0; i < n; ++i) {
      const T no = b[i];
      y[i] = mask[i] != 0 ? yes : no;
    }
  } else {
#pragma GCC ivdep
    for (std::int64_t i = 0; i < n; ++i) y[i] = mask[i * step_mask] != 0 ? a[i * step_a] : b[i * step_b];
  }
}

template <class T>
void where(const WhereArgs& args) {
  const T* const a = static_cast<const T*>(args.a);
  const T* const b = static_cast<const T*>(args.b);
  T* const y = static_cast<T*>(args.y);
  const int last = args.rank - 1;
  const std::int64_t width = args.shape[last];
  const std::int64_t step_mask = args.stride_mask[last], step_a = args.stride_a[last],
                     step_b = args.stride_b[last];
  // Chunks count pieces of rows, so that threads can split one long row as well as many short ones.
  const std::int64_t piece = width < kGrain ? width : kGrain;
  const std::int64_t pieces = (width + piece - 1) / piece;
  std::int64_t rows = 1;
  for (int i = 0; i < last; ++i) rows *= args.shape[i];
  parallel_for(rows * pieces, piece < kGrain ? kGrain / piece : 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t part = begin; part < end; ++part) {
      const std::int64_t line = part / pieces, start = part % pieces * piece;
      std::int64_t at_mask = start * step_mask, at_a = start * step_a, at_b = start * step_b, rest = line;
      for (int i = last - 1; i >= 0; --i) {
        const std::int64_t index = rest % args.shape[i];
        rest /= args.shape[i];
        at_mask += index * args.stride_mask[i];
        at_a += index * args.stride_a[i];
        at_b += index * args.stride_b[i];
      }
      row<T>(start + piece < width ? piece : width - start, args.mask + at_mask, step_mask, a + at_a, step_a,
             b + at_b, step_b, y + line * width + start);
    }
  });
}

void where_entry(const WhereArgs& args) {
  dispatch_by_size(args.dtype, [&](auto bits) { where<decltype(bits)>(args); });
}

}  // namespace

EDDY_CPU_KERNEL_OF_ALL_DTYPES(where, where_entry)

}  // namespace eddy::EDDY_ISA
