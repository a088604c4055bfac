// The unit recurrence against the CPU's in f64 on the same numbers, with f32 and with bf16 products,
// these composed and by
// phases: rows with tails, biases, a carried state, dropout, the same bits twice, also captured.
//
// Tolerances, of the largest number expected. f32: 512 roundings for results and 4 times that and 16 for
// gradients, as the record of the op allows for as many steps; weights have a deviation of 1 / sqrt(inputs),
// as there, so that more inputs do not make more of an error. bf16: a product rounds both its operands,
// 2^-8 together, and a step is four products in a row; errors pass from step to step without growing, so
// results are allowed 4 x 2^-8 a step. A gradient comes through as many products again, and through what the
// forward got wrong: 8 x 2^-8 a step; what rows are kept as rounds nothing more often, but u, which is one of
// those products. Not with ReLU, whose slope jumps: where u is within its error of 0, du
// is there or not.
#include <doctest/doctest.h>

#include <cmath>
#include <string>
#include <vector>

#include "autograd/tape.h"
#include "ops/core/capture.h"
#include "ops/core/warnings.h"
#include "ops/recurrence/unit_recurrence.h"
#include "tensor/base/error.h"
#include "tests/gpu/support/gpu_test.h"
#include "tests/support/spec_check.h"

using namespace eddy;
using namespace eddy::gpu_test;
using namespace eddy::spec_check;

namespace {

constexpr double kBf16Rounding = 0x1p-8;
constexpr const char *kPlain = "unit_recurrence=plain", *kPhases = "unit_recurrence=phases";

struct Case {
  std::int64_t time, batch, dim, mlp, heads;
  bool gelu, biases, carried;
  double dropout;
};
const Case kCases[] = {
    {1, 1, 32, 32, 1, true, false, false, 0},
    {2, 17, 32, 64, 4, false, true, false, 0},
    {3, 5, 64, 32, 2, true, true, true, 0.3},
    {4, 37, 64, 128, 4, true, false, true, 0.2},
    {3, 40, 96, 192, 6, true, true, true, 0.1},
    {2, 17, 288, 32, 3, true, true, false, 0.2},
    {3, 5, 256, 32, 32, true, false, true, 0.1},
    // Rows longer than a block has in registers, heads longer than a warp has at once.
    {2, 3, 1036, 16, 7, true, true, true, 0.2},
    // Rows and heads that end within a four: of a warp, and of a block.
    {2, 5, 30, 21, 3, true, true, true, 0.2},
    {2, 2, 1034, 16, 11, true, true, true, 0.2},
};
// For phases: heads of 12, of which five are together; rows that end within a tile and a step of a product; ReLU; the
// widest rows; the preset's layer.
const Case kPhaseCases[] = {
    {3, 37, 72, 104, 6, true, true, true, 0.2},
    {2, 17, 40, 72, 2, false, true, false, 0},
    {1, 33, 512, 16, 8, true, false, true, 0},
    {2, 3, 384, 1536, 6, true, true, false, 0.1},
};
const Case kLargeCases[] = {
    {8, 256, 384, 1536, 6, true, false, false, 0.2},
    {4, 1000, 384, 1536, 6, true, false, true, 0},
};

// x, qkv, the twelve weights, the carried key and value; numbers that f32 can hold, in f64.
Tensors inputs_of(const Case& c) {
  const auto normal = [](const Shape& shape, const char* name, double deviation) {
    return raw::cast(raw::cast(sample_normal(shape, name, deviation), Dtype::f32), Dtype::f64);
  };
  const auto gain = [](const Shape& shape, const char* name) {
    return raw::cast(raw::cast(sample_uniform(shape, name, 0.8, 1.2), Dtype::f32), Dtype::f64);
  };
  const auto bias = [&](std::int64_t size, const char* name) {
    return c.biases ? normal({size}, name, 0.3) : Tensor();
  };
  const auto carried = [&](const char* name) {
    return c.carried ? normal({c.batch, c.dim}, name, 1) : Tensor();
  };
  const double narrow = 1 / std::sqrt(static_cast<double>(c.dim)),
               wide = 1 / std::sqrt(static_cast<double>(c.mlp));
  return {normal({c.time, c.batch, c.dim}, "x", 1),
          normal({c.time, c.batch, 3 * c.dim}, "qkv", 1),
          gain({c.dim}, "norm1"),
          bias(c.dim, "norm1_bias"),
          normal({3 * c.dim, c.dim}, "wqkv", narrow),
          bias(3 * c.dim, "wqkv_bias"),
          normal({c.dim, c.dim}, "wo", narrow),
          bias(c.dim, "wo_bias"),
          gain({c.dim}, "norm2"),
          bias(c.dim, "norm2_bias"),
          normal({c.mlp, c.dim}, "up", narrow),
          bias(c.mlp, "up_bias"),
          normal({c.dim, c.mlp}, "down", wide),
          bias(c.dim, "down_bias"),
          carried("key"),
          carried("value")};
}

UnitRecurrenceOptions options_of(const Case& c, Dtype products) {
  UnitRecurrenceOptions options;
  options.heads = c.heads;
  options.gelu = c.gelu;
  options.dropout = c.dropout;
  options.products = products;
  options.gate_key = random_key(3, "gate", 5);
  options.attn_key = random_key(3, "attn", 5);
  options.mlp_key = random_key(3, "mlp", 5);
  return options;
}

UnitRecurrenceResult chain(const Tensors& t, const UnitRecurrenceOptions& options) {
  return unit_recurrence(t[0], t[1],
                         {t[2], t[3], t[4], t[5], t[6], t[7], t[8], t[9], t[10], t[11], t[12], t[13]},
                         options, t[14], t[15]);
}

constexpr std::size_t kResults = 3, kInputs = 14;  // with gradients

// h, key and value, then the gradients.
Tensors run(const Case& c, const Tensors& inputs, const Tensors& dys, Dtype products) {
  Tensors leaves;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    leaves.push_back(inputs[i].defined() ? raw::alias(inputs[i]) : Tensor());
    if (inputs[i].defined() && i < kInputs) require_grad(leaves[i]);
  }
  const UnitRecurrenceResult result = chain(leaves, options_of(c, products));
  backward({result.h, result.key, result.value}, dys);
  Tensors all{detach(result.h), detach(result.key), detach(result.value)};
  for (std::size_t i = 0; i < kInputs; ++i) all.push_back(leaves[i].defined() ? grad(leaves[i]) : Tensor());
  return all;
}

