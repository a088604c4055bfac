// Which kernel sums the gradient of attention's bias by distance: the kernel for dq, or that for the tables.
#include <doctest/doctest.h>

#include <cstdint>
#include <map>
#include <string>

#include "cuda/attention/attention_tensor_core.h"
#include "cuda/runtime/context.h"
#include "tests/emulation/emulation.h"
#include "tests/gpu/support/attention_case.h"

using namespace eddy;
using namespace eddy::detail;
using namespace eddy::gpu_test;

namespace {

struct Launches {
  std::int64_t tables, slices;
};

// The launches of a call in bf16 with the gradients wanted.
Launches launches_of(const AttentionCase& c) {
  Tensors inputs = attention_inputs(c, Dtype::bf16);
  for (std::size_t i = 0; i < inputs.size(); ++i)
    if (inputs[i].defined()) inputs[i] = to_gpu(raw::cast(inputs[i], i < 3 ? Dtype::bf16 : Dtype::f32));
  const Tensor dy = to_gpu(raw::cast(attention_cotangent(c, Dtype::bf16), Dtype::bf16));
  const auto counts = [] {
    cuda::synchronize();
    std::map<std::string, std::int64_t> all = emulation::launches();
    return Launches{all["attention_tables on tensor cores"], all["attention_dbias_slices"]};
  };
  const Launches before = counts();
  static_cast<void>(run_attention(attention_bthd, c, inputs, dy));
  const Launches after = counts();
  return {after.tables - before.tables, after.slices - before.slices};
}

}  // namespace

TEST_SUITE("device") {
  TEST_CASE(
      "the kernels for dq sum the gradient of a bias where they run and it is the only table that wants "
      "one") {
    const auto of = [](unsigned wanted, bool positions) {
      return launches_of({1, 20, 20, 1, 1, 32, 0, 10, true, true, positions, false, wanted});
    };
    for (const char* const kernel : {"attention=mma", "attention=wgmma"}) {
      set_gpu_kernels(kernel);
      for (const unsigned with_queries : {1u, 8u, 9u}) {  // q, head_scale, both
        const Launches both = of(16 + with_queries, false), read = of(16 + with_queries, true),
                       wanted = of(48 + with_queries, true), none = of(with_queries, true);
        CHECK((both.tables == 0 && both.slices == 1));
        CHECK((read.tables == 0 && read.slices == 1));
        CHECK((wanted.tables == 1 && wanted.slices == 0));
        CHECK((none.tables == 0 && none.slices == 0));
      }
      const Launches alone = of(16, false), with_keys = of(18, false);
      CHECK((alone.tables == 1 && alone.slices == 0));
      CHECK((with_keys.tables == 1 && with_keys.slices == 0));
    }
  }

  TEST_CASE("the gradient of a bias over more distances than fit is summed by the kernel of the tables") {
    for (const char* const kernel : {"attention=mma", "attention=wgmma"}) {
      set_gpu_kernels(kernel);
      for (const std::int64_t keys : {3056, 3057}) {  // the space left for each warp beside tiles of 128
        const Launches counts = launches_of({1, 1, keys, 1, 1, 128, 0, kFar, false, true, false, false, 31});
        CHECK(counts.tables == (keys == 3057 ? 1 : 0));
        CHECK(counts.slices == (keys == 3057 ? 0 : 1));
      }
    }
  }
}

TEST_CASE("slices of the gradient of a bias are refused beyond their bound") {
  float any = 0;
  AttentionBackwardArgs args{};
  args.forward.least = 1;
  args.forward.most = 512;
  args.dbias = &any;
  const std::int64_t most_blocks = cuda::kMostBiasSliceBytes / (4 * 512);
  CHECK(most_blocks == 64 * 8 * 128);  // 128 sequences of 64 tiles, 8 heads
  CHECK(cuda::sums_bias_with_queries(args, most_blocks, 4, 4 * 4 * 512));
  CHECK_FALSE(cuda::sums_bias_with_queries(args, most_blocks + 1, 4, 4 * 4 * 512));
  CHECK_FALSE(cuda::sums_bias_with_queries(args, most_blocks, 4, 4 * 4 * 512 - 1));
  args.dpositions = &any;
  CHECK_FALSE(cuda::sums_bias_with_queries(args, 1, 4, 4 * 4 * 512));
  args.dbias = nullptr;
  args.dpositions = nullptr;
  CHECK_FALSE(cuda::sums_bias_with_queries(args, 1, 4, 4 * 4 * 512));
}
