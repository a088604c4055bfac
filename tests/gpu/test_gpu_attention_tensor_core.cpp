// Attention in bf16 against plain loops in f64 on the same numbers: tiles and their tails, bands, every table
// and gradient, grouped heads, rows that are not aligned, the same bits twice. On tensor cores, with mma.sync
// ("mma") and with wgmma, which GPUs of other kinds than 9.0 compute by mma.sync, and by the plain
// kernels.
//
// Tolerances are in units of 2^-8, the rounding of bf16, of the largest number expected. The result has two
// roundings, of the probabilities and its own; a gradient has four: of the probabilities or the gradients of
// the scores, of the result in delta, of the position in a table, its own. Their terms may be larger than the
// sum, some times: 4 and 16 are allowed. The gradient of head_scale is one number to a head, with terms of
// both signs: 16 of the sum of their sizes. (A head's scale scales its scores as q does, and its bias.)
#include <doctest/doctest.h>

#include <cmath>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <string>
#include <vector>

#include "ops/core/capture.h"
#include "ops/core/warnings.h"
#include "ops/norm/unit_norm.h"
#include "tensor/base/error.h"
#include "tests/gpu/support/attention_case.h"
#include "tests/support/spec_check.h"

using namespace eddy;
using namespace eddy::detail;
using namespace eddy::gpu_test;
using namespace eddy::spec_check;