Tensors dys_of(const Case& c) {
  Tensors dys;
  for (const char* name : {"dh", "dkey", "dvalue"})
    dys.push_back(
        raw::cast(raw::cast(sample_normal({c.time, c.batch, c.dim}, name), Dtype::f32), Dtype::f64));
  return dys;
}

std::string text_of(const Case& c, Dtype products) {
  return fmt::format("{} products, {} steps of {} rows, dim {}, mlp {}, heads {}", dtype_name(products),
                     c.time, c.batch, c.dim, c.mlp, c.heads);
}

// Those that run by phases where they are asked to.
bool fits_phases(const Case& c) {
  const std::int64_t head = c.dim / c.heads;
  return c.dim % 8 == 0 && c.mlp % 8 == 0 && c.dim <= 512 && head % 4 == 0 && head <= 64;
}

// Fails unless calls since the last one were taken as asked, or were said not to be.
void expect_taken(const Case& c) {
  const std::vector<std::string> warnings = take_warnings();
  CHECK(warnings.size() == (fits_phases(c) ? 0 : 1));
  for (const std::string& warning : warnings)
    CHECK_MESSAGE(warning.starts_with(fmt::format(
                      "unit_recurrence does not run by phases: dim {}, mlp {}, heads of {}, products in bf16",
                      c.dim, c.mlp, c.dim / c.heads)),
                  warning);
}

