// No pointwise loop is slow in silence: each one, of every op, direction and instruction set with vectors, is
// held to a multiple of a copy and to a part of the same loop without vectors. All are measured in turns, and
// the best of their times counts, so that other work on the machine does not.
#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "ops/pointwise/pointwise.h"
#include "ops/pointwise/pointwise_functors.h"
#include "tests/support/isa_levels.h"
#include "tests/support/threads.h"

namespace {

using namespace eddy;
using namespace eddy::detail;
using namespace eddy::test;
using namespace eddy::pointwise;

// Small enough for the first cache: there a loop's arithmetic is what takes time.
constexpr std::int64_t kElements = 4096;
float a[kElements], b[kElements], dy[kElements], y[kElements];

// A loop takes at most this many copies: with vectors the dearest takes 32 (gelu's derivative, AVX2) and a
// softplus 91, without them exp takes 123 and a softplus 322.
constexpr double kCopies = 200;
// And at most this part of the time without vectors: 1/4 is the worst (the derivative of abs, AVX2).
constexpr double kOfScalar = 0.5;

double best_of(double before, const std::function<void()>& run, int times) {
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < times; ++i) run();
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
  return std::min(before, seconds.count() / times);
}

// The loop that a kernel is without vectors: every element is read and written by itself.
template <class Element>
void scalar(Element&& element) {
  const volatile float *const va = a, *const vb = b, *const vdy = dy;
  volatile float* const vy = y;
  for (std::int64_t i = 0; i < kElements; ++i) vy[i] = element(va[i], vb[i], vdy[i]);
}

struct Loop {
  std::string name;
  std::function<void()> kernel, scalar;
  double kernel_seconds = std::numeric_limits<double>::infinity();
  double scalar_seconds = std::numeric_limits<double>::infinity();

  bool fast(double copy) const {
    return kernel_seconds <= kCopies * copy && kernel_seconds <= kOfScalar * scalar_seconds;
  }
};

template <class Op>
void add_unary(std::vector<Loop>& loops, int op) {
  const UnaryArgs forward{op, Dtype::f32, kElements, a, nullptr, y}, vjp{op, Dtype::f32, kElements, a, dy, y};
  const std::string name = Op::kName;
  loops.push_back({name, [=] { unary_forward_slot(kCpu, forward); },
                   [] { scalar([](float x, float, float) { return Op::forward(x); }); }});
  loops.push_back({name + ", derivative", [=] { unary_backward_slot(kCpu, vjp); },
                   [] { scalar([](float x, float, float grad) { return Op::vjp(grad, x); }); }});
}

template <class Op>
void add_binary(std::vector<Loop>& loops, int op) {
  for (const std::int64_t step : {1, 0}) {
    const auto kernel = [=](BinaryPart part) {
      const BinaryArgs args{op, part, Dtype::f32, 1, {kElements}, {1}, {step}, a, b, dy, y};
      return [=] { binary_slot(kCpu, args); };
    };
    const std::string name = std::string(Op::kName) + (step == 0 ? " of a row and a number" : "");
    loops.push_back({name, kernel(BinaryPart::forward),
                     [] { scalar([](float x, float z, float) { return Op::forward(x, z); }); }});
    if constexpr (kHasGradients<Op>) {
      loops.push_back({name + ", first derivative", kernel(BinaryPart::gradient_a),
                       [] { scalar([](float x, float z, float grad) { return Op::vjp_a(grad, x, z); }); }});
      loops.push_back({name + ", second derivative", kernel(BinaryPart::gradient_b),
                       [] { scalar([](float x, float z, float grad) { return Op::vjp_b(grad, x, z); }); }});
    }
  }
}

// Ops that are known to have no vectors.
template <class Op>
constexpr bool kScalar = false;
template <>
constexpr bool kScalar<Pow> = true;  // powf of libm

template <class... Unary, class... Binary>
std::vector<Loop> loops_of(OpList<Unary...>, OpList<Binary...>) {
  std::vector<Loop> loops;
  (add_unary<Unary>(loops, IndexOf<Unary, UnaryOps>::value), ...);
  ((kScalar<Binary> ? void() : add_binary<Binary>(loops, IndexOf<Binary, BinaryOps>::value)), ...);
  return loops;
}

// Why times say nothing here, or "".
const char* unmeasurable() {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  return "the build is instrumented";
#else
  return best_isa_level() < IsaLevel::avx2 ? "all kernels have vectors of 16 bytes" : "";
#endif
}

}  // namespace

TEST_CASE("pointwise: every loop over f32 takes few copies and less than half of its time without vectors") {
  if (*unmeasurable() != 0) {
    MESSAGE("not measured: " << unmeasurable());
    return;
  }
  const OneThread one;
  for (std::int64_t i = 0; i < kElements; ++i) {
    const float place = static_cast<float>(i) / static_cast<float>(kElements);
    a[i] = 0.5F + place;
    b[i] = 2 - place;
    dy[i] = 1 + 0.1F * place;
  }
  std::vector<Loop> loops = loops_of(UnaryOps{}, BinaryOps{});
  double copy = std::numeric_limits<double>::infinity();
  on_every_isa_level([&] {
    if (isa_level() == IsaLevel::baseline) return;
    for (Loop& loop : loops) loop.kernel_seconds = std::numeric_limits<double>::infinity();
    // 10 rounds, and up to 500 for what looks slow: a machine that is busy all that time is not met.
    for (int round = 0; round < 500; ++round) {
      bool all_fast = round >= 10;
      copy = best_of(
          copy, [] { std::memcpy(y, a, sizeof y); }, 10);
      for (Loop& loop : loops) {
        if (round >= 10 && loop.fast(copy)) continue;
        all_fast = false;
        loop.kernel_seconds = best_of(loop.kernel_seconds, loop.kernel, 4);
        loop.scalar_seconds = best_of(loop.scalar_seconds, loop.scalar, 1);
      }
      if (all_fast) break;
    }
    for (const Loop& loop : loops)
      CHECK_MESSAGE(loop.fast(copy), loop.name
                                         << " on " << std::string(isa_name(isa_level())) << " takes "
                                         << loop.kernel_seconds / copy << " copies (at most " << kCopies
                                         << ") and " << loop.kernel_seconds / loop.scalar_seconds
                                         << " of its time without vectors (at most " << kOfScalar
                                         << "): did GCC vectorise it? (ops/README.md, what vectorises)");
  });
}
