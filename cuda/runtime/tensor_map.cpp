// Makes a map by the driver's own function, and no map where the tensor does not keep its rules.
#include "cuda/runtime/tensor_map.cuh"

#include "cuda/runtime/stream.cuh"

namespace eddy::cuda {
namespace {

// The driver's function, asked for here so that nothing is linked with the driver.
decltype(&cuTensorMapEncodeTiled) encode_function() {
  constexpr const char* kName = "cuTensorMapEncodeTiled";
  static const auto function = [] {
    void* found = nullptr;
    cudaDriverEntryPointQueryResult result{};
#if CUDART_VERSION >= 12050
    check(cudaGetDriverEntryPointByVersion(kName, &found, 12000, cudaEnableDefault, &result),
          kName);  // as since 12.0
#else
    check(cudaGetDriverEntryPoint(kName, &found, cudaEnableDefault, &result), kName);
#endif
    if (found == nullptr) throw_cuda_error(kName, cudaErrorInsufficientDriver);
    return reinterpret_cast<decltype(&cuTensorMapEncodeTiled)>(found);
  }();
  return function;
}

}  // namespace

std::optional<TensorMap> map_of(const MappedTensor& tensor) {
  constexpr std::int64_t kMostStride = (std::int64_t{1} << 40) - 16, kMostSize = std::int64_t{1} << 31;
  if (reinterpret_cast<std::uintptr_t>(tensor.start) % 16 != 0) return std::nullopt;
  cuuint64_t sizes[kMapAxes], strides[kMapAxes - 1];
  cuuint32_t box[kMapAxes], steps[kMapAxes];
  for (int i = 0; i < kMapAxes; ++i) {
    if (tensor.sizes[i] < 1 || tensor.sizes[i] > kMostSize) return std::nullopt;
    sizes[i] = static_cast<cuuint64_t>(tensor.sizes[i]);
    box[i] = static_cast<cuuint32_t>(tensor.box[i]);
    steps[i] = 1;
    if (i == 0) continue;
    // The stride of an axis of one number is never used; the driver wants none below the one before.
    const std::int64_t before = i == 1 ? 16 : static_cast<std::int64_t>(strides[i - 2]),
                       bytes = tensor.sizes[i] == 1 ? before : 2 * tensor.strides[i - 1];
    if (bytes <= 0 || bytes > kMostStride || bytes % 16 != 0) return std::nullopt;
    strides[i - 1] = static_cast<cuuint64_t>(bytes);
  }
  TensorMap map;
  const CUresult result =
      encode_function()(&map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, kMapAxes, const_cast<void*>(tensor.start),
                        sizes, strides, box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                        CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (result != CUDA_SUCCESS) return std::nullopt;
  return map;
}

}  // namespace eddy::cuda
