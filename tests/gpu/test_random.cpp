// Random words on the GPU: the CPU's, to the bit.
#include <doctest/doctest.h>

#include <cmath>

#include "ops/pointwise/dropout.h"
#include "tests/gpu/support/gpu_test.h"
#include "tests/support/spec_check.h"

using namespace eddy;
using namespace eddy::gpu_test;

TEST_SUITE("device") {
  TEST_CASE("dropout keeps the elements that the CPU keeps whatever the place of the first") {
    // Offsets around the borders of a counter's four words and of its lower 32 bits.
    for (const std::uint64_t first : {0ull, 1ull, 2ull, 3ull, 4ull, 1023ull, 0x3ffffffe5ull, 0x3fffffffffull})
      for (const std::int64_t n : {1, 3, 4, 5, 1000, 100003}) {
        const Tensor x = Tensor::full({n}, 1);
        const RandomKey key = random_key(11, "words", 0x123456789ull);
        const Tensor want = dropout(x, 0.3, key, first), got = to_cpu(dropout(to_gpu(x), 0.3, key, first));
        spec_check::expect_none(spec_check::bit_difference("dropout", got, want));
      }
  }

  TEST_CASE("a dropout mask that repeats is the CPU's to the bit whatever the sizes and addresses") {
    for (const Dtype dtype : {Dtype::f32, Dtype::bf16})
      for (const std::int64_t batch : {1, 2, 5})
        for (const std::int64_t dim : {1, 6, 8, 132})
          for (const std::int64_t start : {0, 1}) {
            const Shape shape{batch, 11, dim};
            const Tensor room = raw::cast(sample_normal({shape.elements() + 1}, "room"), dtype);
            const auto part = [&](const Tensor& t) {
              return raw::reshape(raw::narrow(t, 0, start, shape.elements()), shape);
            };
            const RandomKey key = random_key(13, "tile", 5);
            const Tensor want = tiled_dropout(part(room), 0.3, key, 4, 6);
            spec_check::expect_none(spec_check::bit_difference(
                "tiled_dropout", to_cpu(tiled_dropout(part(to_gpu(room)), 0.3, key, 4, 6)), want));
          }
  }

  TEST_CASE("dropout of a part of a tensor is the part of its dropout") {
    const Tensor x = to_gpu(raw::cast(sample_normal({4096}, "part"), Dtype::f32));
    const RandomKey key = random_key(3, "part", 0);
    const Tensor whole = dropout(x, 0.5, key);
    for (const std::int64_t start : {0, 1, 7, 64, 1001}) {
      const Tensor part = dropout(raw::narrow(x, 0, start, 777), 0.5, key, static_cast<std::uint64_t>(start));
      spec_check::expect_none(spec_check::bit_difference(
          "part", to_cpu(part), to_cpu(raw::copy(raw::narrow(whole, 0, start, 777)))));
    }
  }

  TEST_CASE("a probability at the grid of 24 bits drops the same elements as on the CPU") {
    const Tensor x = Tensor::full({65536}, 2);
    for (const double p : {0.0, 0x1p-24, 0.5, 0.5 + 0x1p-25, 1 - 0x1p-24}) {
      const RandomKey key = random_key(5, "grid", 1);
      spec_check::expect_none(
          spec_check::bit_difference("grid", to_cpu(dropout(to_gpu(x), p, key)), dropout(x, p, key)));
    }
  }
}
