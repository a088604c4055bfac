// The models of the recurrent transformers, in the order in which lists show them.
#include <vector>

#include "models/model.h"
#include "models/recurrent_transformer/block_recurrence.h"

namespace eddy::recurrent_transformer {

std::vector<ListedModel<Keys>> models() {
  return {
      listed<UnitForget>("unit_forget", "unit recurrence with forget: state of one position",
                         {ExampleOf::recurrence}),
      listed<BlockForget>("block_forget", "block recurrence with forget: state of one block",
                          {ExampleOf::recurrence}),
      listed<BlockAccumulate>("block_accumulate",
                              "block recurrence with accumulate: outputs are spread forward"),
      listed<RegularTransformer>("regular", "the regular causal transformer", {ExampleOf::plain_attention}),
  };
}

}  // namespace eddy::recurrent_transformer
