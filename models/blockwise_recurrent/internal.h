// Functions that only the .cpp files of this folder share.
#pragma once

#include "models/blockwise_recurrent/blockwise_recurrent.h"
#include "ops/attention/attention.h"

namespace eddy {

// The causal attention of chunk `chunk` of a layer.
inline AttentionOptions chunk_attention(const LlamaLayer& layer, const DropoutSite& drop,
                                        std::uint64_t chunk) {
  AttentionOptions options;
  options.causal = true;
  drop.set_attention(options, layer.path + ".attn.probabilities", chunk);
  return options;
}

}  // namespace eddy