namespace {

constexpr double kRounding = 0x1p-8;
constexpr AttentionRoundings kTensorCoreRoundings{4, 16, 16, kRounding};

// Heads that only the plain kernels take.
const AttentionCase kPlainCases[] = {
    {1, 20, 35, 2, 1, 200, 0, 20, true, true, true, true},
};
// Positions by distance as products beside attention with wgmma (cuda/attention/position_products.h), and what is left
// to its tiles. There are two roundings more: of the scores of positions, and of dq before its part by positions.
constexpr unsigned kQ = 1, kKey = 2, kScale = 8, kTable = 32;

// With positions and no bias.
AttentionCase positions_case(std::int64_t batch, std::int64_t queries, std::int64_t keys, std::int64_t heads,
                             std::int64_t kv_heads, std::int64_t head_size, std::int64_t least,
                             std::int64_t most, bool head_scale, bool dropout, unsigned wanted = kAllWanted,
                             std::int64_t past = 0) {
  return {batch, queries,    keys,  heads, kv_heads, head_size, least,
          most,  head_scale, false, true,  dropout,  wanted,    past};
}

const AttentionCase kProductCases[] = {
    positions_case(2, 16, 16, 1, 1, 32, 0, kFar, false, false),
    positions_case(2, 33, 33, 4, 2, 48, 0, kFar, true, true),
    positions_case(1, 30, 20, 2, 2, 32, 0, kFar, false, false),  // queries that see no key
    positions_case(1, 65, 130, 2, 1, 64, 0, 40, true, true),
    positions_case(1, 130, 130, 1, 1, 32, 20, 30, false, true),  // tiles of which nothing is seen
    positions_case(3, 140, 140, 1, 1, 64, 0, kFar, false, false),
    positions_case(1, 130, 260, 2, 1, 32, 1, 130, true, false),
    positions_case(1, 192, 192, 1, 1, 128, 0, kFar, false, false),  // halves of a block with other tiles
    positions_case(1, 130, 200, 2, 1, 128, 0, 128, true, true),
    positions_case(70, 17, 18, 1, 1, 32, 0, kFar, false, true),  // more sequences than parts of the gradient
    // A cache before the window, as a Cached Staircase has: shorter and longer than tiles, cut by the band.
    positions_case(2, 33, 66, 4, 2, 48, 0, kFar, true, true, kAllWanted, 33),
    positions_case(1, 70, 201, 1, 1, 64, 1, 37, false, false, kAllWanted, 131),
    positions_case(1, 20, 150, 2, 1, 128, 0, 60, false, true, kAllWanted, 130),
    positions_case(2, 128, 192, 2, 2, 64, 0, kFar, false, false, kPastUnwanted, 64),
    // Gradients of some inputs alone.
    positions_case(1, 40, 90, 2, 2, 32, 0, kFar, true, false, kQ, 50),
    positions_case(1, 40, 90, 2, 2, 32, 0, kFar, true, false, kKey, 50),
    positions_case(1, 40, 40, 2, 2, 32, 0, kFar, true, false, kScale),
    positions_case(1, 40, 40, 2, 2, 32, 0, kFar, false, false, kTable),
    positions_case(1, 40, 40, 2, 2, 32, 0, kFar, false, false, kKey + kTable),
};
const AttentionCase kLargeProductCases[] = {
    positions_case(2, 512, 1024, 8, 2, 64, 0, 512, true, true),
    positions_case(32, 256, 256, 8, 8, 64, 0, kFar, false, true),
};

// Heads of more than 64 numbers whose loads TMA may make: one query, several items of a block, tails of heads and of
// rows, grouped heads, bands that one half of a block sees, queries without a key; keys in two places, cut at a tile's
// border and within one, with own keys and without.
constexpr unsigned kValue = 4;
const AttentionCase kWideCases[] = {
    {1, 130, 260, 2, 1, 128, 1, 130, true, true, false, true, kValue, 130},
    {1, 300, 300, 1, 1, 128, 0, 20, true, true, false, true, kNoPositions},
    {1, 1, 1, 1, 1, 128, -kFar, kFar, false, false, false, false, kValue},
    {2, 20, 150, 2, 1, 96, 0, 60, true, true, false, true, kNoPositions, 130},
    {2, 70, 131, 2, 1, 112, 1, 60, true, true, false, true, kValue},
    {1, 66, 40, 2, 2, 96, -30, -10, false, false, false, true, kValue},
    {1, 192, 192, 3, 3, 128, 0, kFar, false, true, false, false, kValue},
    {2, 70, 198, 2, 2, 128, 0, kFar, false, false, false, false, kValue, 128},
    {1, 130, 600, 2, 1, 80, 5, 400, false, true, false, false, kValue},
    {1, 200, 130, 1, 1, 128, 0, kFar, false, true, false, false, kValue},
    {2, 9, 70, 1, 1, 128, -kFar, kFar, true, false, false, false, kValue, 70},
};

void choose_loads(const char* loads) {
  set_gpu_kernels(std::string("attention=wgmma,wide_attention=") + loads);
}

// dq, dk and dv by one kernel (attention_backward=fused, cuda/attention/attention_wgmma_fused_backward.cu). The share
// of dhead_scale comes from dq.
AttentionCase fused_case(std::int64_t batch, std::int64_t queries, std::int64_t keys, std::int64_t heads,
                         std::int64_t kv_heads, std::int64_t head_size, std::int64_t least, std::int64_t most,
                         bool tables, bool dropout, unsigned wanted = kAllWanted, std::int64_t past = 0,
                         double unit_eps = 0) {
  return {batch,  queries, keys,  heads,   kv_heads, head_size, least,   most,
          tables, tables,  false, dropout, wanted,   past,      unit_eps};
}

// More tiles of keys than one to a tile of queries, so that turns are waited for; tails; bands; queries that see no key
// and keys that no query sees; gradients of some inputs alone.
const AttentionCase kFusedCases[] = {
    fused_case(1, 1, 1, 1, 1, 32, -kFar, kFar, false, false),
    fused_case(1, 5, 7, 2, 1, 48, -kFar, kFar, false, true),
    fused_case(1, 7, 5, 2, 2, 16, 0, kFar, true, false),
    fused_case(2, 33, 33, 4, 2, 48, 0, kFar, false, true),
    fused_case(1, 70, 290, 2, 2, 32, 1, 137, true, true),
    fused_case(1, 200, 300, 1, 1, 64, 0, kFar, true, false),
    fused_case(2, 260, 260, 1, 1, 64, 0, kFar, false, true),
    fused_case(1, 150, 280, 2, 1, 64, 0, 70, false, true),
    fused_case(1, 66, 270, 1, 1, 112, -5, 200, false, true),
    fused_case(1, 66, 40, 2, 2, 96, -30, -10, false, true),
    fused_case(1, 200, 330, 2, 2, 128, 0, 100, true, true),
    fused_case(1, 192, 270, 1, 1, 128, 0, kFar, false, false),
    fused_case(1, 130, 300, 1, 1, 48, 150, 170, true, false),
    fused_case(70, 3, 4, 1, 1, 32, 0, kFar, true, true),
    fused_case(1, 1, 200, 3, 1, 32, 0, 150, false, false),
};
// A past whose gradient is wanted or not, unit vectors, one of dk and dv alone.
const AttentionCase kOtherFusedCases[] = {
    fused_case(1, 130, 260, 2, 2, 128, 1, 130, true, true, kPastUnwanted, 130),
    fused_case(1, 140, 330, 1, 1, 64, 0, 100, true, false, kAllWanted, 190),
    fused_case(2, 20, 90, 2, 1, 112, 0, 60, false, true, kPastUnwanted, 70, 0.01),
    fused_case(1, 140, 140, 1, 1, 128, 0, 100, true, true, kAllWanted, 0, 0.01),
    fused_case(1, 70, 131, 2, 2, 64, 1, 60, true, false, kAllWanted, 61, 0.01),
    fused_case(1, 40, 190, 2, 2, 32, 0, kFar, false, false, 3),
    fused_case(1, 40, 190, 2, 2, 64, 0, kFar, true, true, 5),
};
const AttentionCase kLargeFusedCases[] = {
    fused_case(2, 512, 1024, 8, 2, 64, 0, 512, false, true),
    fused_case(2, 1024, 1024, 4, 4, 64, 0, kFar, true, false),
    fused_case(2, 1024, 1536, 4, 4, 128, 0, 512, true, true),
};

void choose(const std::string& kernel) {
  set_gpu_kernels("attention=" + kernel);
}

// The numbers on the GPU, q and both places of k and v as bf16 and the tables as f32; with a gap, inside
// wider rows of NaN, the past's wider by `past_gap`.
Tensors on_gpu(const Tensors& inputs, std::int64_t own_gap, std::int64_t past_gap = 0) {
  Tensors result;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const Tensor& x = inputs[i];
    const std::int64_t gap = i > 5 ? past_gap : own_gap;
    if (!x.defined()) {
      result.push_back(x);
      continue;
    }
    const Tensor typed = to_gpu(raw::cast(x, i < 3 || i > 5 ? Dtype::bf16 : Dtype::f32));
    if (gap == 0 || x.rank() == 1) {
      result.push_back(typed);
      continue;
    }
    Shape wide = x.shape();
    wide[x.rank() - 1] += gap;
    result.push_back(
        raw::narrow(Tensor::full(wide, std::numeric_limits<double>::quiet_NaN(), typed.dtype(), gpu()), -1,
                    gap, x.dim(-1)));
    raw::copy_into(result.back(), typed);
  }
  return result;
}

