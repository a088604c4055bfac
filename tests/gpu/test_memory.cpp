// The allocator and the copies of the GPU: round trips, strides, sums, fills and casts against the CPU.
#include <doctest/doctest.h>

#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "cuda/runtime/allocator.h"
#include "tensor/base/error.h"
#include "tensor/memory/allocator.h"
#include "tensor/transfer.h"
#include "tests/gpu/support/gpu_test.h"
#include "tests/support/spec_check.h"
#include "train/plan/environment.h"

using namespace eddy;
using namespace eddy::training;
using namespace eddy::gpu_test;
using spec_check::bit_difference;
using spec_check::expect_none;

namespace {

constexpr Dtype kAll[] = {Dtype::f32, Dtype::bf16, Dtype::f64, Dtype::i32, Dtype::i64, Dtype::u8};
constexpr Dtype kComputed[] = {Dtype::f32, Dtype::bf16, Dtype::i32, Dtype::i64, Dtype::u8};

// Values from 0 to 100 that every dtype can hold; floating ones get fractions of 1/4.
Tensor values_of(const Shape& shape, Dtype dtype) {
  const Tensor whole = sample_indices(shape, "memory", 401);
  const Tensor quarter = raw::cast(whole, Dtype::f64);
  std::vector<double> values = quarter.to_vector<double>();
  for (double& value : values) value /= 4;
  return raw::cast(Tensor::from(values, shape), dtype);
}

void expect_equal(const std::string& what, const Tensor& got, const Tensor& want) {
  expect_none(bit_difference(what, to_cpu(got), want));
}

}  // namespace

