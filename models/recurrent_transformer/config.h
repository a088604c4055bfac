// The config keys of this family with their descriptions, and the rules between them.
#pragma once

#include <cstdint>
#include <string>

#include "models/config.h"
#include "models/value_names.h"

namespace eddy::recurrent_transformer {

// The values of its keys.
// model.activation.
enum class Activation { gelu, relu };
// model.accumulate.
enum class Accumulate { output, hidden };

}  // namespace eddy::recurrent_transformer

namespace eddy {

// The names of its values.
template <>
struct ValueNames<recurrent_transformer::Activation> {
  // In the order of the values.
  static constexpr const char* all[] = {"gelu", "relu"};
};
// The names of Accumulate.
template <>
struct ValueNames<recurrent_transformer::Accumulate> {
  // In the order of the values.
  static constexpr const char* all[] = {"output", "hidden"};
};

}  // namespace eddy

namespace eddy::recurrent_transformer {

// The keys of this family; `describe` below says what each is.
struct Keys {
  // Their defaults.
  std::int64_t block = 1;
  bool positions = false;
  bool rotary = false;
  bool bias = false;
  std::string activation = value_name(Activation::gelu);
  std::string readout = value_name(Readout::all);
  std::string accumulate = value_name(Accumulate::output);
  double accumulate_factor = 0.5;
  bool keep_state = false;

  friend bool operator==(const Keys&, const Keys&) = default;
};
// With the common keys.
using Config = FamilyConfig<Keys>;

// Describes the keys of this family.
inline void describe(KeyList& keys, Keys& c) {
  keys.list_before("tied");
  keys.add("block", c.block, "Positions in a block of the recurrence", {1, 1'000'000'000})
      .read_by("block_forget block_accumulate");
  keys.add("positions", c.positions, "Whether learned positions are added to the embeddings")
      .read_by("recurrent_transformer");
  keys.add("rotary", c.rotary, "Whether queries and keys are turned by their positions (rotary positions)")
      .read_by("regular");
  keys.list_before("init_std");
  keys.add("bias", c.bias, "Whether norms and linear layers have biases").read_by("recurrent_transformer");
  keys.add("activation", c.activation, "Activation of the MLP", value_names<Activation>())
      .read_by("recurrent_transformer");
  keys.add("readout", c.readout, "Positions that give logits", value_names<Readout>())
      .read_by("recurrent_transformer");
  keys.add(
          "accumulate", c.accumulate,
          "What is added to later windows: outputs, as in the published code, or hidden states, as in equation 5",
          value_names<Accumulate>())
      .read_by("block_accumulate")
      .paper_quirk();
  keys.add("accumulate_factor", c.accumulate_factor, "What is added, times this")
      .read_by("block_accumulate")
      .paper_quirk();
  keys.add("keep_state", c.keep_state,
           "Whether a call goes on from the hidden rows of the last block of the call before, held constant")
      .read_by("unit_forget block_forget block_accumulate");
  keys.list_before("");
}

// errors: ConfigError naming the keys and their values.
void check(const Config& config);
// Sets the sizes that are not given so that they suit the others, for a new run.
void choose_sizes(Config& config, const GivenKeys& given);

}  // namespace eddy::recurrent_transformer
