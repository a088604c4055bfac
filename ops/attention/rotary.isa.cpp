// CPU kernel of the rotary embedding. Heads of one position share a row of the table, which stays in the
// first-level cache. An element's neighbour comes from a shuffle inside its vector.
#include "ops/attention/rotary.h"

#include <utility>

#include "ops/cpu/isa.h"
#include "ops/cpu/lanes.h"
#include "ops/cpu/rows.h"

namespace eddy::EDDY_ISA {
namespace {

// Entries 0 and 1, 2 and 3, ... change places.
template <class Vector, int... I>
EDDY_INLINE Vector swap_pairs(Vector x, std::integer_sequence<int, I...>) {
  return __builtin_shufflevector(x, x, (I ^ 1)...);
}
template <class T>
EDDY_INLINE typename LaneVector<T>::type swap_pairs(typename LaneVector<T>::type x) {
  return swap_pairs(x, std::make_integer_sequence<int, static_cast<int>(LaneVector<T>::width)>());
}

// One head of `width` entries.
template <class T, bool Add>
EDDY_INLINE void turn_head(const T* x, const T* cosines, const T* sines, T sign, T* y, T beta,
                           std::int64_t width) {
  using Vector = LaneVector<T>;
  using Loose = typename Vector::loose;
  std::int64_t i = 0;
  for (; i + Vector::width <= width; i += Vector::width) {
    const typename Vector::type value = OneVector<T>::load(x + i);
    typename Vector::type result = value * OneVector<T>::load(cosines + i) +
                                   swap_pairs<T>(value) * (OneVector<T>::load(sines + i) * sign);
    if constexpr (Add) result += beta * OneVector<T>::load(y + i);
    *reinterpret_cast<Loose*>(y + i) = result;
  }
  for (; i < width; i += 2) {
    const T u = x[i], w = x[i + 1];
    const T first = u * cosines[i] + w * (sines[i] * sign);
    const T second = w * cosines[i + 1] + u * (sines[i + 1] * sign);
    y[i] = Add ? beta * y[i] + first : first;
    y[i + 1] = Add ? beta * y[i + 1] + second : second;
  }
}

template <class T>
void rotary_kernel(const RotaryArgs& args) {
  const std::int64_t width = 2 * args.pairs, row_elements = args.heads * width;
  const T sign = args.back ? T(-1) : T(1), beta = static_cast<T>(args.beta);
  parallel_for_rows(args.batch * args.time, row_elements, [=, &args](std::int64_t row) {
    const std::int64_t batch = row / args.time, time = row % args.time;
    const T* const x =
        static_cast<const T*>(args.x) + batch * args.x_batch_stride + time * args.x_time_stride;
    const T* const cosines = static_cast<const T*>(args.turns) + time * 2 * width;
    const T* const sines = cosines + width;
    T* const y = static_cast<T*>(args.y) + row * row_elements;
    for (std::int64_t head = 0; head < args.heads; ++head) {
      const T* const from = x + head * args.x_head_stride;
      if (beta == T(0))
        turn_head<T, false>(from, cosines, sines, sign, y + head * width, beta, width);
      else
        turn_head<T, true>(from, cosines, sines, sign, y + head * width, beta, width);
    }
  });
}

}  // namespace

EDDY_CPU_KERNEL(rotary, rotary_kernel)

}  // namespace eddy::EDDY_ISA