void check(const AttentionCase& c) {
  const Tensors inputs = attention_inputs(c, Dtype::bf16);  // positions are rounded by the kernels, and here
  const Tensor dy = attention_cotangent(c, Dtype::bf16);
  const Tensor gpu_dy = to_gpu(raw::cast(dy, Dtype::bf16));
  const Tensors want = expected_attention(c, inputs, dy);
  check_attention_at_gaps(c, 8, inputs, want, kTensorCoreRoundings, [&](std::int64_t own, std::int64_t past) {
    return run_attention(attention_bthd, c, on_gpu(inputs, own, past), gpu_dy);
  });
}

Tensor cotangent_on_gpu(const AttentionCase& c) {
  return to_gpu(raw::cast(attention_cotangent(c, Dtype::bf16), Dtype::bf16));
}

void choose_backward(const char* form) {
  set_gpu_kernels(std::string("attention=wgmma,attention_backward=") + form);
}
void choose_positions(const char* positions) {
  set_gpu_kernels(std::string("attention=wgmma,positions=") + positions);
}

void check_twice(const AttentionCase& c) {
  const Tensors inputs = attention_inputs(c, Dtype::bf16), x = on_gpu(inputs, 0);
  const Tensor dy = cotangent_on_gpu(c);
  const Tensors want = expected_attention(c, inputs, attention_cotangent(c, Dtype::bf16));
  poison_gpu();
  const Tensors first = to_cpu(run_attention(attention_bthd, c, x, dy));
  check_attention(c, c.text(), first, inputs, want, kTensorCoreRoundings);
  poison_gpu();
  check_attention_bits(c.text(), to_cpu(run_attention(attention_bthd, c, x, dy)), first);
}

}  // namespace

