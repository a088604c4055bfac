// Table 1 of the paper, word for word.
#include "models/recurrent_transformer/paper_operations.h"

#include "tensor/base/format.h"

namespace eddy::recurrent_transformer {

double paper_operations(const Config& c, std::int64_t tokens) {
  const auto n = static_cast<double>(tokens), d = static_cast<double>(c.dim);
  const auto layers = static_cast<double>(c.layers), k = static_cast<double>(c.block);
  if (c.model == "regular") return layers * (n * n * d + n * d * d);
  if (c.model == "unit_forget") return layers * n * (4 * d + 2 * d * d);
  const double block = 4 * d * k * k + 2 * k * d * d;
  if (c.model == "block_forget") return layers * (n / k) * block;
  if (c.model == "block_accumulate") return layers * (n / k) * (block + 2);
  fail<ValueError>("paper_operations: the paper has no formula for {}", c.model);
}

}  // namespace eddy::recurrent_transformer
