// Which products with GELU run in one kernel, and what is said of those that do not although they were asked to.
#include "cuda/product/gelu_product.h"

#include "cuda/runtime/device.h"
#include "cuda/runtime/stream.cuh"
#include "ops/backends.h"
#include "ops/core/warnings.h"
#include "tensor/base/error.h"

namespace eddy::cuda {
namespace {

// With fewer tiles most of a GPU would be idle, where cuBLASLt has smaller ones, or divides the depth. An estimate:
// half of an H200's multiprocessors.
constexpr std::int64_t kFewestTiles = 64;

bool has_enough_tiles(const GeluProductArgs& args) {
  const auto tiles = [](std::int64_t count, std::int64_t each) { return (count + each - 1) / each; };
  return tiles(args.rows, kGeluTileRows) * tiles(args.columns, kGeluTileColumns) >= kFewestTiles;
}

void run(const GeluProductArgs& args, bool backward) {
  if (!wgmma_gelu_product(args, backward, multiprocessors()))
    throw DeviceError(
        "product with GELU: the driver has no map of an operand for copies by TMA (EDDY_KERNELS=gelu_products=plain "
        "takes other kernels)");
}

}  // namespace

bool takes_gelu_product(const GeluProductArgs& args) {
  const auto aligned = [](const void* address) {
    return reinterpret_cast<std::uintptr_t>(address) % 16 == 0;
  };
  return args.dtype == Dtype::bf16 && args.rows > 0 && args.depth > 0 && args.columns > 0 &&
         args.columns % 8 == 0 && args.left_stride % 8 == 0 && args.weight_stride % 8 == 0 &&
         aligned(args.left) && aligned(args.weight) && aligned(args.bias) && aligned(args.z) &&
         aligned(args.result);
}

void gelu_product_supports(const GeluProductQuery& query) {
  const auto [kernel, asked] = kernel_choice(KernelOp::gelu_products);
  *query.fits = false;
  if (kernel != Kernel::fused) return;
  const bool has_kernel = has_wgmma(), taken = takes_gelu_product(*query.product);
  *query.fits = has_kernel && taken && has_enough_tiles(*query.product);
  if (asked && !has_kernel)
    add_warning(
        "products with GELU have kernels of their own: one for both is for GPUs of compute capability 9.0");
  else if (asked && !*query.fits)
    add_warning(
        "some products with GELU have kernels of their own: one for both takes columns and rows at multiples of 16 "
        "bytes, and results of at least 64 tiles of 128 x 128");
}

void gelu_product_forward(const GeluProductArgs& args) {
  run(args, false);
}

void gelu_product_backward(const GeluProductArgs& args) {
  run(args, true);
}

}  // namespace eddy::cuda