TEST_SUITE("device") {
  TEST_CASE(
      "attention on tensor cores equals plain loops in result and every gradient and repeats its bits") {
    choose("mma");
    for (const AttentionCase& c : kTensorCoreCases) check(c);
    if (!kEmulated)
      for (const AttentionCase& c : kLargeCases) check(c);
  }

  TEST_CASE("attention with wgmma equals plain loops in result and every gradient and repeats its bits") {
    choose("wgmma");
    for (const AttentionCase& c : kTensorCoreCases) check(c);
    for (const AttentionCase& c : kLongCases) check(c);
    if (!kEmulated)
      for (const AttentionCase& c : kLargeCases) check(c);
  }

  TEST_CASE("attention with heads of 16 goes by tensor cores and equals plain loops") {
    for (const char* const kernel : {"mma", "wgmma", "plain"}) {
      choose(kernel);
      take_warnings();
      for (const AttentionCase& c : kSmallHeads) check(c);
      for (const std::string& warning : take_warnings())
        CHECK_MESSAGE(warning.find("plain kernels") == std::string::npos, warning);
    }
  }

  // They round less than those on tensor cores, and are held to the same.
  TEST_CASE("plain attention in bf16 equals plain loops in result and every gradient and repeats its bits") {
    choose("plain");
    for (const AttentionCase& c : kTensorCoreCases) check(c);
    for (const AttentionCase& c : kLongCases) check(c);
    for (const AttentionCase& c : kPlainCases) check(c);
    if (!kEmulated)
      for (const AttentionCase& c : kLargeCases) check(c);
  }

  // With a bias alone no kernel for dq runs. The gradients of the scores are f32 in both sums and rounded in
  // neither: what differs is the order of sums, of up to 200 terms here, and of the 128 products in a score.
  TEST_CASE("the gradient of a bias is the same from the kernels for dq and from that of the tables") {
    for (const char* const kernel : {"mma", "wgmma"}) {
      choose(kernel);
      for (const AttentionCase& c : kBiasCases) {
        check(c);
        const Tensors inputs = on_gpu(attention_inputs(c, Dtype::bf16), 0);
        const Tensor dy = to_gpu(raw::cast(attention_cotangent(c, Dtype::bf16), Dtype::bf16));
        AttentionCase alone = c;
        alone.wanted = kBiasAlone;
        const std::size_t dbias = 5;
        expect_none(difference(
            attention_part(dbias, c.text()), to_cpu(run_attention(attention_bthd, c, inputs, dy))[dbias],
            to_cpu(run_attention(attention_bthd, alone, inputs, dy))[dbias], 256, 0x1p-23));
      }
    }
  }

  TEST_CASE("attention to keys in two places equals plain loops for all kernels and repeats its bits") {
    for (const char* const kernel : {"plain", "mma", "wgmma"}) {
      choose(kernel);
      for (const AttentionCase& c : kPastCases) check(c);
    }
  }

  TEST_CASE("attention that makes unit vectors equals plain loops for all kernels and repeats its bits") {
    for (const char* const kernel : {"plain", "mma", "wgmma"}) {
      choose(kernel);
      for (const AttentionCase& c : kUnitCases) check(c);
    }
  }

  // The vectors are the same, and so is all that the kernels do with them; dq and dk have one rounding less.
  TEST_CASE(
      "attention that makes unit vectors has the bits of attention to unit vectors, but for dq and dk") {
    const auto of_unit_vectors = [](const Tensor& q, const Tensor& k, const Tensor& v,
                                    const AttentionOptions& options) {
      AttentionOptions plain = options;
      plain.unit_eps.reset();
      return attention_bthd(unit_norm(q, *options.unit_eps), unit_norm(k, *options.unit_eps), v, plain);
    };
    for (const char* const kernel : {"plain", "mma", "wgmma"}) {
      choose(kernel);
      for (const AttentionCase& c : kUnitCases) {
        const Tensors inputs = on_gpu(attention_inputs(c, Dtype::bf16), 0);
        const Tensor dy = to_gpu(raw::cast(attention_cotangent(c, Dtype::bf16), Dtype::bf16));
        const Tensors want = to_cpu(run_attention(of_unit_vectors, c, inputs, dy));
        Tensors got = to_cpu(run_attention(attention_bthd, c, inputs, dy));
        for (const std::size_t i : {1, 2}) {
          if (!want[i].defined()) continue;
          expect_none(
              difference(attention_part(i, c.text()), got[i], raw::cast(want[i], Dtype::f64), 4, kRounding));
          got[i] = want[i];
        }
        check_attention_bits(fmt::format("{}, {}", kernel, c.text()), got, want);
      }
    }
  }

  // The tiles are the same, whatever place their rows come from.
  TEST_CASE("attention to keys in two places has the bits of the same keys in one") {
    for (const char* const kernel : {"plain", "mma", "wgmma"}) {
      choose(kernel);
      for (const AttentionCase& c : kPastCases) {
        const Tensors inputs = attention_inputs(c, Dtype::bf16);
        const Tensor dy = to_gpu(raw::cast(attention_cotangent(c, Dtype::bf16), Dtype::bf16));
        const Tensors one =
            to_cpu(run_attention(attention_bthd, joined_case(c), on_gpu(joined_inputs(inputs), 0), dy));
        Tensors want = apart(one, c.past);
        for (std::size_t i = 1; i < want.size(); ++i)
          if ((c.wanted >> (i - 1) & 1u) == 0) want[i] = Tensor();
        const Tensors got = to_cpu(run_attention(attention_bthd, c, on_gpu(inputs, 0), dy));
        check_attention_bits(fmt::format("{}, {}", kernel, c.text()), got, want);
      }
    }
  }

  TEST_CASE("captured attention with a bias and a past has the bits of the same uncaptured") {
    const AttentionCase c{2, 70, 131, 2, 1, 64, 1, 60, true, true, false, true, kNoPositions, 61};
    const Tensors inputs = on_gpu(attention_inputs(c, Dtype::bf16), 0);
    const Tensor dy = to_gpu(raw::cast(attention_cotangent(c, Dtype::bf16), Dtype::bf16));
    for (const char* const kernel : {"plain", "mma", "wgmma"}) {
      choose(kernel);
      check_captured_attention(kernel, c, inputs, dy);
    }
  }

  TEST_CASE("the kernels of attention differ in the last bits of bf16 and agree up to its rounding") {
    const AttentionCase c{1, 70, 90, 2, 1, 64, 0, kFar, false, false, false, false};
    const Tensors x = on_gpu(attention_inputs(c, Dtype::bf16), 0);
    const Tensor dy = to_gpu(raw::cast(sample_normal({1, 70, 2, 64}, "dy"), Dtype::bf16));
    set_gpu_kernels("plain");
    const Tensors plain = to_cpu(run_attention(attention_bthd, c, x, dy));
    for (const char* const kernel : {"mma", "wgmma"}) {
      choose(kernel);
      const Tensors tensor_core = to_cpu(run_attention(attention_bthd, c, x, dy));
      CHECK_FALSE(bit_difference("y", tensor_core[0], plain[0]).empty());
      for (std::size_t i = 0; i < 4; ++i) {
        expect_none(difference(kernel, tensor_core[i], plain[i], i == 0 ? 4 : 16, kRounding));
      }
    }
  }

  TEST_CASE("f32 and heads of other sizes stay with the plain kernels of attention") {
    for (const auto& [dtype, head_size] : {std::pair{Dtype::f32, 64}, {Dtype::bf16, 40}, {Dtype::bf16, 8}}) {
      const Tensor x = to_gpu(raw::cast(sample_normal({1, 20, 1, head_size}, "x"), dtype));
      set_gpu_kernels("plain");
      const Tensor plain = to_cpu(attention_bthd(x, x, x));
      choose("wgmma");
      expect_none(bit_difference("y", to_cpu(attention_bthd(x, x, x)), plain));
    }
  }

  TEST_CASE("positions as products equal plain loops in result and every gradient and repeat their bits") {
    choose_positions("products");
    for (const AttentionCase& c : kProductCases) check_twice(c);
    if (!kEmulated)
      for (const AttentionCase& c : kLargeProductCases) check_twice(c);
  }

  // What is taken from the products has other roundings, and what is not the same bits.
  TEST_CASE("positions as products are taken where they apply, and a call that was asked for them is told") {
    if (!kEmulated) return;  // of a GPU with wgmma
    const AttentionCase taken = positions_case(1, 20, 20, 1, 1, 32, 0, kFar, false, false);
    AttentionCase few = taken, biased = taken, unit = taken;
    few.queries = few.keys = 15;
    biased.bias = true;
    unit.unit_eps = 0.01;
    for (const AttentionCase* const c :
         std::initializer_list<const AttentionCase*>{&taken, &few, &biased, &unit}) {
      CAPTURE(c->text());
      const Tensors x = on_gpu(attention_inputs(*c, Dtype::bf16), 0);
      const Tensor dy = cotangent_on_gpu(*c);
      choose_positions("plain");
      const Tensors in_tiles = to_cpu(run_attention(attention_bthd, *c, x, dy));
      CHECK(take_warnings().empty());
      choose_positions("products");
      const Tensors got = to_cpu(run_attention(attention_bthd, *c, x, dy));
      CHECK(take_warnings().empty() == (c == &taken));
      const bool all_in_tiles = c == &few || c == &biased;
      CHECK(bit_difference("dq", got[1], in_tiles[1]).empty() == all_in_tiles);
      for (std::size_t i = 0; i < got.size(); ++i)
        if (got[i].defined())
          expect_none(
              difference(attention_part(i, c->text()), got[i], in_tiles[i], i == 0 ? 4 : 16, kRounding));
    }
  }

  // Blocks of 64 queries are full then, and no table is left to a kernel.
  TEST_CASE("calls of up to 64 queries run by wgmma where that has their positions as products") {
    if (!kEmulated) return;  // of a GPU with wgmma
    for (const std::int64_t head_size : {64, 128}) {
      const AttentionCase c = positions_case(1, 40, 40, 1, 1, head_size, 0, kFar, false, false);
      const Tensors x = on_gpu(attention_inputs(c, Dtype::bf16), 0);
      const Tensor dy = cotangent_on_gpu(c);
      choose_positions("products");
      const Tensors products = to_cpu(run_attention(attention_bthd, c, x, dy));
      set_gpu_kernels("auto");
      set_automatic_kernels("attention=wgmma,short_attention=mma,positions=products");
      const Tensors automatic = to_cpu(run_attention(attention_bthd, c, x, dy));
      set_automatic_kernels("auto");
      CHECK(bit_difference("dq", automatic[1], products[1]).empty() == (head_size == 64));
    }
  }

  TEST_CASE("positions as products in packed attention agree with those in tiles, and when captured") {
    const std::int64_t batch = 2, time = 70, heads = 2, size = 32;
    const auto bf16_of = [](const Shape& shape, const char* name) {
      return to_gpu(raw::cast(sample_normal(shape, name), Dtype::bf16));
    };
    const Tensor qkv = bf16_of({batch, time, 3 * heads * size}, "qkv"),
                 past = bf16_of({batch, 33, 2 * heads * size}, "past"),
                 dy = bf16_of({batch, time, heads * size}, "dy"),
                 table = to_gpu(raw::cast(sample_normal({time + 33, size}, "positions", 0.3), Dtype::f32));
    const auto run = [&] {
      const Tensors x{require_grad(raw::alias(qkv)), require_grad(raw::alias(past)),
                      require_grad(raw::alias(table))};
      AttentionOptions options;
      options.causal = true;
      options.positions = x[2];
      const Tensor y = attention_packed(x[0], heads, options, x[1]);
      backward(y, dy);
      return Tensors{detach(y), grad(x[0]), grad(x[1]), grad(x[2])};
    };
    choose_positions("plain");
    const Tensors in_tiles = to_cpu(run());
    choose_positions("products");
    const Tensors products = to_cpu(run());
    if (kEmulated) CHECK(take_warnings().empty());
    for (std::size_t i = 0; i < products.size(); ++i)
      expect_none(
          difference(fmt::format("part {}", i), products[i], in_tiles[i], i == 0 ? 4 : 16, kRounding));
    Tensors captured;
    const auto work = capture(gpu(), [&] { captured = run(); });
    for (int replay = 0; replay < 2; ++replay) {
      poison_gpu();
      work->replay();
      const Tensors again = to_cpu(captured);
      for (std::size_t i = 0; i < products.size(); ++i)
        expect_none(bit_difference(fmt::format("part {} captured", i), again[i], products[i]));
    }
  }

  // The products and their order are the same.
  TEST_CASE("attention with loads by TMA has the bits of attention with wgmma, and repeats them") {
    for (const AttentionCase& c : kWideCases)
      for (const std::int64_t gap : {0, 8}) {
        CAPTURE(c.text());
        const Tensors x = on_gpu(attention_inputs(c, Dtype::bf16), gap, gap == 0 ? 0 : 16);
        const Tensor dy = cotangent_on_gpu(c);
        choose_loads("plain");
        const Tensors want = to_cpu(run_attention(attention_bthd, c, x, dy));
        choose_loads("tma");
        for (int run = 0; run < 2; ++run) {
          poison_gpu();
          check_attention_bits(c.text(), to_cpu(run_attention(attention_bthd, c, x, dy)), want);
        }
        if (kEmulated) CHECK(take_warnings().empty());  // a GPU without wgmma has some
      }
  }

  TEST_CASE("captured attention with loads by TMA has the bits of the same uncaptured") {
    const AttentionCase c{2, 140, 201, 2, 1, 128, 1, 60, true, true, false, true, kNoPositions, 61};
    choose_loads("tma");
    check_captured_attention("tma", c, on_gpu(attention_inputs(c, Dtype::bf16), 0), cotangent_on_gpu(c));
  }

  TEST_CASE("one kernel for all gradients of attention equals plain loops and repeats its bits") {
    choose_backward("fused");
    take_warnings();
    for (const AttentionCase& c : kFusedCases) check_twice(c);
    for (const AttentionCase& c : kOtherFusedCases) check_twice(c);
    if (!kEmulated)
      for (const AttentionCase& c : kLargeFusedCases) check_twice(c);
    if (kEmulated) CHECK(take_warnings() == std::vector<std::string>());
  }

  TEST_CASE("captured attention with one kernel for all gradients has the bits of the same uncaptured") {
    choose_backward("fused");
    const AttentionCase c = fused_case(2, 70, 261, 2, 2, 64, 1, 160, true, true, kAllWanted, 61);
    check_captured_attention("fused", c, on_gpu(attention_inputs(c, Dtype::bf16), 0), cotangent_on_gpu(c));
  }

  // The bits of dq differ, since its terms come in another order; what is not taken has the same.
  TEST_CASE("one kernel makes all gradients where it applies, and a call that asked for it is told") {
    if (!kEmulated) return;  // of a GPU with wgmma
    const AttentionCase taken = fused_case(1, 130, 300, 2, 2, 64, 0, kFar, true, false),
                        shared = fused_case(1, 130, 300, 2, 1, 64, 0, kFar, false, false);
    AttentionCase positions = shared, grouped = shared, dq_alone = shared;
    positions.positions = true;
    grouped.bias = true;
    dq_alone.wanted = 1;
    struct Call {
      const AttentionCase& c;
      bool takes, is_told;
    };
    for (const Call& call : {Call{taken, true, false},
                             {shared, true, false},
                             {positions, false, true},
                             {grouped, false, true},
                             {dq_alone, false, false}}) {
      CAPTURE(call.c.text());
      const Tensors x = on_gpu(attention_inputs(call.c, Dtype::bf16), 0);
      const Tensor dy = cotangent_on_gpu(call.c);
      choose_backward("plain");
      const Tensors two = to_cpu(run_attention(attention_bthd, call.c, x, dy));
      reset_warnings();
      choose_backward("fused");
      const Tensors one = to_cpu(run_attention(attention_bthd, call.c, x, dy));
      CHECK(take_warnings().empty() == !call.is_told);
      CHECK(bit_difference("dq", one[1], two[1]).empty() == !call.takes);
      for (std::size_t i = 0; i < one.size(); ++i)
        if (one[i].defined() && i != 4)
          expect_none(difference(attention_part(i, call.c.text()), one[i], raw::cast(two[i], Dtype::f64), 16,
                                 kRounding));
    }
  }

  TEST_CASE("a NaN or an infinity in a query reaches its own row of the result on tensor cores") {
    for (const auto& [kernel, bad] :
         {std::pair{"mma", NAN}, {"mma", INFINITY}, {"wgmma", NAN}, {"wgmma", INFINITY}}) {
      choose(kernel);
      const Tensor q = raw::cast(sample_normal({1, 70, 1, 32}, "q"), Dtype::f32);
      const Tensor k = to_gpu(raw::cast(sample_normal({1, 70, 1, 32}, "k"), Dtype::bf16));
      q.mutable_data<float>()[5 * 32] = bad;
      const std::vector<double> y = numbers(to_cpu(attention_bthd(to_gpu(raw::cast(q, Dtype::bf16)), k, k)));
      for (std::size_t row = 0; row < 70; ++row) CHECK(std::isnan(y[row * 32]) == (row == 5));
    }
  }
}

TEST_CASE("an unknown choice of kernels is refused and changes nothing") {
  set_gpu_kernels("plain");
  for (const char* text : {"fast", "", "plain,", "attention=fused", "recurrence=wgmma", "=plain",
                           "product=fused", "recurrence=fused,attention="})
    CHECK_THROWS_WITH_AS(set_gpu_kernels(text), doctest::Contains("attention=auto|plain|mma|wgmma"),
                         ValueError);
  CHECK(kernel_choice(KernelOp::recurrence).kernel == Kernel::plain);
  set_gpu_kernels("plain,attention=mma");  // later items override
  CHECK(kernel_choice(KernelOp::attention).kernel == Kernel::mma);
  CHECK(kernel_choice(KernelOp::products).kernel == Kernel::plain);
  set_gpu_kernels("attention=mma,recurrence=fused");
  CHECK(kernel_choice(KernelOp::recurrence).kernel == Kernel::fused);
  CHECK_FALSE(kernel_choice(KernelOp::products).asked);
}
