// The names of a GPU's kernels, in every build.
#include "ops/backends.h"

#include <algorithm>

#include "ops/core/warnings.h"
#include "tensor/base/format.h"

namespace eddy {
namespace {

// Whether the name is "fused".
// errors: ValueError for a name other than "plain" and "fused"; the text begins with `set`.
bool is_fused(const char* set, std::string_view name) {
  if (name != "plain" && name != "fused")
    fail<ValueError>("{}: unknown kernel '{}' (plain or fused)", set, name);
  return name == "fused";
}

}  // namespace

std::string describe(const GpuKernels& kernels) {
  return fmt::format("attention {}, recurrence {}, products {}, TF32 {}", kernels.attention,
                     kernels.recurrence, kernels.products, kernels.tf32 ? "on" : "off");
}

void set_attention_kernel(std::string_view name) {
  const auto* const found = std::find(std::begin(kAttentionKernels), std::end(kAttentionKernels), name);
  if (found == std::end(kAttentionKernels))
    fail<ValueError>("set_attention_kernel: unknown kernel '{}' (plain, tensor_core or wgmma)", name);
  detail::choose_attention_kernel(static_cast<int>(found - std::begin(kAttentionKernels)));
  reset_warnings();
}

void set_recurrence_kernel(std::string_view name) {
  detail::choose_fused_recurrences(is_fused("set_recurrence_kernel", name));
  reset_warnings();
}

void set_product_kernel(std::string_view name) {
  detail::choose_fused_products(is_fused("set_product_kernel", name));
  reset_warnings();
}

}  // namespace eddy
