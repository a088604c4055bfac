// Products of an MLP with GELU in their kernel, on the emulated GPU: against the composed form, to the bit where sums
// of products are exact, for sizes beside those of tiles and for any number of blocks; which calls run so.
//
// Factors are small multiples of powers of 2, so that f32 holds every sum of products, in any order. Only the gradient
// of a bias, a sum of dz, depends on the order: rows times 2^-24 of the sum of magnitudes, and the same twice.
#include <doctest/doctest.h>

#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "autograd/checkpoint.h"
#include "autograd/tape.h"
#include "cuda/product/gelu_product.h"
#include "ops/core/warnings.h"
#include "ops/pointwise/pointwise.h"
#include "ops/pointwise/pointwise_functors.h"
#include "ops/product/linear.h"
#include "ops/product/product.h"
#include "ops/reduce/partial_sums.h"
#include "ops/views/views.h"
#include "tests/emulation/emulation.h"
#include "tests/gpu/support/gpu_test.h"
#include "tests/support/spec_check.h"

using namespace eddy;
using namespace eddy::detail;
using namespace eddy::gpu_test;
using spec_check::bit_difference;
using spec_check::expect_none;

namespace {

constexpr const char *kForward = "product and GELU", *kBackward = "product and gradient of GELU";
constexpr int kGeluIndex = pointwise::IndexOf<pointwise::Gelu, pointwise::UnaryOps>::value;

// Whole numbers of -4 .. 4 times a step, on the CPU in f64.
Tensor multiples(const Shape& shape, const char* name, double step) {
  std::vector<double> values;
  for (const std::int64_t i : sample_indices(shape, name, 9).to_vector<std::int64_t>())
    values.push_back(static_cast<double>(i - 4) * step);
  return Tensor::from(values, shape);
}
Tensor in_bf16(const Tensor& x) {
  return to_gpu(raw::cast(x, Dtype::bf16));
}
Tensor new_rows(std::int64_t rows, std::int64_t columns, Dtype dtype = Dtype::bf16) {
  return Tensor::full({rows, columns}, 7, dtype, gpu());
}

struct Sizes {
  std::int64_t rows, columns, depth;
  std::string text() const { return fmt::format("[{}, {}] to {}", rows, depth, columns); }
};
// One row and one piece; tails of rows, columns and depth; whole tiles; several tiles of all, wide ones too.
constexpr Sizes kSizes[] = {{1, 8, 8},      {37, 40, 24},    {64, 128, 64},   {128, 256, 128},
                            {130, 264, 72}, {300, 520, 136}, {65, 1032, 200}, {385, 248, 328}};
constexpr int kBlocks[] = {1, 2, 3, 132};  // with few of them tiles are wide

// The product, and what there is beside it.
struct Product {
  explicit Product(const Sizes& sizes, bool with_bias = true) : s(sizes) {
    left = in_bf16(multiples({s.rows, s.depth}, "left", 0.25));
    up = in_bf16(multiples({s.columns, s.depth}, "up", 0.125));
    down = in_bf16(multiples({s.depth, s.columns}, "down", 0.125));
    if (with_bias) bias = in_bf16(multiples({s.columns}, "bias", 0.0625));
    z = in_bf16(sample_normal({s.rows, s.columns}, "z"));
  }
  GeluProductArgs args(const Tensor& weight) const {
    return {Dtype::bf16,     s.rows,  s.columns,         s.depth,
            left.raw_data(), s.depth, weight.raw_data(), weight.dim(1)};
  }

