// Which of cuBLASLt's proposals a product takes, on the emulated GPU: what is timed, when, and how it is written down.
#include <doctest/doctest.h>

#include <map>
#include <string>
#include <vector>

#include "ops/core/capture.h"
#include "ops/product/gemm.h"
#include "ops/product/matmul.h"
#include "tests/emulation/products/proposals.h"
#include "tests/gpu/support/gpu_test.h"
#include "tests/support/errors.h"

using namespace eddy;
using namespace eddy::detail;
using namespace eddy::gpu_test;
using namespace eddy::test;

namespace {

constexpr const char *kTimed = "plain,algorithms=timed", *kFirst = "plain";

// So many rows by a matrix, as numbers.
std::vector<float> product_of(std::int64_t rows, const char* kernels = kTimed) {
  set_gpu_kernels(kernels);
  const auto normal = [](const Shape& shape, const char* name) {
    return to_gpu(raw::cast(sample_normal(shape, name), Dtype::f32));
  };
  return to_cpu(matmul(normal({rows, 65}, "a"), normal({65, 48}, "b"))).to_vector<float>();
}

std::int64_t products_run() {
  synchronize(gpu());
  const std::map<std::string, std::int64_t> counts = emulation::launches();
  const auto found = counts.find("product");
  return found == counts.end() ? 0 : found->second;
}

}  // namespace

TEST_SUITE("device") {
  TEST_CASE("a shape that is timed takes the fastest proposal that runs, and every other shape the first") {
    const Proposed four;
    const std::vector<float> first = product_of(6, kFirst), other = product_of(5, kFirst);
    CHECK(product_of(6) == first);  // nothing was timed
    std::vector<float> timed;
    {
      const ProductTiming timing;
      timed = product_of(6);
      CHECK(timed != first);
      CHECK(contains(timing.summary(), "products of 1 shapes are timed: 1 take another algorithm"));
    }
    CHECK(product_of(6) == timed);
    CHECK(product_of(5) == other);
    CHECK(product_algorithms().size() == 2);
    CHECK(product_of(6, kFirst) == first);
    CHECK(product_algorithms().empty());
  }

  TEST_CASE("a proposal that is hardly faster than the first is not taken") {
    const Proposed two({{.ms = 1}, {.ms = 0.97, .splits = true}});  // beside the millisecond of two events
    const std::vector<float> first = product_of(6, kFirst);
    const ProductTiming timing;
    CHECK(product_of(6) == first);
    CHECK(contains(timing.summary(), "1 shapes are timed: 0 take"));
  }

  TEST_CASE("a product that adds to its result does so once when it is timed") {
    const Proposed four;
    const Tensor a = to_gpu(Tensor::full({4, 4}, 1)), c = to_gpu(Tensor::full({4, 4}, 10));
    GemmArgs g{};
    g.m = g.n = g.k = g.lda = g.ldb = g.ldc = 4;
    g.a = g.b = a.raw_data();
    g.c = c.raw_data();
    g.beta = 1;
    set_gpu_kernels(kTimed);
    const ProductTiming timing;
    gemm_slot(gpu(), g);
    CHECK(to_cpu(c).to_vector<float>() == std::vector<float>(16, 14.0f));
    CHECK(product_algorithms().size() == 2);
  }

  TEST_CASE("without memory to time it in a product runs by the first proposal") {
    const Proposed four;
    const Tensor a = to_gpu(Tensor::full({512, 512}, 1)), c = to_gpu(Tensor::full({512, 512}, 10));
    GemmArgs g{};
    g.m = g.n = g.k = g.lda = g.ldb = g.ldc = 512;
    g.a = g.b = a.raw_data();
    g.c = c.raw_data();
    set_gpu_kernels(kTimed);
    gemm_slot(gpu(), g);  // has the workspace
    const ProductTiming timing;
    emulation::refuse_memory(2);  // also behind a second look for some
    gemm_slot(gpu(), g);
    emulation::refuse_memory(0);
    CHECK(to_cpu(c).to_vector<float>() == std::vector<float>(512 * 512, 512.0f));
    CHECK(product_algorithms().empty());
  }

  TEST_CASE("nothing is timed in a capture, whose replays have the bits of the shape's algorithm") {
    const Proposed four;
    const std::vector<float> first = product_of(6, kFirst);
    set_gpu_kernels(kTimed);
    const Tensor a = to_gpu(raw::cast(sample_normal({6, 65}, "a"), Dtype::f32)),
                 b = to_gpu(raw::cast(sample_normal({65, 48}, "b"), Dtype::f32));
    const ProductTiming timing;
    Tensor y;
    const auto replayed = [&] {
      const auto work = capture(gpu(), [&] { y = matmul(a, b); });
      work->replay();
      return to_cpu(y).to_vector<float>();
    };
    CHECK(replayed() == first);
    CHECK(product_algorithms().empty());
    const std::vector<float> timed = product_of(6);
    CHECK(timed != first);
    CHECK(replayed() == timed);
    y = Tensor();
  }

  TEST_CASE("algorithms that were written down give the same bits, and a shape that is known is not timed") {
    const Proposed four;
    const std::vector<float> first = product_of(6, kFirst);
    ProductAlgorithms lines;
    std::vector<float> timed;
    {
      const ProductTiming timing;
      timed = product_of(6);
      lines = product_algorithms();
      CHECK(timing.known() == lines);
    }
    set_product_algorithms({});
    CHECK(product_of(6) == first);
    set_product_algorithms(lines);
    CHECK(product_of(6) == timed);
    CHECK(product_algorithms() == lines);

    set_product_algorithms({});
    const ProductTiming timing(lines);
    const std::int64_t before = products_run();
    CHECK(product_of(6) == timed);
    CHECK(products_run() == before + 1);
    CHECK(timing.summary() == "");
    CHECK(product_algorithms() == lines);
  }

  TEST_CASE("algorithms of another library or GPU, or damaged ones, are refused, and nothing changes") {
    const Proposed four;
    ProductAlgorithms lines;
    {
      const ProductTiming timing;
      static_cast<void>(product_of(6));
      lines = product_algorithms();
    }
    REQUIRE(lines.size() == 2);
    const auto error = [](const ProductAlgorithms& algorithms) {
      return error_of<DeviceError>([&] { set_product_algorithms(algorithms); });
    };
    CHECK(contains(error({"Other GPU, 8.0, cuBLASLt 12.4.2", lines[1]}), "they are of Other GPU, 8.0"));
    for (const char* damage : {"", "1,2", "6,48: 1", ": ", "x"})
      CHECK(contains(error({lines[0], damage}), "is no shape and its algorithm"));
    CHECK(contains(error({lines[0], lines[1] + ","}), "is no shape and its algorithm"));
    CHECK(product_algorithms() == lines);

    Proposed::change_library();
    CHECK(contains(error(lines), "cuBLASLt 13.0.0, and here is "));
    CHECK(
        contains(error({gpu_kind(), lines[1]}), "cuBLASLt does not run the one of [6, 65] by [65, 48] here"));
    const ProductTiming timing(lines);  // timed anew
    static_cast<void>(product_of(6));
    CHECK(contains(timing.summary(), "products of 1 shapes"));
  }
}
