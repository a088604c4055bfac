// The models of the block-wise recurrent family, in the order in which lists show them.
#include <vector>

#include "models/blockwise_recurrent/blockwise_recurrent.h"
#include "models/model.h"

namespace eddy::blockwise_recurrent {

std::vector<ListedModel<Keys>> models() {
  return {
      listed<MemoryLlama>("memory_llama", "Llama whose layers attend over a chunk and a memory of it",
                          {ExampleOf::recurrence}),
      listed<CausalLlama>("llama", "Llama: rotary positions, RMS norms, gated MLP"),
      listed<CausalLlama>("llama_window", "the same weights, each token seeing a window of keys"),
  };
}

}  // namespace eddy::blockwise_recurrent