void check(const Case& c, Dtype products) {
  const Tensors inputs = inputs_of(c), dys = dys_of(c);
  const Tensors want = run(c, inputs, dys, Dtype::f32);
  const auto on_gpu = [&] { return to_cpu(run(c, inputs_on_gpu(inputs), inputs_on_gpu(dys), products)); };
  const Tensors got = on_gpu();
  const bool exact = products == Dtype::f32;
  const double unit = exact ? epsilon(Dtype::f32) : kBf16Rounding,
               of_results = exact ? 512 : 4 * static_cast<double>(c.time),
               of_gradients = exact ? 4 * 512 + 16 : 8 * static_cast<double>(c.time);
  const std::size_t compared = exact || c.gelu ? want.size() : kResults;
  for (std::size_t i = 0; i < compared; ++i) {
    expect_none(difference(fmt::format("{}, part {}", text_of(c, products), i), got[i], want[i],
                           i < kResults ? of_results : of_gradients, unit));
  }
  poison_gpu();
  const Tensors again = on_gpu();
  for (std::size_t i = 0; i < want.size(); ++i) {
    expect_none(bit_difference(fmt::format("{}, part {}", text_of(c, products), i), again[i], got[i]));
  }
}

void check_by_phases(const Case& c) {
  set_gpu_kernels(kPhases);  // a new choice gives a new warning
  check(c, Dtype::bf16);
  expect_taken(c);
}

// The inputs with weights that have at most one number in each row and in each column, a power of two: no sum of a
// product has two terms, so none depends on its order.
Tensors with_sparse_weights(const Case& c, Tensors inputs) {
  const auto sparse = [](std::int64_t above, std::int64_t rows, std::int64_t columns, std::int64_t step) {
    std::vector<double> values(static_cast<std::size_t>((above + rows) * columns));
    const std::int64_t count = std::min(rows, columns), apart = rows / count;
    for (std::int64_t i = 0; i < count; ++i) {
      const std::int64_t row = above + apart * i + i % apart, column = step * i % columns;
      values[static_cast<std::size_t>(row * columns + column)] = i % 5 == 0 ? -0.5 : 1;
    }
    return Tensor::from(values, {above + rows, columns});
  };
  inputs[4] = sparse(c.dim, 2 * c.dim, c.dim, 3);  // the rows of q are not read
  inputs[6] = sparse(0, c.dim, c.dim, 7);
  inputs[10] = sparse(0, c.mlp, c.dim, 11);
  inputs[12] = sparse(0, c.dim, c.mlp, 13);
  return inputs;
}

bool same_bits(const Tensors& a, const Tensors& b) {
  for (std::size_t i = 0; i < a.size(); ++i)
    if (!bit_difference("", a[i], b[i]).empty()) return false;
  return true;
}

}  // namespace

