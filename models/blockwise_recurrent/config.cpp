// The config keys of this family, and the rules between them.
#include "models/blockwise_recurrent/config.h"

#include "models/config_rules.h"
#include "tensor/base/format.h"

namespace eddy::blockwise_recurrent {

void check(const ModelConfig& c) {
  rules::width_of_heads(c);
  if (c.dim / c.heads % 2 != 0)
    fail<ConfigError>(
        "config: the width of a head must be even, rotary positions turn pairs: dim {}, heads {}, width {}",
        c.dim, c.heads, c.dim / c.heads);
  rules::tied_head(c);
}

void describe(KeyList& keys, ModelConfig& c) {
  keys.add("memory_qkv", c.memory_qkv, "Whether the memory has projections of its own",
           {"separate", "shared"})
      .read_by("memory_llama");
  keys.add("memory_init", c.memory_init, "Memory of the first chunk", {"learned", "zero"})
      .read_by("memory_llama");
  keys.add("memory_query", c.memory_query,
           "Whether the memory keeps its query matrix, which has no effect on the results")
      .read_by("memory_llama")
      .oddity();
  keys.add("memory_ffn", c.memory_ffn, "Whether the memory passes through an MLP between chunks")
      .read_by("memory_llama");
  keys.add("memory_ffn_prenorm", c.memory_ffn_prenorm, "Whether that MLP begins with a norm")
      .read_by("memory_llama")
      .oddity();
  keys.add("memory_norm", c.memory_norm, "Whether a norm follows that MLP").read_by("memory_llama");
  keys.add("memory_proj", c.memory_proj, "Whether a square matrix stands before that MLP")
      .read_by("memory_llama")
      .oddity();
  keys.add("detach", c.detach, "Where gradients through the memory stop", {"segment", "chunk"})
      .read_by("memory_llama");
  keys.add("rope_theta", c.rope_theta, "Base of the frequencies of rotary positions",
           {.low = 0, .low_open = true})
      .read_by("blockwise_recurrent");
}

void fill(ModelConfig& c) {
  if (c.family == "blockwise_recurrent" && c.mlp_dim == 0) c.mlp_dim = (2 * 4 * c.dim / 3 + 31) / 32 * 32;
}

}  // namespace eddy::blockwise_recurrent
