// The models of the Block-Recurrent family, in the order in which lists show them.
#include <vector>

#include "models/block_recurrent/block_recurrent.h"
#include "models/model.h"

namespace eddy::block_recurrent {

std::vector<ListedModel<Keys>> models() {
  return {
      listed<BlockRecurrent>("slide",
                             "sliding-window transformer: gradients between the blocks of a segment"),
      listed<BlockRecurrent>("xl", "one window per segment, keys of the last one cached"),
      listed<BlockRecurrent>("vanilla", "one window per segment, no cache"),
      listed<BlockRecurrent>("block_recurrent",
                             "recurrent cells over blocks of tokens, optionally with feedback",
                             {ExampleOf::recurrence}),
      listed<BlockRecurrent>("memorizing", "external memory of past keys and values"),
  };
}

}  // namespace eddy::block_recurrent
