// Gradients that several uses of a parameter add to on the GPU: partial tables of attention, sums of blocks of
// rows, and rows that wait for each other.
#include <doctest/doctest.h>

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "autograd/tape.h"
#include "ops/attention/attention.h"
#include "ops/norm/layer_norm.h"
#include "ops/pointwise/pointwise.h"
#include "ops/pointwise/pointwise_functors.h"
#include "ops/pointwise/where.h"
#include "ops/product/linear.h"
#include "ops/reduce/partial_sums.h"
#include "ops/reduce/reduce.h"
#include "tensor/base/error.h"
#include "tests/gpu/support/gpu_test.h"
#include "tests/support/spec_check.h"

using namespace eddy;
using namespace eddy::detail;
using namespace eddy::gpu_test;
using namespace eddy::spec_check;

namespace {

constexpr int kGelu = pointwise::IndexOf<pointwise::Gelu, pointwise::UnaryOps>::value;

// A tensor of normal numbers, rounded to `dtype`: in f64 on the CPU, else as it is.
Tensor normal(const Shape& shape, const std::string& name, Dtype dtype, Device device) {
  const Tensor rounded = raw::cast(sample_normal(shape, name.c_str()), dtype);
  return device == kCpu ? raw::cast(rounded, Dtype::f64) : raw::to_device(rounded, device);
}

std::vector<float> numbers_of(const Tensor& x) {
  return raw::contiguous(raw::cast(to_cpu(x), Dtype::f32)).to_vector<float>();
}

void expect_near(const std::string& name, const Tensor& got, const Tensor& want, double roundings,
                 double eps) {
  const std::string text = difference(name, to_cpu(got), want, roundings, eps);
  CHECK_MESSAGE(text.empty(), text);
}

// The gradients of a bias and of positions that all calls of `calls` share, {batch, queries, keys} each.
struct Call {
  std::int64_t batch, queries, keys;
};
Tensors table_gradients(const std::vector<Call>& calls, Dtype dtype, Device device) {
  constexpr std::int64_t kHeads = 3, kHeadSize = 32, kDistances = 75;
  const Tensor bias = require_grad(normal({kHeads, kDistances}, "bias", Dtype::f32, device)),
               positions = require_grad(normal({kDistances, kHeadSize}, "positions", Dtype::f32, device));
  std::vector<Tensor> results, cotangents;
  for (const auto& [batch, queries, keys] : calls) {
    const std::string name = "call " + std::to_string(results.size());
    const auto operand = [&](const char* part, std::int64_t rows) {
      return normal({batch, rows, kHeads, kHeadSize}, name + part, dtype, device);
    };
    AttentionOptions options;
    options.causal = true;
    options.bias = bias;
    options.positions = positions;
    results.push_back(attention_bthd(operand("q", queries), operand("k", keys), operand("v", keys), options));
    cotangents.push_back(operand("dy", queries));
  }
  backward(results, cotangents);
  return to_cpu({grad(bias), grad(positions)});
}

// The gradients of the weight and the bias of `uses` norms, and of `uses` linear layers over `rows` rows; with
// `one` a single tensor is both weight and bias of the norm.
Tensors gradients_of_uses(int uses, std::int64_t rows, bool one, Device device) {
  constexpr std::int64_t kWidth = 24;
  const auto parameter = [&](const Shape& shape, const char* name) {
    return require_grad(normal(shape, name, Dtype::f32, device));
  };
  const Tensor gain = parameter({kWidth}, "gain"), shift = one ? gain : parameter({kWidth}, "shift"),
               weight = parameter({kWidth, kWidth}, "weight"), bias = parameter({kWidth}, "bias");
  std::vector<Tensor> results, cotangents;
  for (int i = 0; i < uses; ++i) {
    const std::string name = "use " + std::to_string(i);
    // Other numbers of rows between them, so that chunks are left before they are full.
    const Shape shape{i % 7 == 3 ? rows + 200 : rows, kWidth};
    results.push_back(layer_norm(linear(normal(shape, name, Dtype::f32, device), weight, bias), gain, shift));
    cotangents.push_back(normal(shape, name + " dy", Dtype::f32, device));
  }
  backward(results, cotangents);
  return to_cpu({grad(gain), grad(shift), grad(weight), grad(bias)});
}

}  // namespace

