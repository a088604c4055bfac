// The part of the out-of-memory error that says for whom the tape keeps memory, on the CPU and on a GPU.
#include <doctest/doctest.h>

#include <string>

#include "autograd/scope.h"
#include "autograd/tape.h"
#include "cuda/runtime/pool.h"
#include "tensor/base/error.h"
#include "tensor/memory/allocator.h"
#include "tests/support/errors.h"

using namespace eddy;
using namespace eddy::test;

namespace {

constexpr std::int64_t kMebibyte = 1 << 20;

// A result that keeps `mib` MiB for its gradient.
Tensor keeps(const Tensor& x, std::int64_t mib) {
  return record("keeps", {x}, raw::copy(x), {Tensor::zeros({mib * kMebibyte / 4})},
                [](VjpContext& c) { c.sink.accumulate(0, c.dy()); });
}

// Three modules that keep 1, 5 and 3 MiB.
Tensor graph_of_modules() {
  const Tensor x = Tensor::full({2}, 1);
  require_grad(x);
  const ScopeGuard model("model");
  Tensor y = x;
  for (const std::int64_t mib : {1, 5, 3}) {
    const ScopeGuard module("part" + std::to_string(mib));
    y = keeps(y, mib);
  }
  return y;
}

// The text names the modules with the most bytes, the largest first.
void check_text(const std::string& text) {
  CAPTURE(text);
  const std::size_t all = text.find("saved for backward: 9437"),
                    five = text.find("5242880 bytes in 'model.part5'"),
                    three = text.find("3145728 bytes in 'model.part3'"),
                    one = text.find("1048576 bytes in 'model.part1'"), advice = text.find("train.batch");
  REQUIRE(all != std::string::npos);
  REQUIRE(advice != std::string::npos);
  CHECK(all < five);
  CHECK(five < three);
  CHECK(three < one);
  CHECK(one < advice);
}

class NoMemory final : public cuda::RawMemory {
 public:
  void* take(std::size_t) override { return nullptr; }
  void give_back(void*, std::size_t) noexcept override {}
  std::string name() const override { return "cuda:0"; }
  std::string describe() const override { return ""; }
};

}  // namespace

TEST_CASE("an out-of-memory error on the CPU names the modules that the tape keeps most for") {
  const Tensor y = graph_of_modules();
  Allocator& memory = allocator(kCpu);
  memory.set_limit(memory.stats().live_bytes + kMebibyte);
  const std::string text = error_of<OutOfMemoryError>([] { Tensor::empty({64 * kMebibyte}); });
  memory.set_limit(0);
  check_text(text);
}

TEST_CASE("an out-of-memory error on a GPU names the modules that the tape keeps most for") {
  const Tensor y = graph_of_modules();
  NoMemory none;
  cuda::Pool pool(none);
  check_text(error_of<OutOfMemoryError>([&] { pool.allocate(std::size_t{1} << 30); }));
}

TEST_CASE("the report names no module when nothing is kept for a gradient") {
  CHECK(detail::memory_report().find(" in '") == std::string::npos);
}
