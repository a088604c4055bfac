// The config keys of this family, and the rules between them.
#include "models/recurrent_transformer/config.h"

#include "models/config_rules.h"

namespace eddy::recurrent_transformer {

void check(const ModelConfig& c) {
  rules::width_of_heads(c);
  rules::one_kind_of_heads(c);
  rules::tied_head(c);
}

void describe(KeyList& keys, ModelConfig& c) {
  keys.list_before("tied");
  keys.add("block", c.block, "Positions in a block of the recurrence", {1, 1'000'000'000})
      .read_by("block_forget block_accumulate");
  keys.add("positions", c.positions, "Whether learned positions are added to the embeddings")
      .read_by("recurrent_transformer");
  keys.list_before("init_std");
  keys.add("bias", c.bias, "Whether norms and linear layers have biases").read_by("recurrent_transformer");
  keys.add("activation", c.activation, "Activation of the MLP", {"gelu", "relu"})
      .read_by("recurrent_transformer");
  keys.add("readout", c.readout, "Positions that give logits", {"all", "last", "tail"})
      .read_by("recurrent_transformer");
  keys.add(
          "accumulate", c.accumulate,
          "What is added to later windows: outputs, as in the published code, or hidden states, as in equation 5",
          {"output", "hidden"})
      .read_by("block_accumulate")
      .oddity();
  keys.list_before("");
}

void fill(ModelConfig& c) {
  if (!has_blocks(c)) c.block = 1;
  c.readout = readout_of(c);
}

}  // namespace eddy::recurrent_transformer
