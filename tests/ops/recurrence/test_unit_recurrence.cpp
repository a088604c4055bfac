// What the unit recurrence does with the gradients that come into it.
#include <doctest/doctest.h>

#include <cmath>
#include <cstddef>
#include <cstdint>

#include "autograd/tape.h"
#include "ops/pointwise/pointwise.h"
#include "ops/recurrence/unit_recurrence.h"
#include "ops/reduce/reduce.h"
#include "tests/support/spec_check.h"

using namespace eddy;
using namespace eddy::spec_check;

namespace {

constexpr std::int64_t kTime = 4, kBatch = 3, kDim = 6, kMlp = 10;

// x, qkv, and wqkv, wo, up, down; without gains and biases.
Tensors leaves() {
  const double deviation = 1 / std::sqrt(static_cast<double>(kDim));
  return {require_grad(sample_normal({kTime, kBatch, kDim}, "x")),
          require_grad(sample_normal({kTime, kBatch, 3 * kDim}, "qkv")),
          require_grad(sample_normal({3 * kDim, kDim}, "wqkv", deviation)),
          require_grad(sample_normal({kDim, kDim}, "wo", deviation)),
          require_grad(sample_normal({kMlp, kDim}, "up", deviation)),
          require_grad(sample_normal({kDim, kMlp}, "down", deviation))};
}

UnitRecurrenceResult chain(const Tensors& t) {
  UnitRecurrenceOptions options;
  options.heads = 2;
  return unit_recurrence(t[0], t[1], {{}, {}, t[2], {}, t[3], {}, {}, {}, t[4], {}, t[5], {}}, options);
}

Tensor cotangent(const char* name) {
  return sample_normal({kTime, kBatch, kDim}, name);
}

void check_same_gradients(const Tensors& a, const Tensors& b) {
  for (std::size_t i = 0; i < a.size(); ++i) {
    expect_none(bit_difference(fmt::format("gradient {}", i), grad(a[i]), grad(b[i])));
  }
}

}  // namespace

TEST_CASE("the unit recurrence leaves cotangents that others see as they are") {
  const Tensors seen = leaves(), own = leaves();
  const Tensors dys{cotangent("dh"), cotangent("dkey"), cotangent("dvalue")};
  const UnitRecurrenceResult of_seen = chain(seen);
  backward({of_seen.h, of_seen.key, of_seen.value}, dys);
  const char* const names[] = {"dh", "dkey", "dvalue"};
  for (std::size_t i = 0; i < dys.size(); ++i)
    CHECK(bit_difference(names[i], dys[i], cotangent(names[i])).empty());
  // Those that products of the results leave are nobody else's, and are written over.
  const UnitRecurrenceResult of_own = chain(own);
  backward(sum(of_own.h * dys[0]) + sum(of_own.key * dys[1]) + sum(of_own.value * dys[2]));
  check_same_gradients(seen, own);
}

TEST_CASE("one tensor may be the cotangent of several results of the unit recurrence") {
  const Tensors shared = leaves(), apart = leaves();
  const Tensor dy = cotangent("dy");
  const UnitRecurrenceResult of_shared = chain(shared), of_apart = chain(apart);
  backward(sum((of_shared.h + of_shared.key + of_shared.value) * dy));
  backward({of_apart.h, of_apart.key, of_apart.value}, {raw::copy(dy), raw::copy(dy), raw::copy(dy)});
  check_same_gradients(shared, apart);
}

TEST_CASE("results of the unit recurrence that nobody reads have no gradient to pass on") {
  const Tensors one = leaves(), all = leaves();
  const Tensor dy = cotangent("dy"), zero = Tensor::zeros(dy.shape(), dy.dtype());
  backward(sum(chain(one).h * dy));
  const UnitRecurrenceResult result = chain(all);
  backward({result.h, result.key, result.value}, {dy, zero, zero});
  check_same_gradients(one, all);
}