TEST_SUITE("device") {
  TEST_CASE("the unit recurrence equals the CPU's in f64 and repeats its bits") {
    for (const Case& c : kCases) check(c, Dtype::f32);
    if (!kEmulated)
      for (const Case& c : kLargeCases) check(c, Dtype::f32);
  }

  TEST_CASE("the unit recurrence with products in bf16 equals the CPU's in f64 within their rounding") {
    set_gpu_kernels(kPlain);
    for (const Case& c : kCases) check(c, Dtype::bf16);
    if (!kEmulated)
      for (const Case& c : kLargeCases) check(c, Dtype::bf16);
  }

  TEST_CASE("the unit recurrence by phases equals the CPU's in f64 within the rounding of bf16") {
    for (const Case& c : kCases) check_by_phases(c);
    for (const Case& c : kPhaseCases) {
      CHECK(fits_phases(c));
      check_by_phases(c);
    }
    if (!kEmulated)
      for (const Case& c : kLargeCases) check_by_phases(c);
  }

  TEST_CASE("the unit recurrence by phases has the composed one's bits where no sum depends on its order") {
    for (Case c : {kCases[2], kCases[3], kPhaseCases[1]}) {
      c.mlp = 2 * c.dim;
      c.biases = false;  // a product may round before it adds one
      const Tensors inputs = inputs_on_gpu(with_sparse_weights(c, inputs_of(c))),
                    dys = inputs_on_gpu(dys_of(c));
      set_gpu_kernels(kPlain);
      const Tensors want = to_cpu(run(c, inputs, dys, Dtype::bf16));
      set_gpu_kernels(kPhases);
      const Tensors got = to_cpu(run(c, inputs, dys, Dtype::bf16));
      for (std::size_t i = 0; i < want.size(); ++i)
        expect_none(bit_difference(fmt::format("{}, part {}", text_of(c, Dtype::bf16), i), got[i], want[i]));
      expect_taken(c);
    }
  }

  TEST_CASE("a row of the unit recurrence by phases has the same bits in every batch") {
    set_gpu_kernels(kPhases);
    Case whole = kPhaseCases[0];
    whole.dropout = 0;  // whose masks depend on the row's number
    const Tensors inputs = inputs_on_gpu(inputs_of(whole)), dys = inputs_on_gpu(dys_of(whole));
    const Tensors all = run(whole, inputs, dys, Dtype::bf16);
    for (const auto& span : {std::pair{std::int64_t{0}, std::int64_t{1}}, {5, 16}, {20, 17}}) {
      const std::int64_t first = span.first, rows = span.second;
      Case part = whole;
      part.batch = rows;
      const auto cut = [&](const Tensor& x, int axis) {
        return raw::contiguous(raw::narrow(x, axis, first, rows));
      };
      Tensors of_part = inputs, dys_of_part;
      for (const std::size_t i : {0u, 1u}) of_part[i] = cut(inputs[i], 1);
      for (const std::size_t i : {14u, 15u}) of_part[i] = cut(inputs[i], 0);
      for (const Tensor& dy : dys) dys_of_part.push_back(cut(dy, 1));
      const Tensors got = run(part, of_part, dys_of_part, Dtype::bf16);
      for (std::size_t i = 0; i < kResults + 2; ++i)  // the results, dx and dqkv
        expect_none(bit_difference(fmt::format("rows {} to {}, part {}", first, first + rows, i),
                                   to_cpu(got[i]), to_cpu(cut(all[i], 1))));
    }
    expect_taken(whole);
  }

  TEST_CASE("the unit recurrence reads operands at any address") {
    for (const char* kernels : {kPlain, kPhases})
      for (const Case& c : {kCases[4], kCases[7]}) {
        set_gpu_kernels(kernels);
        const Tensors inputs = inputs_on_gpu(inputs_of(c)), dys = inputs_on_gpu(dys_of(c));
        for (const Dtype products : {Dtype::f32, Dtype::bf16}) {
          const Tensors want = to_cpu(run(c, inputs, dys, products));
          CHECK(same_bits(to_cpu(run(c, at_odd_addresses(inputs), at_odd_addresses(dys), products)), want));
        }
      }
  }

  TEST_CASE("the unit recurrence keeps what products alone read as bf16 beside bf16 products") {
    const Case c = kCases[3];
    const Tensors inputs = inputs_on_gpu(inputs_of(c));
    std::int64_t bytes[2];
    for (const Dtype products : {Dtype::f32, Dtype::bf16}) {
      Tensors leaves = inputs;
      for (const std::size_t i : {0u, 1u}) leaves[i] = require_grad(raw::alias(inputs[i]));
      const std::int64_t before = graph_stats().saved_bytes;
      const UnitRecurrenceResult result = chain(leaves, options_of(c, products));
      bytes[products == Dtype::bf16 ? 1 : 0] = graph_stats().saved_bytes - before;
    }
    // o, a1 and a2 of the layer's width, and u.
    CHECK(bytes[0] - bytes[1] == 2 * c.time * c.batch * (3 * c.dim + c.mlp));
  }

  TEST_CASE("a captured unit recurrence replays with the bits of the call") {
    for (const char* kernels : {kPlain, kPhases}) {
      set_gpu_kernels(kernels);
      const Case c = kCases[2];
      const Tensors inputs = inputs_on_gpu(inputs_of(c));
      const NoGrad no_grad;
      const UnitRecurrenceOptions options = options_of(c, Dtype::bf16);
      const Tensor want = to_cpu(chain(inputs, options).h);
      static_cast<void>(chain(inputs, options));  // what is captured has run twice before
      const Tensor to = Tensor::empty(want.shape(), Dtype::f32, gpu());
      const auto work = capture(gpu(), [&] { raw::copy_into(to, chain(inputs, options).h); });
      for (int replay = 0; replay < 3; ++replay) {
        raw::fill(to, 0);
        work->replay();
        expect_none(bit_difference("h", to_cpu(to), want));
      }
    }
  }
}
