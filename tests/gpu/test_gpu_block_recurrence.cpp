// The block recurrences as one kernel: the op against its equations in f64 on the CPU, and models against the composed
// ones with the same masks.
//
// Tolerances: products round both their operands, 2^-8 together, and a block or window is four products in a row: 4 x
// 2^-8 for each of them for results, 8 x 2^-8 for gradients. A model in bf16 rounds its activations too: it may be off
// from f64 by four times what the composed one is off, or, where that is little, by four roundings.
#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <string>

#include "autograd/tape.h"
#include "models/eddy/registry.h"
#include "ops/core/capture.h"
#include "ops/core/warnings.h"
#include "ops/ops.h"
#include "ops/recurrence/block_recurrence.h"
#include "tensor/base/error.h"
#include "tests/gpu/support/gpu_test.h"
#include "tests/support/spec_check.h"

using namespace eddy;
using namespace eddy::gpu_test;
using namespace eddy::spec_check;

namespace {

struct Case {
  std::int64_t batch, time, block, dim, heads, mlp, layers;
  const char *activation, *readout;
  bool bias;
  double dropout;
  std::int64_t tail = 0;  // positions read where the readout is "tail"
  const char* accumulate = "output";
};
const Case kCases[] = {
    {3, 13, 5, 32, 4, 128, 2, "relu", "all", false, 0},   // a short last block
    {2, 12, 4, 64, 4, 96, 1, "gelu", "last", true, 0},    // whole blocks
    {2, 3, 7, 32, 2, 64, 2, "gelu", "all", false, 0},     // one short block
    {2, 10, 5, 32, 2, 64, 1, "relu", "all", false, 0},    // two blocks
    {3, 7, 5, 32, 2, 64, 1, "gelu", "all", true, 0},      // two, the last one short
    {1, 101, 32, 32, 4, 64, 1, "relu", "all", false, 0},  // more keys than lanes
    {2, 5, 2, 32, 1, 32, 1, "gelu", "all", true, 0},
    {5, 6, 1, 32, 1, 32, 1, "gelu", "all", true, 0},       // blocks of one position
    {2, 7, 5, 96, 8, 32, 1, "gelu", "all", true, 0.2},     // heads of three fours, read by four lanes
    {1, 80, 40, 32, 8, 32, 1, "relu", "all", false, 0.2},  // heads of one four
    {1, 70, 64, 32, 2, 32, 1, "gelu", "all", false, 0.2},  // the longest blocks
    {2, 21, 10, 128, 16, 32, 1, "relu", "all", true, 0},   // heads of 8
    {2, 9, 4, 128, 4, 512, 1, "gelu", "all", true, 0.2},   // weights that shared memory has no room for
    // Masks: of all rows; of a part of the closing window; of a part of the window before it; of one window.
    {3, 13, 5, 32, 4, 128, 2, "relu", "all", true, 0.3},
    {2, 96, 32, 96, 6, 64, 1, "relu", "tail", false, 0.2, 16},
    {2, 9, 4, 32, 4, 64, 1, "gelu", "tail", true, 0.3, 3},
    {3, 5, 7, 32, 2, 64, 1, "gelu", "last", true, 0.3},
};

std::unique_ptr<Model> model_of(const char* name, const Case& c, Dtype dtype, Device device) {
  ModelConfig config;
  config.family = "recurrent_transformer";
  config.model = name;
  config.vocab = 11;
  config.context = c.time;
  config.dim = c.dim;
  config.heads = c.heads;
  config.mlp_dim = c.mlp;
  config.layers = c.layers;
  config.block = c.block;
  config.activation = c.activation;
  config.readout = c.readout;
  config.bias = c.bias;
  config.positions = true;
  config.accumulate = c.accumulate;
  config.init_std = 0.2;
  config.dropout = c.dropout;
  std::unique_ptr<Model> model = make_model(config, dtype, device);
  model->params().initialize(5);
  return model;
}

// Logits and all gradients for one cotangent.
std::map<std::string, Tensor> run(const char* name, const Case& c, Dtype dtype, Device device) {
  const std::unique_ptr<Model> model = model_of(name, c, dtype, device);
  const RandomKey key = random_key(9, "tokens", 0);
  std::vector<std::int64_t> ids;
  for (std::int64_t i = 0; i < c.batch * c.time; ++i)
    ids.push_back(key.word(static_cast<std::uint64_t>(i)) % 11);
  ForwardInput input;
  input.tokens = raw::to_device(Tensor::from(ids, {c.batch, c.time}), device);
  input.tail = c.tail;
  if (c.dropout > 0) input.dropout = {true, 3, 4, nullptr};
  const Tensor logits = model->forward(input).logits;
  model->params().zero_gradients();
  backward(logits,
           raw::to_device(raw::cast(sample_normal(logits.shape(), "dlogits"), logits.dtype()), device));
  std::map<std::string, Tensor> all{{"logits", to_cpu(detach(logits))}};
  for (const Parameter& parameter : model->params().parameters())
    all["d" + parameter.name] = raw::copy(to_cpu(grad(parameter.value)));
  return all;
}

// plain: what the composed model gives in bf16.
void check(const char* model, const std::map<std::string, Tensor>& got,
           const std::map<std::string, Tensor>& plain, const std::map<std::string, Tensor>& want,
           const Case& c) {
  REQUIRE(got.size() == want.size());
  for (const auto& [name, expected] : want) {
    const double allowed = 4 * std::max(1.0, error_in_roundings(plain.at(name), expected, 0x1p-8));
    expect_none(difference(
        fmt::format("{} of {}, {} positions in blocks of {}, dim {}", name, model, c.time, c.block, c.dim),
        got.at(name), expected, allowed, 0x1p-8));
  }
}

bool same_bits(const std::map<std::string, Tensor>& a, const std::map<std::string, Tensor>& b) {
  for (const auto& [name, x] : a)
    if (!bit_difference(name, x, b.at(name)).empty()) return false;
  return true;
}

BlockRecurrenceOptions recurrence_options(std::int64_t heads, std::int64_t sequences, std::int64_t block) {
  BlockRecurrenceOptions options;
  options.chain.products = Dtype::bf16;
  options.sequences = sequences;
  options.block = block;
  options.chain.heads = heads;
  return options;
}

Tensor on_gpu_in_f32(const Tensor& x) {
  return to_gpu(raw::cast(x, Dtype::f32));
}

constexpr std::int64_t kDim = 64, kMlp = 128;

UnitRecurrenceWeights weights_of(const Tensors& t) {
  return {t[1], {}, t[2], {}, t[3], {}, t[4], {}, t[5], {}, t[6], {}};
}

// The inputs of the op, x and the weights without biases, and its cotangent.
struct Given {
  Tensors inputs;
  Tensor dy;
};
Given inputs_of(std::int64_t rows) {
  Given given{{}, on_gpu_in_f32(sample_normal({rows, kDim}, "dy"))};
  for (const Tensor& x :
       {sample_normal({rows, kDim}, "x"), sample_uniform({kDim}, "norm1", 0.8, 1.2),
        sample_normal({3 * kDim, kDim}, "wqkv", 0.125), sample_normal({kDim, kDim}, "wo", 0.125),
        sample_uniform({kDim}, "norm2", 0.8, 1.2), sample_normal({kMlp, kDim}, "up", 0.125),
        sample_normal({kDim, kMlp}, "down", 0.09)})
    given.inputs.push_back(on_gpu_in_f32(x));
  return given;
}

Tensor accumulate(const Tensors& t, const BlockRecurrenceOptions& options) {
  return block_accumulate(t[0], weights_of(t), options);
}
Tensor forget(const Tensors& t, const BlockRecurrenceOptions& options) {
  return block_forget(t[0], weights_of(t), options);
}

// The layer T at every row of windows [sequences, rows, dim], by other ops.
Tensor layer(const Tensors& t, const Tensor& window, const BlockRecurrenceOptions& options) {
  AttentionOptions causal;
  causal.causal = true;
  const Tensor mixed = attention_packed(linear(layer_norm(window, t[1]), t[2]), options.chain.heads, causal);
  const Tensor r = window + linear(mixed, t[3]);
  return r + linear(gelu(linear(layer_norm(r, t[4]), t[5])), t[6]);
}
// The equations of ops/recurrence/block_recurrence.h, a window after another.
Tensor equations(bool accumulates, const Tensors& t, const BlockRecurrenceOptions& options) {
  const std::int64_t rows = t[0].dim(0), of_block = options.sequences * options.block;
  Tensors x, results;
  for (std::int64_t first = 0; first < rows; first += of_block) {
    const std::int64_t count = std::min(of_block, rows - first);
    x.push_back(reshape(narrow(t[0], 0, first, count), {options.sequences, count / options.sequences, kDim}));
  }
  Tensor p = x[0], h = layer(t, x[0], options);
  if (!accumulates) results.push_back(h);
  for (std::size_t i = 1; i < x.size(); ++i) {
    const std::int64_t own = x[i].dim(1);
    const Tensor older = accumulates ? p * 0.5 + h : h,
                 newer = accumulates ? narrow(p, 1, 0, own) * 0.5 + x[i] : x[i],
                 both = layer(t, concat({older, newer}, 1), options);
    p = narrow(both, 1, 0, options.block);
    h = narrow(both, 1, options.block, own);
    results.push_back(accumulates ? p : h);
  }
  if (accumulates) results.push_back(layer(t, h, options));
  for (Tensor& result : results) result = reshape(result, {result.elements() / kDim, kDim});
  return results.size() == 1 ? results[0] : concat(results, 0);
}

// The result, then the gradients of all inputs.
template <class Recurrence>
Tensors run(const Given& given, Recurrence&& recurrence) {
  Tensors leaves;
  for (const Tensor& x : given.inputs) leaves.push_back(require_grad(raw::alias(x)));
  const Tensor y = recurrence(leaves);
  backward(y, given.dy);
  Tensors all{to_cpu(detach(y))};
  for (const Tensor& leaf : leaves) all.push_back(to_cpu(grad(leaf)));
  return all;
}
Tensors run(const Given& given, const BlockRecurrenceOptions& options) {
  return run(given, [&](const Tensors& leaves) { return accumulate(leaves, options); });
}

// The options with dropout, whose masks have so many keys.
BlockRecurrenceOptions dropping(BlockRecurrenceOptions options, double rate, std::uint64_t keys) {
  options.chain.dropout = rate;
  for (std::uint64_t i = 0; i < keys; ++i) options.keys.push_back(random_key(3, "masks", i));
  return options;
}
void check_same(const Tensors& got, const Tensors& want) {
  for (std::size_t i = 0; i < want.size(); ++i)
    expect_none(bit_difference(fmt::format("part {}", i), got[i], want[i]));
}

}  // namespace

