// The rules between the config keys of this family.
#include "models/recurrent_transformer/config.h"

namespace eddy::recurrent_transformer {

void check(const Config& c) {
  rules::heads(c);
  rules::width_of_heads(c);
  rules::one_kind_of_heads(c);
  rules::tied_head(c);
}

}  // namespace eddy::recurrent_transformer
