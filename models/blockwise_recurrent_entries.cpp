// The family's rows of the registry, the configurations of its paper, and the rules between its config keys.
#include "models/families.h"

namespace eddy {

std::vector<ModelEntry> blockwise_recurrent_models() {
  return {};
}

std::vector<NamedConfig> blockwise_recurrent_configs() {
  return {};
}

void check_blockwise_recurrent(const ModelConfig&) {}

}  // namespace eddy
