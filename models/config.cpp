// Defaults of common keys that depend on other keys, and the rules between them.
#include "models/config.h"

#include <algorithm>

#include "tensor/base/format.h"

namespace eddy {

void fill_common(CommonKeys& c) {
  if (c.n_out == 0) c.n_out = c.vocab;
  if (c.kv_heads == 0) c.kv_heads = c.heads;
  if (c.head_dim == 0) c.head_dim = std::max<std::int64_t>(c.dim / c.heads, 1);
  if (c.norm_eps == 0) c.norm_eps = 1e-5;
  if (c.mlp_dim == 0) c.mlp_dim = 4 * c.dim;
  if (c.segment == 0) c.segment = c.context;
  if (c.window == 0) c.window = c.segment;
}

std::int64_t even_part(std::int64_t length, std::int64_t most) {
  for (std::int64_t part = std::min(length, most); part > 1 && 4 * part >= most; --part)
    if (length % part == 0) return part;
  return length;
}

namespace rules {

void heads(const CommonKeys& c) {
  if (c.head_dim == 0 && c.dim % c.heads != 0)
    fail<ConfigError>(
        "config: model.heads must divide model.dim: dim {}, heads {} (set another number of heads)", c.dim,
        c.heads);
  if (c.kv_heads != 0 && c.heads % c.kv_heads != 0)
    fail<ConfigError>("config: model.kv_heads must divide model.heads: heads {}, kv_heads {}", c.heads,
                      c.kv_heads);
}

void width_of_heads(const CommonKeys& c) {
  if (c.head_dim != 0 && c.head_dim * c.heads != c.dim)
    fail<ConfigError>(
        "config: model.head_dim must be dim / heads in this family: dim {}, heads {}, head_dim {} (leave "
        "it out)",
        c.dim, c.heads, c.head_dim);
}

void one_kind_of_heads(const CommonKeys& c) {
  if (c.kv_heads != 0 && c.kv_heads != c.heads)
    fail<ConfigError>(
        "config: model.kv_heads must be heads in this family: heads {}, kv_heads {} (leave it out)", c.heads,
        c.kv_heads);
}

void even_heads(const CommonKeys& c) {
  if (c.dim / c.heads % 2 != 0)
    fail<ConfigError>(
        "config: the width of a head must be even, rotary positions turn pairs: dim {}, heads {}, width {}",
        c.dim, c.heads, c.dim / c.heads);
}

void tied_head(const CommonKeys& c) {
  if (c.tied && c.n_out != 0 && c.n_out != c.vocab)
    fail<ConfigError>(
        "config: a tied head has one row per token: vocab {}, n_out {} (set model.tied = false)", c.vocab,
        c.n_out);
}

}  // namespace rules

}  // namespace eddy
