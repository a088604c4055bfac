// What the samples of the ops do not reach on a GPU: rows longer than a warp takes, many equal ids, ids and
// targets out of range, tensors that are not aligned, and tensors large enough for several passes.
#include <doctest/doctest.h>

#include <cmath>
#include <string>
#include <vector>

#include "autograd/tape.h"
#include "ops/index/gather.h"
#include "ops/loss/cross_entropy.h"
#include "ops/loss/linear_cross_entropy.h"
#include "ops/memory/memory_search.h"
#include "ops/norm/layer_norm.h"
#include "ops/norm/rms_norm.h"
#include "ops/optimizer/optimizer.h"
#include "ops/pointwise/pointwise.h"
#include "ops/pointwise/where.h"
#include "ops/recurrence/gates.h"
#include "ops/recurrence/lstm_cell.h"
#include "ops/reduce/reduce.h"
#include "ops/reduce/softmax.h"
#include "tensor/random/philox.h"
#include "tests/gpu/support/gpu_test.h"
#include "tests/support/spec_check.h"

using namespace eddy;
using namespace eddy::detail;
using namespace eddy::gpu_test;
using namespace eddy::spec_check;

namespace {

Tensor f32(const Tensor& x) {
  return raw::cast(x, Dtype::f32);
}

// Runs op(inputs) with gradients on both devices, f64 on the CPU, and compares with `roundings`.
template <class Op>
void compare_at_edges(const std::string& name, const Tensors& inputs, double roundings, Op&& op) {
  OpSpec spec;
  spec.name = name;
  spec.run = [&](const Tensors& x) { return Tensors{op(x)}; };
  const Outcome want = evaluate(spec, inputs);
  EvaluateOptions options;
  for (const Tensor& dy : cotangents(want.results)) options.dys.push_back(to_gpu(f32(dy)));
  const Outcome got = evaluate(spec, inputs_on_gpu(inputs), options);
  const double eps = epsilon(Dtype::f32);
  std::string text = difference(name, to_cpu(got.results[0]), want.results[0], roundings, eps);
  CHECK_MESSAGE(text.empty(), text);
  text = gradient_difference(name, to_cpu(got.gradients), want.gradients, 4 * roundings + 16, eps);
  CHECK_MESSAGE(text.empty(), text);
}

Tensor normal(const Shape& shape) {
  return sample_normal(shape, "edge");
}

}  // namespace

