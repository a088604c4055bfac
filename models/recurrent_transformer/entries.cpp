// The family's rows of the registry.
#include "models/families.h"
#include "models/recurrent_transformer/block_variant.h"

namespace eddy {

std::vector<ModelEntry> recurrent_transformer_models() {
  constexpr const char* kFamily = "recurrent_transformer";
  return {
      model_entry<UnitForget>(kFamily, "unit_forget", "unit recurrence with forget: state of one position"),
      model_entry<BlockForget>(kFamily, "block_forget", "block recurrence with forget: state of one block"),
      model_entry<BlockAccumulate>(kFamily, "block_accumulate",
                                   "block recurrence with accumulate: outputs are spread forward"),
      model_entry<RegularTransformer>(kFamily, "regular", "the regular causal transformer")};
}

}  // namespace eddy
