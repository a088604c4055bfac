// Dropout: the words of Philox that the CPU draws, so the same elements go.
//
// Mapping: one thread per counter of Philox, whose four words serve four neighbouring elements; the first and
// the last counter may serve fewer, and a first element that is no multiple of four makes the addresses odd.
// Those are read one by one, the others as 16 bytes. Shared memory: none. Bytes moved: x and y once (y twice
// with beta 1), the least; the mask is not stored.
#include <cmath>

#include "cuda/install.h"
#include "cuda/launch.cuh"
#include "ops/dropout.h"

namespace eddy::cuda {
namespace {

struct DropoutLaunch {
  std::int64_t n;
  const float* x;
  float* y;
  RandomKey key;
  std::uint64_t first_counter;
  int skipped;               // words of the first counter that belong to elements before the first
  bool by_four;              // groups of four lie at multiples of 16 bytes
  std::uint32_t drop_below;  // an element goes when the upper 24 bits of its word lie below this
  float scale;
  bool adds;  // beta 1
};

__device__ float kept(const DropoutLaunch& args, std::uint32_t word, float x) {
  return (word >> 8) >= args.drop_below ? args.scale * x : 0.0f;
}

__global__ void dropout_kernel(DropoutLaunch args) {
  const std::int64_t counters = (args.n + args.skipped + 3) / 4;
  for (std::int64_t i = first_item(); i < counters; i += item_step()) {
    const Philox4 words = args.key.words(args.first_counter + static_cast<std::uint64_t>(i));
    const std::int64_t start = 4 * i - args.skipped;
    if (args.by_four && start + 4 <= args.n) {
      const Four x = *reinterpret_cast<const Four*>(args.x + start);
      Four* const to = reinterpret_cast<Four*>(args.y + start);
      Four y = args.adds ? *to : Four{};
      for (int j = 0; j < 4; ++j) {
        const float value = kept(args, words.word[j], x.at[j]);
        y.at[j] = args.adds ? y.at[j] + value : value;
      }
      *to = y;
      continue;
    }
    for (int j = 0; j < 4; ++j) {
      const std::int64_t at = start + j;
      if (at < 0 || at >= args.n) continue;
      const float value = kept(args, words.word[j], args.x[at]);
      args.y[at] = args.adds ? args.y[at] + value : value;
    }
  }
}

void dropout(const DropoutArgs& args) {
  require_f32("dropout", args.dtype);
  DropoutLaunch launched;
  launched.n = args.n;
  launched.x = static_cast<const float*>(args.x);
  launched.y = static_cast<float*>(args.y);
  launched.key = args.key;
  launched.first_counter = args.first_element >> 2;
  launched.skipped = static_cast<int>(args.first_element & 3);
  launched.by_four = launched.skipped == 0 && aligned(args.x) && aligned(args.y);
  launched.drop_below = static_cast<std::uint32_t>(std::ceil(args.p * 0x1p24));  // exact: p in [0, 1)
  launched.scale = static_cast<float>(args.scale);
  launched.adds = args.beta != 0;
  launch("dropout", dropout_kernel, grid_for(args.n + 3, 4 * kThreads), kThreads, launched);
}

}  // namespace

void install_dropout() {
  dropout_slot.function[static_cast<int>(DeviceType::cuda)] = dropout;
}

}  // namespace eddy::cuda
