// Packs each weight at its first product, and finds its panels again at later ones.
#include "ops/product/packed_weights.h"

#include "ops/core/cpu_path.h"
#include "ops/core/parameter_cache.h"
#include "ops/product/packed_gemm.h"
#include "tensor/threads/thread_pool.h"

namespace eddy {

using namespace detail;

namespace {

// From this many rows on, packing is a negligible part of OpenBLAS's product.
constexpr std::int64_t kManyRows = 1024;
// For up to this many products, packing costs more than it saves.
constexpr std::int64_t kFewTimes = 3;

std::shared_ptr<PackedWeights>& of_this_thread() {
  thread_local std::shared_ptr<PackedWeights> weights;
  return weights;
}

template <class T>
Tensor packed(const PackedGemm<T>& gemm, const Tensor& b, PackLayout layout, std::int64_t stride) {
  const std::int64_t inner = b.dim(0), columns = b.dim(1);
  const Tensor panels = Tensor::empty({gemm.packed_elements(inner, columns)}, b.dtype(), b.device());
  if (b.device() != kCpu) return panels;  // only counted
  constexpr std::int64_t kPanelsOfAThread = 4;
  parallel_for(gemm.panels(columns), kPanelsOfAThread, [&](std::int64_t begin, std::int64_t end) {
    gemm.pack(b.data<T>(), stride, layout, inner, columns, begin, end, panels.mutable_data<T>());
  });
  return panels;
}

}  // namespace

PackedWeights* PackedWeights::of(const Tensor& b, PackedWeights* of_loop, MatmulPrecision precision) {
  ParameterCache* const cache = ParameterCache::of(b);
  const bool own =
      cache != nullptr && b.dtype() == Dtype::f32 && uses_cpu_path(b.device()) && rounds_to_bf16(precision);
  if (!own) return of_loop;
  Ref<RefCounted>& panels = cache->panels(b);
  if (panels == nullptr) panels = make_ref<PackedWeights>(Keeps::no_sources);
  return static_cast<PackedWeights*>(panels.get());
}

const void* PackedWeights::panels_for(const Tensor& b, std::int64_t rows, MatmulPrecision precision) {
  const bool single = b.dtype() == Dtype::f32, rounds = single && rounds_to_bf16(precision);
  if (!uses_cpu_path(b.device()) || !(single || b.dtype() == Dtype::f64) || b.rank() != 2 || rows < 1 ||
      (rows >= kManyRows && !rounds) || b.elements() == 0)
    return nullptr;
  const bool by_rows = b.strides()[1] == 1, by_columns = b.strides()[0] == 1;
  if (!by_rows && !by_columns) return nullptr;
  Panels& found = packed_[{b.raw_data(), b.dim(0), b.dim(1), b.strides()[0], b.strides()[1]}];
  const std::uint32_t version = b.buffer()->version();
  const PackedGemmKernels& kernels = packed_gemm_kernels(precision);
  const void* const packer = single ? reinterpret_cast<const void*>(kernels.f32.pack)
                                    : reinterpret_cast<const void*>(kernels.f64.pack);
  if (!found.panels.defined() || found.version != version || found.packer != packer) {
    const PackLayout layout = by_rows ? PackLayout::inner_by_columns : PackLayout::columns_by_inner;
    const std::int64_t stride = by_rows ? b.strides()[0] : b.strides()[1];
    found = {keeps_ == Keeps::sources ? raw::alias(b) : Tensor(), version, packer,
             single ? packed(kernels.f32, b, layout, stride) : packed(kernels.f64, b, layout, stride)};
  }
  return found.panels.raw_data();
}

PackedWeightScope::PackedWeightScope(std::int64_t times)
    : counts_(times > kFewTimes && of_this_thread() == nullptr) {
  if (counts_) of_this_thread() = std::make_shared<PackedWeights>();
}

PackedWeightScope::PackedWeightScope(std::shared_ptr<PackedWeights> of_loop)
    : counts_(of_loop != nullptr && of_this_thread() == nullptr) {
  if (counts_) of_this_thread() = std::move(of_loop);
}

PackedWeightScope::~PackedWeightScope() {
  if (counts_) of_this_thread() = nullptr;
}

const std::shared_ptr<PackedWeights>& PackedWeightScope::current() {
  return of_this_thread();
}

}  // namespace eddy
