// dq, dk and dv of attention by one kernel (attention_backward=fused, cuda/attention/attention_wgmma_fused_backward.cu)
// against plain loops in f64 on the same numbers, and what it leaves to the two kernels. Tolerances are those of
// test_gpu_attention_tensor_core.cpp; the share of dhead_scale comes from dq, whose terms are rounded once.
#include <doctest/doctest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "cuda/attention/attention_tensor_core.h"
#include "ops/core/warnings.h"
#include "tests/gpu/support/attention_case.h"
#include "tests/support/spec_check.h"

using namespace eddy;
using namespace eddy::detail;
using namespace eddy::gpu_test;
using namespace eddy::spec_check;

namespace {

constexpr double kRounding = 0x1p-8;
constexpr AttentionRoundings kRoundings{4, 16, 16, kRounding};

AttentionCase case_of(std::int64_t batch, std::int64_t queries, std::int64_t keys, std::int64_t heads,
                      std::int64_t kv_heads, std::int64_t head_size, std::int64_t least, std::int64_t most,
                      bool tables, bool dropout, unsigned wanted = kAllWanted, std::int64_t past = 0,
                      double unit_eps = 0) {
  return {batch,  queries, keys,  heads,   kv_heads, head_size, least,   most,
          tables, tables,  false, dropout, wanted,   past,      unit_eps};
}

// More tiles of keys than one to a tile of queries, so that turns are waited for; tails; bands; queries that see no key
// and keys that no query sees; gradients of some inputs alone.
const AttentionCase kCases[] = {
    case_of(1, 1, 1, 1, 1, 32, -kFar, kFar, false, false),
    case_of(1, 5, 7, 2, 1, 48, -kFar, kFar, false, true),
    case_of(1, 7, 5, 2, 2, 16, 0, kFar, true, false),
    case_of(2, 33, 33, 4, 2, 48, 0, kFar, false, true),
    case_of(1, 70, 290, 2, 2, 32, 1, 137, true, true),
    case_of(1, 200, 300, 1, 1, 64, 0, kFar, true, false),
    case_of(2, 260, 260, 1, 1, 64, 0, kFar, false, true),
    case_of(1, 150, 280, 2, 1, 64, 0, 70, false, true),
    case_of(1, 66, 270, 1, 1, 112, -5, 200, false, true),
    case_of(1, 66, 40, 2, 2, 96, -30, -10, false, true),
    case_of(1, 200, 330, 2, 2, 128, 0, 100, true, true),
    case_of(1, 192, 270, 1, 1, 128, 0, kFar, false, false),
    case_of(1, 130, 300, 1, 1, 48, 150, 170, true, false),
    case_of(70, 3, 4, 1, 1, 32, 0, kFar, true, true),
    case_of(1, 1, 200, 3, 1, 32, 0, 150, false, false),
};
// A past whose gradient is wanted or not, unit vectors, one of dk and dv alone.
const AttentionCase kOtherCases[] = {
    case_of(1, 130, 260, 2, 2, 128, 1, 130, true, true, kPastUnwanted, 130),
    case_of(1, 140, 330, 1, 1, 64, 0, 100, true, false, kAllWanted, 190),
    case_of(2, 20, 90, 2, 1, 112, 0, 60, false, true, kPastUnwanted, 70, 0.01),
    case_of(1, 140, 140, 1, 1, 128, 0, 100, true, true, kAllWanted, 0, 0.01),
    case_of(1, 70, 131, 2, 2, 64, 1, 60, true, false, kAllWanted, 61, 0.01),
    case_of(1, 40, 190, 2, 2, 32, 0, kFar, false, false, 3),
    case_of(1, 40, 190, 2, 2, 64, 0, kFar, true, true, 5),
};
const AttentionCase kLarge[] = {
    case_of(2, 512, 1024, 8, 2, 64, 0, 512, false, true),
    case_of(2, 1024, 1024, 4, 4, 64, 0, kFar, true, false),
    case_of(2, 1024, 1536, 4, 4, 128, 0, 512, true, true),
};

void choose(const char* form) {
  set_gpu_kernels(std::string("attention=wgmma,attention_backward=") + form);
}

Tensors on_gpu(const Tensors& inputs) {
  Tensors result;
  for (std::size_t i = 0; i < inputs.size(); ++i)
    result.push_back(inputs[i].defined()
                         ? to_gpu(raw::cast(inputs[i], i < 3 || i > 5 ? Dtype::bf16 : Dtype::f32))
                         : inputs[i]);
  return result;
}
Tensor cotangent_on_gpu(const AttentionCase& c) {
  return to_gpu(raw::cast(attention_cotangent(c, Dtype::bf16), Dtype::bf16));
}

void check(const AttentionCase& c) {
  const Tensors inputs = attention_inputs(c, Dtype::bf16), x = on_gpu(inputs);
  const Tensor dy = cotangent_on_gpu(c);
  const Tensors want = expected_attention(c, inputs, attention_cotangent(c, Dtype::bf16));
  poison_gpu();
  const Tensors first = to_cpu(run_attention(attention_bthd, c, x, dy));
  check_attention(c, c.text(), first, inputs, want, kRoundings);
  poison_gpu();
  check_attention_bits(c.text(), to_cpu(run_attention(attention_bthd, c, x, dy)), first);
}

}  // namespace

TEST_SUITE("device") {
  TEST_CASE("one kernel for all gradients of attention equals plain loops and repeats its bits") {
    choose("fused");
    take_warnings();
    for (const AttentionCase& c : kCases) check(c);
    for (const AttentionCase& c : kOtherCases) check(c);
    if (!kEmulated)
      for (const AttentionCase& c : kLarge) check(c);
    if (kEmulated) CHECK(take_warnings() == std::vector<std::string>());
  }

  TEST_CASE("captured attention with one kernel for all gradients has the bits of the same uncaptured") {
    choose("fused");
    const AttentionCase c = case_of(2, 70, 261, 2, 2, 64, 1, 160, true, true, kAllWanted, 61);
    check_captured_attention("fused", c, on_gpu(attention_inputs(c, Dtype::bf16)), cotangent_on_gpu(c));
  }

  // The bits of dq differ, since its terms come in another order; what is not taken has the same.
  TEST_CASE("one kernel makes all gradients where it applies, and a call that asked for it is told") {
    if (!kEmulated) return;  // of a GPU with wgmma
    const AttentionCase taken = case_of(1, 130, 300, 2, 2, 64, 0, kFar, true, false),
                        shared = case_of(1, 130, 300, 2, 1, 64, 0, kFar, false, false);
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
      const Tensors x = on_gpu(attention_inputs(call.c, Dtype::bf16));
      const Tensor dy = cotangent_on_gpu(call.c);
      choose("plain");
      const Tensors two = to_cpu(run_attention(attention_bthd, call.c, x, dy));
      reset_warnings();
      choose("fused");
      const Tensors one = to_cpu(run_attention(attention_bthd, call.c, x, dy));
      CHECK(take_warnings().empty() == !call.is_told);
      CHECK(bit_difference("dq", one[1], two[1]).empty() == !call.takes);
      for (std::size_t i = 0; i < one.size(); ++i)
        if (one[i].defined() && i != 4)
          expect_none(difference(attention_part(i, call.c.text()), one[i], raw::cast(two[i], Dtype::f64), 16,
                                 kRounding));
    }
  }
}