  Sizes s;
  Tensor left, up, down, bias, z;
};

// z and act, by the kernel or composed.
Tensors forward_of(const Product& p, int blocks, bool wants_z = true) {
  const Tensor z = new_rows(p.s.rows, p.s.columns), act = new_rows(p.s.rows, p.s.columns);
  if (blocks > 0) {
    GeluProductArgs args = p.args(p.up);
    if (p.bias.defined()) args.bias = p.bias.raw_data();
    if (wants_z) args.z = z.raw_data();
    args.result = act.raw_data();
    REQUIRE(cuda::wgmma_gelu_product(args, false, blocks));
  } else {
    multiply_into(z, p.left, raw::transpose(p.up, 0, 1), 0, {.bias = p.bias});
    unary_forward_slot(gpu(), {kGeluIndex, Dtype::bf16, z.elements(), z.raw_data(), nullptr, act.raw_data()});
  }
  return to_cpu(Tensors{z, act});
}

// dz and its sums over blocks of rows, by the kernel or composed.
Tensors backward_of(const Product& p, int blocks, bool wants_sums = true) {
  const Tensor dz = new_rows(p.s.rows, p.s.columns),
               sums = new_rows(summed_blocks(p.s.rows), p.s.columns, Dtype::f32);
  if (blocks > 0) {
    GeluProductArgs args = p.args(p.down);
    args.z = p.z.raw_data();
    args.result = dz.raw_data();
    if (wants_sums) args.sums = sums.mutable_data<float>();
    REQUIRE(cuda::wgmma_gelu_product(args, true, blocks));
  } else {
    const Tensor dact = new_rows(p.s.rows, p.s.columns);
    multiply_into(dact, p.left, p.down, 0);
    sum_row_blocks({dact, sums, p.z, dz, true});
  }
  return to_cpu(Tensors{dz, sums});
}

// Whether sums of columns differ by no more than another order of additions makes.
void check_sums(const std::string& what, const Tensor& got, const Tensor& want, const Tensor& dz) {
  const std::vector<double> a = raw::cast(got, Dtype::f64).to_vector<double>(),
                            b = raw::cast(want, Dtype::f64).to_vector<double>(),
                            terms = raw::cast(dz, Dtype::f64).to_vector<double>();
  const std::int64_t rows = dz.dim(0), columns = dz.dim(1);
  std::vector<double> magnitudes(b.size());
  for (std::int64_t i = 0; i < rows * columns; ++i)
    magnitudes[static_cast<std::size_t>(i / columns / kSummedRows * columns + i % columns)] +=
        std::abs(terms[static_cast<std::size_t>(i)]);
  std::string wrong;
  for (std::size_t i = 0; i < b.size() && wrong.empty(); ++i)
    if (!(std::abs(a[i] - b[i]) <= kSummedRows * 0x1p-24 * magnitudes[i]))
      wrong = fmt::format("{}: sum {} is {} and should be {}", what, i, a[i], b[i]);
  expect_none(wrong);
}

struct Counts {
  std::map<std::string, std::int64_t> launches;
  std::int64_t of(const char* name) const {
    const auto found = launches.find(name);
    return found == launches.end() ? 0 : found->second;
  }
};
template <class Work>
Counts counted(Work&& work) {
  cuda::synchronize();
  const std::map<std::string, std::int64_t> before = emulation::launches();
  work();
  cuda::synchronize();
  Counts counts{emulation::launches()};
  for (const auto& [name, count] : before) counts.launches[name] -= count;
  return counts;
}

// An MLP with GELU whose results are large enough for the kernel: 64 tiles and more.
struct Layer {
  static constexpr std::int64_t kRows = 1030, kIn = 24, kWide = 1032;

  explicit Layer(bool biased = true) {
    const auto leaf = [](const Tensor& values, Dtype dtype) {
      return require_grad(to_gpu(raw::cast(values, dtype)));
    };
    x = leaf(multiples({kRows, kIn}, "x", 0.25), Dtype::bf16);
    up = leaf(multiples({kWide, kIn}, "up", 0.125), Dtype::f32);
    down = leaf(multiples({kIn, kWide}, "down", 0.125), Dtype::f32);
    if (!biased) return;
    up_bias = leaf(multiples({kWide}, "up bias", 0.0625), Dtype::f32);
    down_bias = leaf(multiples({kIn}, "down bias", 0.0625), Dtype::f32);
  }
  Tensor hidden() const { return linear(x, up, up_bias, {.gelu = true}); }
  Tensor above(const Tensor& act) const { return linear(act, down, down_bias); }
  Tensors gradients() const {
    Tensors all;
    for (const Tensor& leaf : {x, up, down, up_bias, down_bias})
      all.push_back(leaf.defined() ? to_cpu(grad(leaf)) : Tensor());
    return all;
  }

