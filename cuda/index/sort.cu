// The radix sort of CUB, which comes with the toolkit. It is stable, and so deterministic. It has a file of
// its own because CUB's headers take most of the compile time.
//
//   mapping, shared memory   CUB's
//   bytes moved              keys and places read and written once for every 8 bits or so of the keys
#include "cuda/index/sort.cuh"

#include <algorithm>
#include <cub/device/device_radix_sort.cuh>

#include "cuda/runtime/stream.cuh"

namespace eddy::cuda {

Sorted sort_by_key(const Tensor& keys, const Tensor& places, int bits) {
  const int n = static_cast<int>(keys.elements());
  const Sorted sorted{Tensor::empty(keys.shape(), Dtype::i32, keys.device()),
                      Tensor::empty(keys.shape(), Dtype::i32, keys.device())};
  const auto sort = [&](void* scratch, std::size_t* bytes) {
    check(cub::DeviceRadixSort::SortPairs(
              scratch, *bytes, keys.data<std::int32_t>(), sorted.keys.mutable_data<std::int32_t>(),
              places.data<std::int32_t>(), sorted.places.mutable_data<std::int32_t>(), n, 0, bits, stream()),
          "cub::DeviceRadixSort");
  };
  std::size_t bytes = 0;
  sort(nullptr, &bytes);                    // the size of the working memory
  bytes = std::max<std::size_t>(bytes, 1);  // CUB rejects an address with no bytes
  const Tensor scratch = Tensor::empty({static_cast<std::int64_t>(bytes)}, Dtype::u8, keys.device());
  sort(scratch.raw_data(), &bytes);
  return sorted;
}

}  // namespace eddy::cuda
