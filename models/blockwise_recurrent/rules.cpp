// The rules between the config keys of this family.
#include <cmath>

#include "models/config_rules.h"
#include "tensor/base/format.h"

namespace eddy::rules {

void check_blockwise_recurrent(const ModelConfig& c) {
  width_of_heads(c);
  if (c.dim / c.heads % 2 != 0)
    fail<ConfigError>(
        "config: the width of a head must be even, rotary positions turn pairs: dim {}, heads {}, width {}",
        c.dim, c.heads, c.dim / c.heads);
  if (!(c.rope_theta > 0 && std::isfinite(c.rope_theta)))
    fail<ConfigError>("config: model.rope_theta is {} (above 0, finite)", c.rope_theta);
  tied_head(c);
  at_least(0, {{"segment", c.segment}, {"window", c.window}});
  at_least(1, {{"chunk", c.chunk}});
  one_of("memory_qkv", c.memory_qkv, {"separate", "shared"});
  one_of("memory_init", c.memory_init, {"learned", "zero"});
  one_of("detach", c.detach, {"segment", "chunk"});
}

}  // namespace eddy::rules