  Tensor x, up, down, up_bias, down_bias;
};
constexpr std::size_t kUpBias = 3;

Tensor cotangent() {
  return in_bf16(multiples({Layer::kRows, Layer::kIn}, "dy", 0.25));
}

// The result and the gradients of work with a new layer under a choice.
template <class Work>
spec_check::Outcome outcome_of(const char* choice, bool biased, Counts* counts, const Work& work) {
  set_gpu_kernels(std::string("gelu_products=") + choice);
  const Layer layer(biased);
  spec_check::Outcome outcome;
  *counts = counted([&] {
    const Tensor y = work(layer);
    backward(y, cotangent());
    outcome = {{to_cpu(detach(y))}, layer.gradients()};
  });
  return outcome;
}

// Checks an outcome against that of the plain form, all to the bit but the gradient of the first bias.
void check_outcome(const spec_check::Outcome& got, const spec_check::Outcome& want) {
  expect_none(bit_difference("y", got.results[0], want.results[0]));
  for (std::size_t i = 0; i < want.gradients.size(); ++i)
    expect_none(i == kUpBias
                    ? spec_check::difference("gradient of the bias", got.gradients[i], want.gradients[i], 64,
                                             spec_check::epsilon(Dtype::f32))
                    : bit_difference(fmt::format("gradient {}", i), got.gradients[i], want.gradients[i]));
}

Tensor whole_layer(const Layer& layer) {
  return layer.above(layer.hidden());
}

}  // namespace

