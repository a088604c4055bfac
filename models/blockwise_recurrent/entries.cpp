// The family's rows of the registry, and the rules between its config keys.
#include <cmath>

#include "models/blockwise_recurrent/blockwise_recurrent.h"
#include "models/config_rules.h"
#include "models/families.h"
#include "tensor/base/format.h"

namespace eddy {

std::vector<ModelEntry> blockwise_recurrent_models() {
  constexpr const char* kFamily = "blockwise_recurrent";
  return {model_entry<MemoryLlama>(kFamily, "memory_llama",
                                   "Llama whose layers attend over a chunk and a memory of it"),
          model_entry<CausalLlama>(kFamily, "llama", "Llama: rotary positions, RMS norms, gated MLP"),
          model_entry<CausalLlama>(kFamily, "llama_window",
                                   "the same weights, each token seeing a window of keys")};
}

void check_blockwise_recurrent(const ModelConfig& c) {
  rules::width_of_heads(c);
  if (c.dim / c.heads % 2 != 0)
    fail<ConfigError>(
        "config: the width of a head must be even, rotary positions turn pairs: dim {}, heads {}, width {}",
        c.dim, c.heads, c.dim / c.heads);
  if (!(c.rope_theta > 0 && std::isfinite(c.rope_theta)))
    fail<ConfigError>("config: model.rope_theta is {} (above 0, finite)", c.rope_theta);
  rules::tied_head(c);
  rules::at_least("segment", c.segment, 0);
  rules::at_least("window", c.window, 0);
  rules::at_least("chunk", c.chunk, 1);
  rules::one_of("memory_qkv", c.memory_qkv, {"separate", "shared"});
  rules::one_of("memory_init", c.memory_init, {"learned", "zero"});
  rules::one_of("detach", c.detach, {"segment", "chunk"});
}

}  // namespace eddy