TEST_SUITE("device") {
  TEST_CASE("a model on the fused recurrence is as near to f64 as the composed one and repeats its bits") {
    for (const char* model : {"block_accumulate", "block_forget"})
      for (const Case& c : kCases) {
        const auto want = run(model, c, Dtype::f64, kCpu);
        set_gpu_kernels("plain");
        const auto plain = run(model, c, Dtype::bf16, gpu());
        set_gpu_kernels("recurrence=fused");
        const auto got = run(model, c, Dtype::bf16, gpu());
        check(model, got, plain, want, c);
        CHECK(take_warnings().empty());
        CHECK_FALSE(same_bits(plain, got));  // the other kernels were at work
        poison_gpu();
        CHECK(same_bits(run(model, c, Dtype::bf16, gpu()), got));
      }
  }

  TEST_CASE("the fused recurrences equal their equations in f64 within the rounding of their products") {
    struct Sizes {
      std::int64_t sequences, block, positions, heads;
    };
    set_gpu_kernels("recurrence=fused");
    for (const Sizes& c : {Sizes{3, 20, 50, 4}, Sizes{2, 16, 32, 2}, Sizes{1, 33, 40, 8}}) {
      const Given from = inputs_of(c.sequences * c.positions);
      const auto options = recurrence_options(c.heads, c.sequences, c.block);
      Given exact{{}, raw::cast(to_cpu(from.dy), Dtype::f64)};
      for (const Tensor& x : from.inputs) exact.inputs.push_back(raw::cast(to_cpu(x), Dtype::f64));
      for (const bool accumulates : {true, false}) {
        const Tensors want =
            run(exact, [&](const Tensors& leaves) { return equations(accumulates, leaves, options); });
        const Tensors got = run(from, [&](const Tensors& leaves) {
          return accumulates ? accumulate(leaves, options) : forget(leaves, options);
        });
        for (std::size_t i = 0; i < want.size(); ++i)
          expect_none(
              difference(fmt::format("part {}, blocks of {}, accumulates {}", i, c.block, accumulates),
                         got[i], want[i], (i == 0 ? 4 : 8) * 4, 0x1p-8));
      }
      // Rows in bf16 are computed in f32 with such products, and rounded.
      Tensors rounded = from.inputs;
      rounded[0] = raw::cast(from.inputs[0], Dtype::bf16);
      const Tensor y = accumulate(rounded, options);
      rounded[0] = raw::cast(rounded[0], Dtype::f32);
      expect_none(
          bit_difference("y", to_cpu(y), to_cpu(raw::cast(accumulate(rounded, options), Dtype::bf16))));
    }
  }

  TEST_CASE("the fused accumulate reads operands at any address") {
    const Given from = inputs_of(2 * 10);
    const Given moved{at_odd_addresses(from.inputs), at_odd_addresses({from.dy})[0]};
    set_gpu_kernels("recurrence=fused");
    const auto options = recurrence_options(4, 2, 4);
    check_same(run(moved, options), run(from, options));
  }

  TEST_CASE("a captured fused accumulate with dropout replays with the bits of the call") {
    constexpr std::int64_t kSequences = 2, kBlock = 4, kPositions = 10;
    const Tensors inputs = inputs_of(kSequences * kPositions).inputs;
    const NoGrad no_grad;
    set_gpu_kernels("recurrence=fused");
    const auto options = dropping(recurrence_options(4, kSequences, kBlock), 0.2, 6 * 3);
    const Tensor want = to_cpu(accumulate(inputs, options));
    static_cast<void>(accumulate(inputs, options));  // what is captured has run twice before
    const Tensor to = Tensor::empty(want.shape(), Dtype::f32, gpu());
    const auto work = capture(gpu(), [&] { raw::copy_into(to, accumulate(inputs, options)); });
    for (int replay = 0; replay < 3; ++replay) {
      raw::fill(to, 0);
      work->replay();
      expect_none(bit_difference("y", to_cpu(to), want));
    }
  }

  TEST_CASE("accumulate that spreads the state, wide heads and products in f32 stay with the composed form") {
    Case hidden{2, 9, 4, 32, 4, 64, 1, "gelu", "all", true, 0.3}, wide = hidden;
    hidden.accumulate = "hidden";
    wide.dim = 64;
    wide.heads = 1;
    const auto stays = [](const char* model, const Case& c, Dtype dtype) {
      set_gpu_kernels("plain");
      const auto want = run(model, c, dtype, gpu());
      set_gpu_kernels("plain,recurrence=fused");
      CHECK(same_bits(run(model, c, dtype, gpu()), want));
    };
    for (const Case& c : {hidden, wide}) stays("block_accumulate", c, Dtype::bf16);
    stays("block_forget", {2, 9, 4, 32, 4, 64, 1, "gelu", "all", true, 0.3}, Dtype::f32);
  }

  TEST_CASE("the choice at the forward of accumulate holds for its gradient") {
    const Given from = inputs_of(2 * 10);
    const auto options = recurrence_options(4, 2, 4);
    set_gpu_kernels("recurrence=fused");
    const Tensors want = run(from, options);
    const Tensor x = require_grad(raw::alias(from.inputs[0]));
    Tensors leaves = from.inputs;
    leaves[0] = x;
    const Tensor y = accumulate(leaves, options);
    set_gpu_kernels("plain");
    backward(y, from.dy);
    expect_none(bit_difference("dx", to_cpu(grad(x)), want[1]));
  }

  TEST_CASE("sizes that the fused accumulate does not support are refused") {
    const Tensor x = Tensor::zeros({6, 32}, Dtype::f32, gpu());
    set_gpu_kernels("plain");
    CHECK_FALSE(block_recurrence_fits(x, 64, recurrence_options(2, 2, 3)));  // not chosen
    set_gpu_kernels("recurrence=fused");
    CHECK(block_recurrence_fits(x, 64, recurrence_options(2, 2, 3)));
    CHECK_FALSE(block_recurrence_fits(to_cpu(x), 64, recurrence_options(2, 2, 3)));
    CHECK_FALSE(block_recurrence_fits(x, 48, recurrence_options(2, 2, 3)));
    CHECK_FALSE(block_recurrence_fits(x, 64, recurrence_options(2, 2, 65)));
    CHECK_FALSE(
        block_recurrence_fits(Tensor::zeros({6, 64}, Dtype::f32, gpu()), 64, recurrence_options(1, 2, 3)));
    CHECK_FALSE(
        block_recurrence_fits(Tensor::zeros({6, 48}, Dtype::f32, gpu()), 64, recurrence_options(2, 2, 3)));
    CHECK_FALSE(block_recurrence_fits(Tensor::zeros({6, 96}, Dtype::f32, gpu()), 64,
                                      recurrence_options(16, 2, 3)));  // heads of 6
    CHECK_FALSE(
        block_recurrence_fits(Tensor::zeros({6, 160}, Dtype::f32, gpu()), 64, recurrence_options(5, 2, 3)));
    BlockRecurrenceOptions in_f32 = recurrence_options(2, 2, 3);
    in_f32.chain.products = Dtype::f32;
    CHECK_FALSE(block_recurrence_fits(x, 64, in_f32));
    CHECK_THROWS_AS(block_accumulate(x, {}, recurrence_options(2, 2, 3)), ValueError);  // without weights
  }
}

TEST_CASE("a block recurrence that does not fit its blocks is refused") {
  const Tensor x = Tensor::zeros({6, 32});
  CHECK_THROWS_AS(block_accumulate(x, {}, recurrence_options(2, 4, 2)), ShapeError);
  CHECK_THROWS_AS(block_accumulate(x, {}, recurrence_options(2, 2, 0)), ShapeError);
  BlockRecurrenceOptions options = recurrence_options(2, 2, 2);
  options.chain.dropout = 0.1;
  CHECK_THROWS_AS(block_accumulate(x, {}, options), ValueError);
}