TEST_SUITE("device") {
  TEST_CASE("rows around the border between a warp and a block agree with the CPU") {
    for (const std::int64_t width : {31, 32, 33, 255, 1023, 1024, 1025, 4099}) {
      const std::string size = " of " + std::to_string(width);
      const Tensor x = normal({5, width});
      compare_at_edges("softmax" + size, {x}, 64, [](const Tensors& t) { return softmax(t[0]); });
      compare_at_edges("log_softmax" + size, {x}, 64, [](const Tensors& t) { return log_softmax(t[0]); });
      compare_at_edges("layer_norm" + size, {x, normal({width}, "w"), normal({width}, "b")}, 128,
                       [](const Tensors& t) { return layer_norm(t[0], t[1], t[2]); });
      compare_at_edges("rms_norm" + size, {x, normal({width}, "w")}, 128,
                       [](const Tensors& t) { return rms_norm(t[0], t[1]); });
      compare_at_edges("max" + size, {x}, 0, [](const Tensors& t) { return max(t[0], 1); });
      compare_at_edges("sum" + size, {x}, 64, [](const Tensors& t) { return sum(t[0], 1); });
      compare_at_edges("cross_entropy" + size, {x, sample_indices({5}, "targets", width)}, 64,
                       [](const Tensors& t) { return cross_entropy(t[0], t[1]); });
    }
  }

  TEST_CASE("sums of every shape of axis agree with the CPU") {
    for (const Shape& shape :
         {Shape{3, 40000}, Shape{2, 5000, 3}, Shape{2, 700, 33}, Shape{1, 130, 1000}, Shape{70000}}) {
      const Tensor x = normal(shape);
      // Up to 40000 terms of either sign: the error of 128 serial sums and a tree, against a sum of some 200.
      compare_at_edges("sum to " + to_string(shape), {x}, 256,
                       [&](const Tensors& t) { return shape.rank() == 1 ? sum(t[0]) : sum(t[0], 1); });
    }
  }

  TEST_CASE("a causal softmax with a mask hides what the CPU hides") {
    const Tensor mask = raw::cast(sample_indices({1, 60, 70}, "mask", 2), Dtype::u8);
    compare_at_edges("causal", {normal({3, 60, 70}), mask}, 64,
                     [](const Tensors& t) { return softmax(t[0], {.causal = true, .mask = t[1]}); });
  }

  TEST_CASE("a softmax within a band and with a bias agrees with the CPU around the border of a block") {
    for (const std::int64_t keys : {70, 1023, 1025}) {
      compare_at_edges("band, " + std::to_string(keys), {normal({2, 9, keys})}, 64, [](const Tensors& t) {
        return softmax(t[0], {.band = {2, 40}});
      });
      const Tensor mask = raw::cast(sample_indices({9, keys}, "mask", 2), Dtype::u8);
      compare_at_edges(
          "bias, " + std::to_string(keys), {normal({2, 9, keys}), normal({9, keys}, "bias"), mask}, 64,
          [](const Tensors& t) { return softmax(t[0], {.causal = true, .mask = t[2], .bias = t[1]}); });
    }
  }

  TEST_CASE("hidden infinities and NaN leave no trace in a softmax") {
    std::vector<float> values = {1, NAN, 2, INFINITY, 3, -INFINITY};
    std::vector<std::uint8_t> allowed = {1, 0, 1, 0, 1, 1};
    const Tensor y = to_cpu(
        softmax(to_gpu(Tensor::from(values, {1, 6})), {.mask = to_gpu(Tensor::from(allowed, {1, 6}))}));
    const std::vector<float> got = y.to_vector<float>();
    const double sum = std::exp(-2.0) + std::exp(-1.0) + 1;
    for (const int hidden : {1, 3, 5}) CHECK(got[static_cast<std::size_t>(hidden)] == 0.0f);
    CHECK(std::abs(static_cast<double>(got[4]) - 1 / sum) <= 1e-6);
    const Tensor none = softmax(to_gpu(Tensor::full({2, 40}, -INFINITY)));
    CHECK(to_cpu(none).to_vector<float>() == std::vector<float>(80, 0.0f));
  }

  TEST_CASE("the gradient of an embedding sums runs of every length around its chunks") {
    // 64 positions are a chunk: runs inside one, over a border, over several, and all positions alike.
    const std::int64_t dim = 37;
    std::vector<std::vector<std::int64_t>> cases = {{}, {}, {}, {}};
    for (int i = 0; i < 64; ++i) cases[0].push_back(i % 5);
    for (int i = 0; i < 500; ++i) cases[1].push_back(i < 300 ? 3 : i % 7);
    for (int i = 0; i < 1000; ++i) cases[2].push_back(6);
    for (int i = 0; i < 4097; ++i)
      cases[3].push_back(
          static_cast<std::int64_t>(random_key(1, "ids", 0).word(static_cast<std::uint64_t>(i)) % 7));
    for (const std::vector<std::int64_t>& ids : cases) {
      const auto count = static_cast<std::int64_t>(ids.size());
      for (const Dtype dtype : {Dtype::i32, Dtype::i64})
        compare_at_edges(
            "embedding of " + std::to_string(count),
            {normal({7, dim}), raw::cast(Tensor::from(ids, {count}), dtype)},
            // A sum of up to 1000 terms in chunks of 64: the error of 64 serial sums and as many chunks.
            16, [](const Tensors& t) { return embedding(t[0], t[1]); });
    }
  }

  TEST_CASE("ids outside the table give NaN forward and nothing backward") {
    const Tensor table = to_gpu(f32(normal({5, 3})));
    require_grad(table);
    const Tensor ids = to_gpu(Tensor::from(std::vector<std::int64_t>{1, 5, -1, 1, 1 << 20}, {5}));
    const Tensor y = embedding(table, ids);
    const std::vector<float> rows = to_cpu(y).to_vector<float>();
    for (const int row : {1, 2, 4}) CHECK(std::isnan(rows[static_cast<std::size_t>(3 * row)]));
    for (const int row : {0, 3}) CHECK(std::isfinite(rows[static_cast<std::size_t>(3 * row)]));
    backward(y, Tensor::full(y.shape(), 1, Dtype::f32, gpu()));
    const std::vector<float> want = {0, 0, 0, 2, 2, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0};
    CHECK(to_cpu(grad(table)).to_vector<float>() == want);
    const Tensor none = embedding(to_gpu(Tensor::zeros({0, 3})), ids);
    for (const float entry : to_cpu(none).to_vector<float>()) CHECK(std::isnan(entry));
    const Tensor x = to_gpu(f32(normal({2, 4})));
    require_grad(x);
    const Tensor picked = gather(x, 1, to_gpu(Tensor::from(std::vector<std::int64_t>{0, 4, -7, 3}, {2, 2})));
    const std::vector<float> entries = to_cpu(picked).to_vector<float>();
    CHECK(std::isnan(entries[1]));
    CHECK(std::isnan(entries[2]));
    backward(picked, Tensor::full({2, 2}, 1, Dtype::f32, gpu()));
    CHECK(to_cpu(grad(x)).to_vector<float>() == std::vector<float>{1, 0, 0, 0, 0, 0, 0, 1});
  }

  TEST_CASE("choices and picks on the GPU move the numbers of every type") {
    const Tensor index = sample_indices({4, 9}, "index", 37);
    const Tensor mask = raw::cast(sample_indices({4, 37}, "mask", 2), Dtype::u8);
    for (const Dtype dtype : {Dtype::f32, Dtype::f64, Dtype::bf16, Dtype::i32, Dtype::i64, Dtype::u8}) {
      const auto results = [&](auto&& put) {
        const Tensor x = put(raw::cast(sample_uniform({4, 37}, "x", 0, 200), dtype)),
                     z = put(raw::cast(sample_uniform({37}, "z", 0, 200), dtype));
        const Tensor whole = put(raw::cast(sample_uniform({4, 37}, "whole", 0, 200), dtype));
        return Tensors{gather(x, 1, put(index)), where(put(mask), x, z), where(put(mask), x, whole)};
      };
      const Tensors got = results(to_gpu), want = results([](const Tensor&t) { return t; });
      for (std::size_t i = 0; i < got.size(); ++i)
        CHECK(raw::cast(to_cpu(got[i]), Dtype::f64).to_vector<double>() ==
              raw::cast(want[i], Dtype::f64).to_vector<double>());
    }
  }

  TEST_CASE("the gradients of a norm's weight and bias are summed from few and many rows on the GPU") {
    // 40 and 2100 blocks of rows: by one launch, and by a sum for each. One tensor for both gets both.
    for (const std::int64_t rows : {40 * 64 - 3, 2100 * 64})
      for (const bool one : {false, true}) {
        const std::int64_t width = rows > 10'000 ? 4 : 70;
        const Tensor x = normal({rows, width}, "x"), dy = normal({rows, width}, "dy"),
                     weight = normal({width}, "w"), bias = one ? weight : normal({width}, "b");
        const auto gradients = [&](bool on_gpu, int uses) {
          const auto put = [&](const Tensor& t) { return on_gpu ? to_gpu(f32(t)) : raw::copy(t); };
          const Tensor input = put(x), w = put(weight), b = one ? w : put(bias);
          require_grad(w);
          require_grad(b);
          for (int i = 0; i < uses; ++i) backward(layer_norm(input, w, b), put(dy));
          return std::vector<Tensor>{to_cpu(grad(w)), to_cpu(grad(b))};
        };
        for (const int uses : {1, 2}) {
          const std::vector<Tensor> want = gradients(false, uses), got = gradients(true, uses);
          for (std::size_t i = 0; i < want.size(); ++i) {
            const std::vector<double> exact = want[i].to_vector<double>();
            const std::vector<float> near = got[i].to_vector<float>();
            for (std::size_t c = 0; c < exact.size(); ++c)
              CHECK(std::fabs(near[c] - exact[c]) <= 2e-5 * std::sqrt(static_cast<double>(rows)) + 1e-5);
          }
        }
      }
  }

  TEST_CASE("a sum and its norm in one pass have the bits of add and of the norm on the GPU") {
    for (const Dtype dtype : {Dtype::f32, Dtype::bf16})
      for (const std::int64_t width : {5, 64, 1500}) {
        const Tensor x = to_gpu(raw::cast(sample_normal({9, width}, "x"), dtype)),
                     delta = to_gpu(raw::cast(sample_normal({9, width}, "delta"), dtype)),
                     weight = to_gpu(f32(sample_normal({width}, "weight")));
        const Tensor sum = x + delta;
        const Tensor gain = dtype == Dtype::f32 ? weight : raw::cast(weight, dtype);
        for (const bool rms : {false, true}) {
          const SumAndNorm got = rms ? add_rms_norm(x, delta, gain) : add_layer_norm(x, delta, gain);
          const Tensor norm = rms ? rms_norm(sum, gain) : layer_norm(sum, gain);
          CHECK(bit_difference("sum", to_cpu(got.sum), to_cpu(sum)).empty());
          CHECK(bit_difference("norm", to_cpu(got.norm), to_cpu(norm)).empty());
        }
      }
  }

  TEST_CASE("a score that is NaN ranks on the GPU as on the CPU in the search of a memory") {
    for (const std::int64_t place : {0, 5, 299}) {
      const Tensor keys = raw::cast(sample_normal({1, 300, 2, 4}, "keys"), Dtype::f32);
      keys.mutable_data<float>()[place * 8] = -NAN;
      const Tensor q = raw::cast(sample_normal({1, 3, 2, 4}, "q"), Dtype::f32);
      for (const MemorySearch search : {MemorySearch::exact, MemorySearch::bucket}) {
        const Tensor want = memory_search(q, keys, keys, 7, search).keys;
        const Tensor got = to_cpu(memory_search(to_gpu(q), to_gpu(keys), to_gpu(keys), 7, search).keys);
        spec_check::expect_none(
            spec_check::difference("keys", got, raw::cast(want, Dtype::f64), 64, 0x1p-23));
      }
    }
  }

  TEST_CASE("a target that is no class makes the loss and its row of the gradient NaN") {
    const Tensor logits = to_gpu(f32(normal({3, 5})));
    require_grad(logits);
    const Tensor loss = cross_entropy(logits, to_gpu(Tensor::from(std::vector<std::int64_t>{2, 5, -1}, {3})));
    CHECK(std::isnan(loss.item()));
    backward(loss);
    const std::vector<float> rows = to_cpu(grad(logits)).to_vector<float>();
    CHECK(std::isnan(rows[5]));
    CHECK(rows[10] == 0.0f);
  }

  TEST_CASE("the loss of a layer with few classes agrees with the CPU whose logits are not padded") {
    for (const char* kernels : {"products=fused", "plain"})
      for (const std::int64_t classes : {1, 64, 65}) {
        set_gpu_kernels(kernels);
        const Tensors inputs{normal({9, 7}), sample_normal({classes, 7}, "w"), sample_normal({classes}, "b"),
                             sample_indices({9}, "targets", classes)};
        compare_at_edges(fmt::format("linear_cross_entropy over {} classes", classes), inputs, 64,
                         [](const Tensors& t) { return linear_cross_entropy(t[0], t[1], t[2], t[3]); });
      }
  }

  TEST_CASE("loss and gradient of rows at once agree with the CPU for rows of every length") {
    // The last two are more than a multiprocessor keeps.
    for (const std::int64_t classes : {1, 31, 32, 1023, 1024, 1025, 4100, 8191, 8196, 20001, 60001, 60004}) {
      // Numbers of bf16, so that both dtypes have the same.
      const Tensor logits = f32(raw::cast(sample_normal({6, classes}, "logits", 3), Dtype::bf16));
      for (std::int64_t i = 1; i < classes; i += 3) logits.mutable_data<float>()[5 * classes + i] = -INFINITY;
      const Tensor targets =
          Tensor::from(std::vector<std::int64_t>{0, classes - 1, -1, classes / 2, classes, 0}, {6});
      const Tensor exact = raw::cast(logits, Dtype::f64), want_losses = Tensor::empty({6}, Dtype::f64, kCpu);
      const std::int64_t known[] = {0, classes - 1, -1, classes / 2, -1, 0};
      cross_entropy_rows_slot(
          kCpu, {Dtype::f64, 6, classes, classes, -1, exact.raw_data(), known, want_losses.raw_data()});
      want_losses.mutable_data<double>()[4] = NAN;
      raw::fill(raw::select(exact, 0, 4), NAN);
      const std::int64_t stride = (classes + 63) / 64 * 64;
      for (const Dtype dtype : {Dtype::f32, Dtype::bf16}) {
        const Tensor x = raw::narrow(Tensor::empty({6, stride}, dtype, gpu()), 1, 0, classes);
        raw::copy_into(x, raw::cast(to_gpu(logits), dtype));
        const Tensor losses = Tensor::empty({6}, Dtype::f32, gpu()), numbers = to_gpu(targets);
        cross_entropy_rows_slot(gpu(), {dtype, 6, classes, stride, -1, x.raw_data(),
                                        numbers.data<std::int64_t>(), losses.raw_data()});
        const std::string name = fmt::format("{} classes of {}", classes, dtype_name(dtype));
        std::string text = difference(name, to_cpu(losses), want_losses, 64, epsilon(Dtype::f32));
        CHECK_MESSAGE(text.empty(), text);
        text = difference(name + ", gradient", to_cpu(raw::contiguous(x)), exact,
                          dtype == Dtype::bf16 ? 1 : 64, dtype == Dtype::bf16 ? 0x1p-8 : epsilon(Dtype::f32));
        CHECK_MESSAGE(text.empty(), text);
      }
    }
  }

  TEST_CASE("operands that are not aligned to 16 bytes give what aligned ones give") {
    const Tensor wide = f32(normal({4099}));
    for (const std::int64_t start : {0, 1, 2, 3, 4}) {
      const auto part = [&](const Tensor& t) { return raw::narrow(t, 0, start, 4093); };
      const Tensor host = part(wide), device = part(to_gpu(wide));
      const Tensor half = part(raw::cast(to_gpu(wide), Dtype::bf16));
      for (const std::string& text :
           {difference("gelu", to_cpu(gelu(device)), gelu(raw::cast(host, Dtype::f64)), 16,
                       epsilon(Dtype::f32)),
            difference("gelu in bf16", to_cpu(gelu(half)), gelu(raw::cast(to_cpu(half), Dtype::f64)), 2,
                       0x1p-8),
            difference("mul", to_cpu(mul(device, device)),
                       mul(raw::cast(host, Dtype::f64), raw::cast(host, Dtype::f64)), 4,
                       epsilon(Dtype::f32))})
        CHECK_MESSAGE(text.empty(), text);
    }
  }

  TEST_CASE(
      "tensors of one layout move as on the CPU whatever their length, type and address, and no byte beside them") {
    for (const Dtype dtype : {Dtype::f32, Dtype::bf16, Dtype::f64, Dtype::i32, Dtype::i64, Dtype::u8})
      for (const std::int64_t count : {0, 1, 7, 8, 16, 19, 4093})
        for (const std::int64_t start : {0, 1, 4, 16}) {
          CAPTURE(dtype_name(dtype));
          CAPTURE(count);
          CAPTURE(start);
          const bool adds = dtype == Dtype::f32 || dtype == Dtype::bf16;
          const Tensor x = raw::cast(sample_uniform({count + 32}, "x", 0, 200), dtype),
                       z = raw::cast(sample_uniform({count + 32}, "z", 0, 200), dtype);
          // Operands begin at `start` and at a multiple of 16 bytes.
          const auto results = [&](const Tensor& a, const Tensor& b) {
            const auto part = [&](const Tensor& t, std::int64_t from) {
              return raw::narrow(t, 0, from, count);
            };
            const Tensor copied = raw::copy(a), filled = raw::copy(a), sum = raw::copy(a);
            raw::copy_into(part(copied, start), part(b, 16));
            raw::fill(part(filled, start), 3);
            Tensors all{copied, filled};
            if (!adds) return all;
            raw::add_into(part(sum, start), part(b, 16));
            all.push_back(sum);
            all.push_back(mul(part(a, start), part(b, 16)));
            all.push_back(raw::cast(part(a, start), dtype == Dtype::f32 ? Dtype::bf16 : Dtype::f32));
            return all;
          };
          const Tensors got = results(to_gpu(x), to_gpu(z)), want = results(x, z);
          for (std::size_t i = 0; i < got.size(); ++i)
            CHECK(raw::cast(to_cpu(got[i]), Dtype::f64).to_vector<double>() ==
                  raw::cast(want[i], Dtype::f64).to_vector<double>());
        }
  }

  TEST_CASE("gates and LSTM cells go by fours or one by one, in every tile and block of rows") {
    for (const std::int64_t width : {131, 260})  // of the second whole fours where rows are aligned
      for (const bool aligned : {true, false})
        for (const char* op : {"fixed", "lstm", "cell"}) {
          CAPTURE(op);
          const std::int64_t rows = 67;
          const auto of = [&](const char* name, const Shape& shape) {
            return raw::cast(raw::cast(sample_normal(shape, name), Dtype::f32), Dtype::f64);
          };
          const Shape shape{rows, width}, vector{width};
          Tensors inputs{of("c", shape), of("z", shape), of("bias_f", vector)};
          if (op == std::string("lstm"))
            inputs = {of("c", shape), of("z", shape),       of("i", shape),
                      of("f", shape), of("bias_i", vector), of("bias_f", vector)};
          if (op == std::string("cell")) inputs = {of("gates", {rows, 4 * width}), of("c", shape)};
          const auto gradients = [&](bool on_gpu) {
            Tensors x, dys{of("dy", shape), of("dc", shape)};
            for (const Tensor& input : inputs) x.push_back(on_gpu ? to_gpu(f32(input)) : raw::copy(input));
            if (on_gpu) dys = {to_gpu(f32(dys[0])), to_gpu(f32(dys[1]))};
            if (on_gpu && !aligned) x = at_odd_addresses(x), dys = at_odd_addresses(dys);
            for (const Tensor& input : x) require_grad(input);
            Tensors y;
            if (x.size() == 2) {
              const LstmCell cell = lstm_cell(x[0], x[1]);
              y = {cell.h, cell.c};
            } else {
              y = {x.size() == 6 ? lstm_gate(x[0], x[1], x[2], x[3], x[4], x[5], true)
                                 : fixed_gate(x[0], x[1], x[2], false)};
              dys.pop_back();
            }
            backward(y, dys);
            Tensors all;
            for (const Tensor& result : y) all.push_back(to_cpu(detach(result)));
            for (const Tensor& input : x) all.push_back(to_cpu(grad(input)));
            return all;
          };
          const Tensors got = gradients(true), want = gradients(false);
          for (std::size_t i = 0; i < want.size(); ++i) {
            const std::string text = difference(std::to_string(i), got[i], want[i], 272, epsilon(Dtype::f32));
            CHECK_MESSAGE(text.empty(), text);
          }
        }
  }

  TEST_CASE("rows of any length, padding and alignment move as on the CPU, and the padding stays") {
    for (const Dtype dtype : {Dtype::f32, Dtype::bf16})
      for (const std::int64_t width : {1, 7, 8, 9, 24, 65})
        for (const std::int64_t start : {0, 1}) {
          CAPTURE(width);
          CAPTURE(start);
          const Tensor x = raw::cast(normal({5, 72}), dtype), z = raw::cast(normal({5, 1}), dtype);
          const auto results = [&](const Tensor& whole, const Tensor& column) {
            const Tensor rows = raw::narrow(raw::copy(whole), 1, start, width);
            raw::add_into(rows, raw::narrow(whole, 1, 0, width));
            const Tensor padded = raw::copy(whole);
            raw::copy_into(raw::narrow(padded, 1, 0, width), rows);
            raw::fill(raw::narrow(padded, 1, 71, 1), 3);
            const Tensor other =
                dtype == Dtype::f32 ? raw::cast(rows, Dtype::bf16) : raw::cast(rows, Dtype::f32);
            return Tensors{rows, padded, other, raw::copy(raw::expand(column, {5, width})),
                           add(rows, column)};
          };
          const Tensors got = results(to_gpu(x), to_gpu(z)), want = results(x, z);
          for (std::size_t i = 0; i < got.size(); ++i)
            CHECK(f32(to_cpu(got[i])).to_vector<float>() == raw::copy(f32(want[i])).to_vector<float>());
        }
  }

  TEST_CASE("binary ops broadcast every axis of a tensor of six") {
    const Tensor a = normal({2, 3, 1, 4, 1, 8}, "a"), b = normal({3, 5, 1, 2, 8}, "b");
    compare_at_edges("mul", {a, b}, 32, [](const Tensors& t) { return mul(t[0], t[1]); });
    compare_at_edges(
        "div",
        {a,
         raw::transpose(raw::copy(raw::transpose(sample_uniform({3, 5, 1, 2, 8}, "c", 1, 2), 0, 4)), 0, 4)},
        32, [](const Tensors& t) { return div(t[0], t[1]); });
    const Tensor mask = raw::cast(sample_indices({2, 1, 5, 1, 2, 1}, "mask", 2), Dtype::u8);
    compare_at_edges("where", {mask, a, b}, 0, [](const Tensors& t) { return where(t[0], t[1], t[2]); });
  }

  TEST_CASE(
      "a step of the optimizer agrees with the CPU's at addresses that are not aligned and across segments") {
    // Segments that begin and end within four neighbours; more than one chunk of a block, and an odd tail.
    const std::int64_t n = 9001;
    const std::vector<detail::DecaySegment> segments{
        {1, 6, 50}, {6, 7, 25}, {4095, 8193, 10}, {9000, 9001, 30}};
    const auto stepped = [&](Device device, std::int64_t place) {
      Tensors arenas;
      for (const char* name : {"p", "g", "m", "v"}) {
        const Tensor x = raw::narrow(Tensor::zeros({n + 4}, Dtype::f32, device), 0, place, n);
        raw::copy_into(x, raw::to_device(f32(sample_uniform({n}, name, 0.1, 1)), device));
        arenas.push_back(x);
      }
      detail::adamw_step(arenas[0], arenas[1], arenas[2], arenas[3], segments, {0.9, 0.999, 1e-8},
                         {0.01, 3, 0.5}, l2_norm(arenas[1]));
      std::vector<float> numbers;
      for (const std::size_t arena : {0, 2, 3})
        for (const float value : to_cpu(arenas[arena]).to_vector<float>()) numbers.push_back(value);
      return numbers;
    };
    const std::vector<float> want = stepped(kCpu, 0);
    for (const std::int64_t place : {0, 1, 4}) {
      const std::vector<float> got = stepped(gpu(), place);
      double worst = 0;
      for (std::size_t i = 0; i < want.size(); ++i) {
        const double error = std::abs(double{got[i]} - double{want[i]});
        if (!(error <= worst)) worst = error;
      }
      // Some roundings of numbers below 1.
      CHECK_MESSAGE(worst <= 8 * 0x1p-24, worst);
    }
  }
}
