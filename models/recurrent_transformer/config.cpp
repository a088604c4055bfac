// The rules between the config keys of this family.
#include "models/recurrent_transformer/config.h"

#include "tensor/base/format.h"

namespace eddy::recurrent_transformer {

void check(const Config& c) {
  rules::heads(c);
  rules::width_of_heads(c);
  rules::one_kind_of_heads(c);
  rules::tied_head(c);
  if (c.rotary && c.model == "regular") rules::even_heads(c);
  if (c.keep_state && c.positions && c.model != "regular")
    fail<ConfigError>(
        "config: model.keep_state and model.positions are both true (a call goes on from the one before, and positions "
        "begin at 0 in each: leave one out)");
}

// A block is an eighth of the context. One recurrent layer is the paper's; without a recurrence it has more.
void choose_sizes(Config& c, const GivenKeys& given) {
  if (!given.contains("block")) c.block = even_part(c.context, c.context / 8);
  if (!given.contains("layers") && c.model == "regular") c.layers = 2;
}

}  // namespace eddy::recurrent_transformer