TEST_SUITE("device") {
  TEST_CASE("tensors of every dtype and layout come back from the GPU as they went") {
    for (const Dtype dtype : kAll)
      for (const Shape& shape : {Shape{0, 3}, Shape{}, Shape{1}, Shape{7}, Shape{3, 5, 7}, Shape{1 << 21}}) {
        const Tensor x = values_of(shape, dtype);
        expect_equal(dtype_name(dtype), to_gpu(x), x);
        expect_equal("strided", to_gpu(strided_copy(x)), x);
      }
  }

  TEST_CASE("strided copies on the GPU move what those on the CPU move") {
    for (const Dtype dtype : kAll) {
      const Tensor x = values_of({2, 3, 4, 5, 6}, dtype), device_x = to_gpu(x);
      for (const auto& [a, b] : {std::pair{0, 4}, std::pair{1, 2}, std::pair{3, 4}}) {
        const Tensor want = raw::copy(raw::transpose(x, a, b));
        expect_equal("from strides", raw::copy(raw::transpose(device_x, a, b)), want);
        const Tensor target = Tensor::zeros(x.shape(), dtype, gpu());
        raw::copy_into(raw::transpose(target, a, b), to_gpu(want));
        expect_equal("into strides", target, x);
      }
      expect_equal("a part", raw::copy(raw::narrow(device_x, 2, 1, 2)), raw::copy(raw::narrow(x, 2, 1, 2)));
      expect_equal("repeated", raw::copy(raw::expand(raw::select(device_x, 4, 3), {7, 2, 3, 4, 5})),
                   raw::copy(raw::expand(raw::select(x, 4, 3), {7, 2, 3, 4, 5})));
    }
  }

  TEST_CASE("many copies enqueued together are all done") {
    for (const Dtype dtype : kAll) {
      std::vector<Tensor> want, got, from;
      for (std::int64_t k = 0; k < 35; ++k) {  // more than fit into two launches, one of them empty
        const Tensor x = values_of({3, k == 7 ? 0 : k + 1, 5}, dtype);
        want.push_back(raw::copy(raw::transpose(x, 0, 2)));
        got.push_back(Tensor::zeros(want.back().shape(), dtype, gpu()));
        from.push_back(raw::transpose(to_gpu(x), 0, 2));
      }
      raw::copy_all(got, from);
      for (std::size_t k = 0; k < got.size(); ++k) expect_equal("one of many", got[k], want[k]);
    }
  }

  TEST_CASE("a view of six axes is copied") {
    const Tensor x = values_of({2, 3, 2, 3, 2, 3}, Dtype::f32);
    const auto twisted = [](const Tensor& t) { return raw::transpose(raw::transpose(t, 0, 5), 1, 3); };
    expect_equal("six axes", raw::copy(twisted(to_gpu(x))), raw::copy(twisted(x)));
  }

  TEST_CASE("sums into strided and contiguous targets have the bits of the CPU") {
    for (const Dtype dtype : {Dtype::f32, Dtype::bf16}) {
      const Tensor a = values_of({9, 17, 5}, dtype), b = raw::cast(sample_normal({9, 17, 5}, "sum"), dtype);
      const Tensor want = raw::copy(a), got = to_gpu(a);
      raw::add_into(want, b);
      raw::add_into(got, to_gpu(b));
      expect_equal("contiguous", got, want);
      expect_equal("a tensor of its own",
                   raw::add(raw::transpose(to_gpu(a), 0, 1), raw::transpose(to_gpu(b), 0, 1)),
                   raw::add(raw::transpose(a, 0, 1), raw::transpose(b, 0, 1)));
      raw::add_into(raw::transpose(want, 0, 2), raw::transpose(b, 0, 2));
      raw::add_into(raw::transpose(got, 0, 2), raw::transpose(to_gpu(b), 0, 2));
      expect_equal("strided", got, want);
    }
  }

  TEST_CASE("fills write every dtype and leave the bytes around a view alone") {
    for (const Dtype dtype : kAll) {
      const Tensor want = values_of({5, 6}, dtype), got = to_gpu(want);
      for (const double value : {0.0, 3.0}) {
        raw::fill(raw::narrow(want, 1, 2, 3), value);
        raw::fill(raw::narrow(got, 1, 2, 3), value);
        expect_equal(dtype_name(dtype), got, want);
      }
      raw::fill(got, 7);
      expect_equal("whole", got, Tensor::full({5, 6}, 7, dtype));
    }
  }

  TEST_CASE("casts round as on the CPU") {
    for (const Dtype from : kComputed)
      for (const Dtype to : kComputed) {
        const Tensor x = values_of({3, 37}, from);
        expect_equal(std::string(dtype_name(from)) + " to " + dtype_name(to), raw::cast(to_gpu(x), to),
                     raw::cast(x, to));
        expect_equal("strided", raw::cast(raw::transpose(to_gpu(x), 0, 1), to),
                     raw::cast(raw::copy(raw::transpose(x, 0, 1)), to));
      }
    const std::vector<float> edges = {0.0f,    -0.0f,  1.00390625f, 1.01171875f,
                                      3.4e38f, 1e-40f, -2.5f,       std::numeric_limits<float>::infinity()};
    const Tensor x = Tensor::from(edges, {8});
    expect_equal("edges to bf16", raw::cast(to_gpu(x), Dtype::bf16), raw::cast(x, Dtype::bf16));
    const std::int64_t one = std::int64_t{1} << 62, half = std::int64_t{1} << 54;
    const Tensor ties =
        Tensor::from(std::vector<std::int64_t>{one + half + 1, one + half, -one - half - 1, 3}, {4});
    expect_equal("i64 to bf16", raw::cast(to_gpu(ties), Dtype::bf16), raw::cast(ties, Dtype::bf16));
  }

  TEST_CASE("what the GPU does not compute with is refused by name") {
    const Tensor x = to_gpu(values_of({3}, Dtype::f64)), n = to_gpu(values_of({3}, Dtype::i32));
    CHECK_THROWS_AS(raw::cast(x, Dtype::f32), DtypeError);
    CHECK_THROWS_AS(raw::cast(n, Dtype::f64), DtypeError);
    CHECK_THROWS_AS(raw::add_into(x, x), DtypeError);
    CHECK_THROWS_AS(raw::add_into(n, n), DtypeError);
    CHECK_THROWS_AS(raw::to_device(n, {DeviceType::cuda, 1}), DeviceError);
  }

  TEST_CASE("uploads in a row arrive whole and in order although the host overwrites its buffers") {
    Tensors arrived;
    const Tensor source = Tensor::empty({3000}, Dtype::i32);  // 12 kB, so that the staging memory turns over
    for (int round = 0; round < 1500; ++round) {
      raw::fill(source, round);
      arrived.push_back(to_gpu(source));
    }
    for (int round = 0; round < 1500; round += 37) {
      const std::vector<std::int32_t> values =
          to_cpu(arrived[static_cast<std::size_t>(round)]).to_vector<std::int32_t>();
      CHECK(values.front() == round);
      CHECK(values.back() == round);
    }
  }

  TEST_CASE("memory is counted and a request beyond the GPU names sizes and what would lower it") {
    Allocator& memory = allocator(gpu());
    const std::int64_t before = memory.stats().live_bytes;
    memory.reset_peak();
    {
      const Tensor x = Tensor::empty({1 << 20}, Dtype::f32, gpu());
      CHECK(memory.stats().live_bytes >= before + (4 << 20));
    }
    CHECK(memory.stats().live_bytes == before);
    CHECK(memory.stats().peak_bytes >= before + (4 << 20));
    std::string text;
    try {
      Tensor::empty({std::int64_t{1} << 43}, Dtype::f32, gpu());
    } catch (const OutOfMemoryError& error) {
      text = error.what();
    }
    for (const char* part :
         {"35184372088832 bytes", "cuda:0", "live", "peak", "largest free block", "train.batch"})
      CHECK_MESSAGE(text.find(part) != std::string::npos, text);
    CHECK(memory.stats().live_bytes == before);
    memory.set_limit(memory.stats().live_bytes + (1 << 20));
    CHECK_THROWS_AS(Tensor::empty({1 << 20}, Dtype::f32, gpu()), OutOfMemoryError);
    memory.set_limit(0);
    memory.trim();
    CHECK_NOTHROW(Tensor::empty({1 << 20}, Dtype::f32, gpu()));
  }

  TEST_CASE("what the GPU's allocator holds is a line of the environment") {
    const Tensor x = Tensor::empty({3 << 20}, Dtype::f32, gpu());
    const std::optional<GpuMemory> memory = gpu_memory();
    REQUIRE(memory.has_value());
    CHECK(memory->stats.live_bytes >= x.bytes());
    CHECK(memory->stats.reserved_bytes >= memory->stats.live_bytes);
    CHECK(memory->segments >= 1);
    const std::string line = gpu_allocator_line();
    CHECK_MESSAGE(line.starts_with("cuda allocator: live "), line);
    CHECK(environment_lines().back() == line);
  }
}
