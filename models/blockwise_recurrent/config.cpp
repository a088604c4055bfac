// The rules between the config keys of this family, and defaults that depend on other keys.
#include "models/blockwise_recurrent/config.h"

namespace eddy::blockwise_recurrent {

void check(const Config& c) {
  rules::heads(c);
  rules::width_of_heads(c);
  rules::even_heads(c);
  rules::tied_head(c);
}

// The paper cuts its sequences of 256 into chunks of 32; a sliding window there sees as many tokens as two chunks.
void choose_sizes(Config& c, const GivenKeys& given) {
  const std::int64_t segment = segment_of(c);
  if (!given.contains("layers")) c.layers = 2;
  if (c.model == "memory_llama" && !given.contains("chunk")) c.chunk = even_part(segment, segment / 8);
  if (c.model == "llama_window" && !given.contains("window")) c.window = even_part(segment, segment / 4);
}

void fill(Config& c) {
  if (c.family == "blockwise_recurrent" && c.mlp_dim == 0) c.mlp_dim = (2 * 4 * c.dim / 3 + 31) / 32 * 32;
}

}  // namespace eddy::blockwise_recurrent
