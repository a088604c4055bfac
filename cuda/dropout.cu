// Dropout: the words of Philox that the CPU draws, so the same elements go.
//
// Mapping: one thread per counter of Philox, whose four words serve four neighbouring elements; the first and
// the last counter may serve fewer, and a first element that is no multiple of four makes the addresses odd.
// Those are read one by one, the others as 16 bytes, 8 of bf16. Shared memory: none. Bytes moved: x and y
// once (y twice with beta 1), the least; the mask is not stored.
#include <cmath>

#include "cuda/install.h"
#include "cuda/numbers.cuh"
#include "ops/dropout.h"

namespace eddy::cuda {
namespace {

template <class T>
struct DropoutLaunch {
  std::int64_t n;
  const T* x;
  T* y;
  RandomKey key;
  std::uint64_t first_counter;
  int skipped;               // words of the first counter that belong to elements before the first
  bool by_four;              // groups of four lie at multiples of their size
  std::uint32_t drop_below;  // an element goes when the upper 24 bits of its word lie below this
  float scale;
  bool adds;  // beta 1
};

template <class T>
__device__ float kept(const DropoutLaunch<T>& args, std::uint32_t word, float x) {
  return (word >> 8) >= args.drop_below ? args.scale * x : 0.0f;
}

template <class T>
__global__ void dropout_kernel(DropoutLaunch<T> args) {
  const std::int64_t counters = (args.n + args.skipped + 3) / 4;
  for (std::int64_t i = first_item(); i < counters; i += item_step()) {
    const Philox4 words = args.key.words(args.first_counter + static_cast<std::uint64_t>(i));
    const std::int64_t start = 4 * i - args.skipped;
    if (args.by_four && start + 4 <= args.n) {
      const Four x = read_four(args.x + start);
      Four y = args.adds ? read_four(args.y + start) : Four{};
      for (int j = 0; j < 4; ++j) {
        const float value = kept(args, words.word[j], x.at[j]);
        y.at[j] = args.adds ? y.at[j] + value : value;
      }
      write_four(args.y + start, y);
      continue;
    }
    for (int j = 0; j < 4; ++j) {
      const std::int64_t at = start + j;
      if (at < 0 || at >= args.n) continue;
      const float value = kept(args, words.word[j], static_cast<float>(args.x[at]));
      add_to(args.y[at], args.adds ? 1.0f : 0.0f, value);
    }
  }
}

template <class T>
void dropout(const DropoutArgs& args) {
  constexpr std::uintptr_t kBytes = sizeof(StoredFour<T>);
  DropoutLaunch<T> launched;
  launched.n = args.n;
  launched.x = static_cast<const T*>(args.x);
  launched.y = static_cast<T*>(args.y);
  launched.key = args.key;
  launched.first_counter = args.first_element >> 2;
  launched.skipped = static_cast<int>(args.first_element & 3);
  launched.by_four = launched.skipped == 0 && aligned(args.x, kBytes) && aligned(args.y, kBytes);
  launched.drop_below = static_cast<std::uint32_t>(std::ceil(args.p * 0x1p24));  // exact: p in [0, 1)
  launched.scale = static_cast<float>(args.scale);
  launched.adds = args.beta != 0;
  launch("dropout", dropout_kernel<T>, grid_for(args.n + 3, 4 * kThreads), kThreads, launched);
}

}  // namespace

void install_dropout() {
  dropout_slot.function[static_cast<int>(DeviceType::cuda)] = [](const DropoutArgs& args) {
    for_activations("dropout", args.dtype, [&](auto* type) { dropout<StoredIn<decltype(type)>>(args); });
  };
}

}  // namespace eddy::cuda
