// The counting device: every op runs on it by shapes alone, and counts the work that its kernels would have.
#include "ops/cost/counting.h"

#include <doctest/doctest.h>

#include <cstdint>
#include <vector>

#include "autograd/tape.h"
#include "ops/core/op_spec.h"
#include "ops/product/linear.h"
#include "tensor/base/error.h"
#include "tensor/memory/allocator.h"
#include "tests/support/spec_check.h"

using namespace eddy;
using namespace eddy::spec_check;

namespace {

Tensors without_values(const Tensors& inputs) {
  Tensors shapes;
  for (const Tensor& x : inputs) shapes.push_back(x.defined() ? raw::to_device(x, counting_device()) : x);
  return shapes;
}

}  // namespace

TEST_CASE("every op has its shapes on the counting device") {
  const NoGrad no_grad;
  for (const OpSpec& spec : op_specs())
    for (const OpSample& sample : spec.samples) {
      CAPTURE(spec.name + "/" + sample.label);
      const Tensors inputs = inputs_as(sample.inputs, Dtype::f32), want = spec.run(inputs);
      Tensors got;
      const Cost cost = counted([&] { got = spec.run(without_values(inputs)); });
      REQUIRE(got.size() == want.size());
      for (std::size_t i = 0; i < want.size(); ++i) {
        REQUIRE(got[i].defined() == want[i].defined());
        if (!want[i].defined()) continue;
        CHECK(got[i].shape() == want[i].shape());
        CHECK(got[i].dtype() == want[i].dtype());
        CHECK(got[i].device() == counting_device());
      }
      CHECK(cost.flops >= 0);
    }
}

TEST_CASE("a layer counts its product forward and two backward") {
  const Device device = counting_device();
  const Tensor x = require_grad(Tensor::empty({8, 6}, Dtype::f32, device)),
               weight = require_grad(Tensor::empty({5, 6}, Dtype::f32, device));
  Tensor y;
  const Cost forward = counted([&] { y = linear(x, weight); });
  CHECK(forward.flops == 2 * 8 * 6 * 5);
  CHECK(forward.bytes == 4 * (8 * 6 + 6 * 5 + 8 * 5));
  const Cost back = counted([&] { backward(y, Tensor::empty({8, 5}, Dtype::f32, device)); });
  CHECK(back.flops == 2 * forward.flops);
  CHECK(grad(weight).shape() == weight.shape());
}

TEST_CASE("small blocks between large ones leave no part of a slab of theirs unused") {
  Allocator& memory = allocator(counting_device());
  memory.trim();
  const std::int64_t before = memory.stats().reserved_bytes;
  constexpr std::int64_t kMiB = std::int64_t{1} << 20;
  std::vector<Tensor> blocks;
  for (int i = 0; i < 8; ++i)
    for (const std::int64_t bytes : {kMiB, std::int64_t{100}})
      blocks.push_back(Tensor::empty({bytes}, Dtype::u8, counting_device()));
  CHECK(memory.stats().reserved_bytes == before + 10 * kMiB);  // two slabs of 4 MiB, and one of 2 MiB
}

TEST_CASE("a value that is read on the host is refused by the counting device") {
  const Tensor x = Tensor::empty({2, 3}, Dtype::f32, counting_device());
  CHECK_THROWS_WITH_AS(static_cast<void>(x.to_vector<float>()),
                       doctest::Contains("counting: the values of [2, 3] of f32 are read on the cpu"),
                       DeviceError);
  CHECK(to_string(x.device()) == "counting");
}