TEST_SUITE("device") {
  TEST_CASE("calls of attention that share tables add to one gradient whatever their sizes") {
    const std::vector<Call> calls[] = {
        {{2, 40, 75}, {2, 40, 75}, {2, 9, 20}},             // the same, then fewer distances
        {{1, 5, 7}, {2, 33, 70}, {30, 2, 3}, {2, 33, 75}},  // more distances, other runs of sequences
        {{0, 5, 5}, {2, 5, 5}, {2, 0, 5}},                  // nothing to mix
        {{0, 5, 5}},
    };
    for (const std::vector<Call>& some : calls)
      for (const bool anomaly : {false, true}) {
        const auto on_gpu = [&](Dtype dtype) {
          std::optional<AnomalyMode> mode;
          if (anomaly) mode.emplace();
          return table_gradients(some, dtype, gpu());
        };
        const Tensors got = on_gpu(Dtype::f32), again = on_gpu(Dtype::f32), bf16 = on_gpu(Dtype::bf16);
        const Tensors want = table_gradients(some, Dtype::f32, kCpu),
                      of_bf16 = table_gradients(some, Dtype::bf16, kCpu);
        for (std::size_t i = 0; i < 2; ++i) {
          const std::string name = i == 0 ? "dbias" : "dpositions";
          expect_near(name, got[i], want[i], 272, epsilon(Dtype::f32));
          expect_near(name + " in bf16", bf16[i], of_bf16[i], 8, 0x1p-8);
          CHECK(bit_difference(name, again[i], got[i]).empty());
        }
      }
  }

  TEST_CASE("one tensor as bias and as positions gets the sum of both gradients") {
    constexpr std::int64_t kSize = 6;  // heads, distances and head_size
    const auto gradient = [&](Device device) {
      const auto operand = [&](const char* name) {
        return normal({2, kSize, kSize, kSize}, name, Dtype::f32, device);
      };
      const Tensor table = require_grad(normal({kSize, kSize}, "table", Dtype::f32, device));
      AttentionOptions options;
      options.causal = true;
      options.bias = options.positions = table;
      for (int use = 0; use < 2; ++use)
        backward(attention_bthd(operand("q"), operand("k"), operand("v"), options), operand("dy"));
      return to_cpu(grad(table));
    };
    expect_near("dtable", gradient(gpu()), gradient(kCpu), 272, epsilon(Dtype::f32));
  }

  TEST_CASE("tables get gradients in storage with gaps, and tables without entries get none") {
    const auto gradients = [&](std::int64_t keys, std::int64_t distances, Device device) {
      const auto operand = [&](const char* name, std::int64_t rows) {
        return normal({2, rows, 3, 8}, name, Dtype::f32, device);
      };
      const Tensor bias = require_grad(normal({3, distances}, "bias", Dtype::f32, device)),
                   positions = require_grad(normal({distances, 8}, "positions", Dtype::f32, device));
      for (const Tensor& table : {bias, positions}) {
        const Tensor wider = Tensor::zeros(table.shape().with(-1, table.dim(1) + 5), table.dtype(), device);
        set_grad_storage(table, raw::narrow(wider, 1, 2, table.dim(1)));
      }
      AttentionOptions options;
      options.causal = true;
      options.bias = bias;
      options.positions = positions;
      for (int use = 0; use < 2; ++use)
        backward(attention_bthd(operand("q", 6), operand("k", keys), operand("v", keys), options),
                 operand("dy", 6));
      return to_cpu({raw::copy(grad(bias)), raw::copy(grad(positions))});
    };
    for (const auto& [keys, distances] : {std::pair<std::int64_t, std::int64_t>{9, 9}, {0, 4}, {0, 0}}) {
      const Tensors got = gradients(keys, distances, gpu()), want = gradients(keys, distances, kCpu);
      for (std::size_t i = 0; i < want.size(); ++i)
        expect_near("gradient " + std::to_string(i), got[i], want[i], 272, epsilon(Dtype::f32));
    }
  }

  TEST_CASE("a bias gets the sums that the norm behind its layer makes, unless something else is added") {
    for (const Dtype dtype : {Dtype::f32, Dtype::bf16})
      for (const std::int64_t width : {24, 27})
        for (const char* kernels : {"products=fused", "plain"})
          for (const char* more : {"nothing", "older", "newer"}) {
            set_gpu_kernels(kernels);
            CAPTURE(width);
            CAPTURE(kernels);
            CAPTURE(more);
            const auto gradients = [&](Device device) {
              const auto operand = [&](const char* name) {
                return normal({520, width}, name, dtype, device);
              };
              const auto parameter = [&](const Shape& shape, const char* name) {
                return require_grad(normal(shape, name, Dtype::f32, device));
              };
              const Tensor bias = parameter({width}, "bias"), x = require_grad(operand("x"));
              const Tensor z =
                  linear(operand("mixed"), parameter({width, width}, "weight"), bias, {.residual = x});
              Tensor other;
              if (more == std::string("older")) other = z * 0.5;
              const SumAndNorm y =
                  add_layer_norm(z, linear(operand("more"), parameter({width, width}, "w"), bias),
                                 parameter({width}, "gain"));
              const Tensor norm = layer_norm(z, parameter({width}, "gain"));
              if (more == std::string("newer")) other = z * 0.5;
              std::vector<Tensor> results{y.sum, y.norm, norm},
                  dys{operand("dsum"), operand("dnorm"), operand("dnorm of z")};
              if (other.defined()) results.push_back(other), dys.push_back(operand("dy"));
              backward(results, dys);
              return to_cpu({grad(bias), grad(x)});
            };
            const Tensors got = gradients(gpu()), want = gradients(kCpu);
            for (std::size_t i = 0; i < want.size(); ++i)
              expect_near(i == 0 ? "dbias" : "dx", got[i], want[i], dtype == Dtype::bf16 ? 16 : 272,
                          dtype == Dtype::bf16 ? 0x1p-8 : epsilon(Dtype::f32));
          }
    set_gpu_kernels("plain");
  }

  TEST_CASE("a bias in bf16 gets the sum over many rows, rounded once") {
    for (const bool needs_weight : {false, true}) {
      const auto gradient = [&](Device device) {
        const Tensor x = normal({130, 16}, "x", Dtype::bf16, device),
                     dy = normal({130, 24}, "dy", Dtype::bf16, device),
                     weight = normal({24, 16}, "weight", Dtype::bf16, device),
                     bias = require_grad(normal({24}, "bias", Dtype::bf16, device));
        backward(linear(x, needs_weight ? require_grad(weight) : weight, bias), dy);
        return to_cpu(grad(bias));
      };
      expect_near("dbias", gradient(gpu()), gradient(kCpu), 8, 0x1p-8);
    }
  }

  TEST_CASE("gradients that many uses add to are those of the CPU") {
    for (const int uses : {1, 2, 17, 40})
      for (const std::int64_t rows :
           {50, 130, 400, 520})  // of the last two norms sum the gradients of biases
        for (const bool one : {false, true}) {
          if (rows > 130 && (one || uses == 1)) continue;
          const Tensors got = gradients_of_uses(uses, rows, one, gpu()),
                        want = gradients_of_uses(uses, rows, one, kCpu);
          for (std::size_t i = 0; i < want.size(); ++i)
            expect_near("gradient " + std::to_string(i), got[i], want[i], 272, epsilon(Dtype::f32));
        }
  }

  TEST_CASE(
      "the sums of blocks of rows are those of the CPU for any width and alignment, with and without a mask") {
    for (const Dtype dtype : {Dtype::f32, Dtype::bf16})
      for (const std::int64_t rows : {1, 64, 130})
        for (const std::int64_t width : {1, 7, 8, 64, 129, 300})
          for (const std::int64_t skipped : {0, 1})  // elements into its memory
            for (const bool masked : {false, true}) {
              CAPTURE(rows);
              CAPTURE(width);
              const auto operand = [&](const char* stream, Device device) {
                const Tensor numbers = normal({skipped + rows * width}, stream, dtype, device);
                return raw::reshape(raw::narrow(numbers, 0, skipped, rows * width), {rows, width});
              };
              const Tensor x = operand("x", gpu()),
                           sums = Tensor::empty({summed_blocks(rows), width}, Dtype::f32, gpu());
              const Tensor y = masked ? operand("y", gpu()) : Tensor(),
                           out = masked ? Tensor::empty({rows, width}, dtype, gpu()) : Tensor();
              sum_row_blocks({x, sums, y, out});
              const Tensor want_x = raw::cast(operand("x", kCpu), Dtype::f64),
                           of_y = raw::cast(operand("y", kCpu), Dtype::f64);
              const Tensor want =
                  masked ? raw::copy(where(of_y > 0.0, want_x, Tensor::zeros({}, Dtype::f64))) : want_x;
              if (masked) expect_near("masked", to_cpu(out), want, 0, epsilon(Dtype::f32));
              for (std::int64_t b = 0; b < summed_blocks(rows); ++b) {
                const std::int64_t first = b * kSummedRows, count = std::min(kSummedRows, rows - first);
                expect_near("sums", raw::narrow(sums, 0, b, 1),
                            sum_to(raw::narrow(want, 0, first, count), {1, width}), 64, epsilon(Dtype::f32));
              }
              if (masked && dtype == Dtype::bf16) {  // GELU, beside its gradient and the sums of that
                const Tensor dz = Tensor::empty({rows, width}, dtype, gpu()),
                             want_dz = Tensor::empty({rows, width}, dtype, gpu()),
                             want_sums = Tensor::empty(sums.shape(), Dtype::f32, gpu());
                unary_backward_slot(
                    gpu(), {kGelu, dtype, rows * width, y.raw_data(), x.raw_data(), want_dz.raw_data()});
                sum_row_blocks({want_dz, want_sums});
                sum_row_blocks({x, sums, y, dz, true});
                CHECK(numbers_of(dz) == numbers_of(want_dz));
                CHECK(numbers_of(sums) == numbers_of(want_sums));
              }
              if (masked) {  // in place
                sum_row_blocks({x, sums, y, x});
                expect_near("in place", to_cpu(x), want, 0, epsilon(Dtype::f32));
              }
            }
  }

  TEST_CASE("linear with GELU has the bits of gelu of linear and so do its gradients") {
    for (const Dtype dtype : {Dtype::f32, Dtype::bf16})
      for (const std::int64_t rows : {5, 130})
        for (const bool has_bias : {true, false}) {
          CAPTURE(rows);
          Tensors results[2];
          for (const bool fused : {false, true}) {
            const Tensor x = require_grad(normal({rows, 24}, "x", dtype, gpu())),
                         weight = require_grad(normal({40, 24}, "weight", Dtype::f32, gpu())),
                         bias = has_bias ? require_grad(normal({40}, "bias", Dtype::f32, gpu())) : Tensor();
            const Tensor y = fused ? linear(x, weight, bias, {.gelu = true}) : gelu(linear(x, weight, bias));
            backward(y, normal({rows, 40}, "dy", dtype, gpu()));
            results[fused] = {y, grad(x), grad(weight)};
            if (has_bias) results[fused].push_back(grad(bias));
          }
          for (std::size_t i = 0; i < results[0].size(); ++i)
            CHECK(numbers_of(results[0][i]) == numbers_of(results[1][i]));
        }
    CHECK_THROWS_AS(linear(Tensor::zeros({2, 3}), Tensor::zeros({4, 3}), {}, {.relu = true, .gelu = true}),
                    ValueError);
  }
}