TEST_SUITE("device") {
  TEST_CASE("a product with GELU in its kernel has the bits of a product and a pass of GELU") {
    for (const Sizes& sizes : kSizes)
      for (const bool with_bias : {true, false}) {
        const Product p(sizes, with_bias);
        const Tensors want = forward_of(p, 0);
        for (const int blocks : kBlocks) {
          const std::string what = fmt::format("{} by {} blocks, bias {}", sizes.text(), blocks, with_bias);
          const Tensors got = forward_of(p, blocks);
          expect_none(bit_difference("z of " + what, got[0], want[0]));
          expect_none(bit_difference("act of " + what, got[1], want[1]));
        }
      }
  }

  TEST_CASE("z is not written where it is not wanted") {
    const Product p({130, 264, 72});
    const Tensors want = forward_of(p, 0), got = forward_of(p, 2, false);
    expect_none(bit_difference("act", got[1], want[1]));
    expect_none(bit_difference("z", got[0], to_cpu(new_rows(130, 264))));
  }

  TEST_CASE(
      "a product with the derivative of GELU has the bits of a product and a pass, and sums of columns") {
    for (const Sizes& sizes : kSizes) {
      const Product p(sizes);
      const Tensors want = backward_of(p, 0);
      Tensors first;
      for (const int blocks : kBlocks) {
        const std::string what = fmt::format("{} by {} blocks", sizes.text(), blocks);
        const Tensors got = backward_of(p, blocks);
        expect_none(bit_difference("dz of " + what, got[0], want[0]));
        check_sums(what, got[1], want[1], want[0]);
        if (first.empty()) first = got;
        expect_none(bit_difference("sums of " + what, got[1], first[1]));
      }
    }
  }

  TEST_CASE("sums of columns are not written where they are not wanted") {
    const Product p({130, 264, 72});
    const Tensors want = backward_of(p, 0), got = backward_of(p, 2, false);
    expect_none(bit_difference("dz", got[0], want[0]));
    expect_none(bit_difference("sums", got[1], to_cpu(new_rows(3, 264, Dtype::f32))));
  }

  TEST_CASE("rows of weights and of inputs may lie apart") {
    const Sizes sizes{130, 264, 72};
    const Product p(sizes);
    const auto apart = [](const Tensor& x) {
      const Tensor wide = Tensor::full({x.dim(0), x.dim(1) + 16}, NAN, Dtype::bf16, gpu());
      raw::copy_into(raw::narrow(wide, 1, 8, x.dim(1)), x);
      return raw::narrow(wide, 1, 8, x.dim(1));
    };
    const Tensor left = apart(p.left), up = apart(p.up), act = new_rows(130, 264);
    GeluProductArgs args = p.args(up);
    args.left = static_cast<const bf16*>(left.buffer()->data()) + left.offset();
    args.weight = static_cast<const bf16*>(up.buffer()->data()) + up.offset();
    args.left_stride = left.strides()[0];
    args.weight_stride = up.strides()[0];
    args.bias = p.bias.raw_data();
    args.result = act.raw_data();
    REQUIRE(cuda::wgmma_gelu_product(args, false, 3));
    expect_none(bit_difference("act", to_cpu(act), forward_of(p, 0)[1]));
  }

  TEST_CASE("the kernel refuses what copies and stores of 16 bytes cannot reach") {
    const Product p({64, 64, 64});
    GeluProductArgs args = p.args(p.up);
    args.result = p.z.raw_data();
    CHECK(cuda::takes_gelu_product(args));
    const auto takes = [&args](auto&& change) {
      GeluProductArgs other = args;
      change(other);
      return cuda::takes_gelu_product(other);
    };
    CHECK_FALSE(takes([](GeluProductArgs& a) { a.columns = 60; }));
    CHECK_FALSE(takes([](GeluProductArgs& a) { a.left_stride = 68; }));
    CHECK_FALSE(takes([](GeluProductArgs& a) { a.weight_stride = 68; }));
    CHECK_FALSE(takes([](GeluProductArgs& a) { a.left = static_cast<const bf16*>(a.left) + 1; }));
    CHECK_FALSE(takes([](GeluProductArgs& a) { a.rows = 0; }));
    CHECK_FALSE(takes([](GeluProductArgs& a) { a.dtype = Dtype::f32; }));
    CHECK(takes([](GeluProductArgs& a) { a.depth = 60; }));
  }

  TEST_CASE("an MLP with GELU takes one launch each way, and has the bits of the composed form") {
    for (const bool biased : {true, false}) {
      CAPTURE(biased);
      Counts plain, fused;
      const spec_check::Outcome want = outcome_of("plain", biased, &plain, whole_layer),
                                got = outcome_of("fused", biased, &fused, whole_layer),
                                again = outcome_of("fused", biased, &fused, whole_layer);
      check_outcome(got, want);
      expect_none(bit_difference("again", again, got));
      CHECK(take_warnings().empty());
      CHECK(plain.of(kForward) + plain.of(kBackward) == 0);
      CHECK(fused.of(kForward) == 1);
      CHECK(fused.of(kBackward) == 1);
      CHECK(fused.of("product") == plain.of("product") - 2);
    }
  }

  TEST_CASE("a bias may begin at any address") {
    const Layer layer;
    const Tensor bias = at_odd_addresses({to_gpu(raw::cast(to_cpu(layer.up_bias), Dtype::bf16))})[0];
    const auto act = [&](const char* choice) {
      set_gpu_kernels(std::string("gelu_products=") + choice);
      return to_cpu(detach(linear(layer.x, layer.up, bias, {.gelu = true})));
    };
    const Tensor want = act("plain");
    CHECK(counted([&] { expect_none(bit_difference("act", act("fused"), want)); }).of(kForward) == 1);
  }

  TEST_CASE("without gradients an MLP with GELU keeps nothing beside its result") {
    set_gpu_kernels("gelu_products=fused");
    const Layer layer;
    const Tensor want = to_cpu(detach(layer.hidden()));
    const NoGrad no_gradients;
    const std::int64_t before = gpu_memory()->stats.live_bytes;
    const Tensor act = layer.hidden();
    CHECK(gpu_memory()->stats.live_bytes - before < 2 * act.bytes());
    expect_none(bit_difference("act", to_cpu(act), want));
  }

  TEST_CASE("where several layers read the activation its gradient is their sum") {
    Counts plain, fused;
    const auto twice = [](const Layer& layer) {
      const Tensor act = layer.hidden();
      return layer.above(act) + layer.above(act);
    };
    const auto before = [](const Layer& layer) {  // its gradient comes behind the product's
      const Tensor act = layer.hidden(), part = narrow(act, 1, 0, Layer::kIn);
      return layer.above(act) + part;
    };
    const auto behind = [](const Layer& layer) {
      const Tensor act = layer.hidden(), y = layer.above(act);
      return y + narrow(act, 1, 0, Layer::kIn);
    };
    check_outcome(outcome_of("fused", true, &fused, twice), outcome_of("plain", true, &plain, twice));
    CHECK(fused.of(kForward) == 1);
    CHECK(fused.of(kBackward) == 0);
    check_outcome(outcome_of("fused", true, &fused, behind), outcome_of("plain", true, &plain, behind));
    CHECK(fused.of(kBackward) == 0);
    // The product is rounded once with the other part, where it was rounded before it.
    const spec_check::Outcome got = outcome_of("fused", true, &fused, before),
                              want = outcome_of("plain", true, &plain, before);
    CHECK(fused.of(kBackward) == 0);
    for (std::size_t i = 0; i < want.gradients.size(); ++i)
      expect_none(spec_check::difference("gradient", got.gradients[i], want.gradients[i], 2, 0x1p-8));
  }

  TEST_CASE("gradients that are not wanted are not made") {
    set_gpu_kernels("gelu_products=fused");
    const Layer whole;
    backward(whole_layer(whole), cotangent());
    const Tensors want = whole.gradients();
    for (std::size_t wanted = 0; wanted < want.size(); ++wanted) {
      CAPTURE(wanted);
      Layer layer;
      Tensor* const leaves[] = {&layer.x, &layer.up, &layer.down, &layer.up_bias, &layer.down_bias};
      for (std::size_t i = 0; i < want.size(); ++i)
        if (i != wanted) *leaves[i] = detach(*leaves[i]);
      backward(whole_layer(layer), cotangent());
      expect_none(bit_difference("gradient", to_cpu(grad(*leaves[wanted])), want[wanted]));
    }
  }

  TEST_CASE(
      "a layer with GELU that is computed again, and one that anomaly mode watches, have the same gradients") {
    Counts counts;
    const spec_check::Outcome want = outcome_of("fused", true, &counts, whole_layer);
    const auto again = [](const Layer& layer) {
      return checkpoint([&layer](const Tensors&) { return whole_layer(layer); }, {layer.x});
    };
    expect_none(bit_difference("checkpoint", outcome_of("fused", true, &counts, again), want));
    CHECK(counts.of(kForward) == 2);
    CHECK(counts.of(kBackward) == 1);
    const AnomalyMode watched;
    check_outcome(outcome_of("fused", true, &counts, whole_layer), want);
    CHECK(counts.of(kBackward) == 0);
  }

  TEST_CASE("small and odd layers keep their own kernels, and it is said") {
    for (const auto& [rows, wide] : {std::pair{20, 64}, std::pair{1030, 1036}}) {
      CAPTURE(wide);
      const Tensor x = require_grad(in_bf16(multiples({rows, 24}, "x", 0.25))),
                   up = in_bf16(multiples({wide, 24}, "up", 0.125));
      set_gpu_kernels("gelu_products=fused");
      const Counts counts = counted([&] { static_cast<void>(linear(x, up, {}, {.gelu = true})); });
      CHECK(counts.of(kForward) == 0);
      CHECK(take_warnings().size() == 1);
      reset_warnings();
    }
    set_gpu_kernels("plain");
  }
}
