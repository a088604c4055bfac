// The family's rows of the registry, and the configurations of its paper (Kausik 2025).
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

std::vector<NamedConfig> recurrent_transformer_configs() {
  ModelConfig unit;  // Shakespeare: d 384, 6 heads, 256 positions, 65 characters
  unit.vocab = 65;
  unit.dropout = 0.2;
  ModelConfig unit_positions = unit;
  unit_positions.positions = true;
  ModelConfig regular_1 = unit_positions;
  regular_1.model = "regular";
  ModelConfig regular_6 = regular_1;
  regular_6.layers = 6;
  ModelConfig cifar = regular_1;
  cifar.vocab = 256;
  cifar.n_out = 10;
  cifar.context = 1024;
  cifar.dim = 32;
  cifar.heads = 4;
  cifar.layers = 4;
  cifar.tied = false;
  cifar.activation = "relu";
  cifar.readout = "last";
  cifar.dropout = 0.05;
  ModelConfig cifar_block = cifar;  // trained on blocks of 16 to 48, evaluated on 32
  cifar_block.model = "block_forget";
  cifar_block.layers = 1;
  cifar_block.block = 32;
  ModelConfig copy;  // 16 symbols, 4096 of noise, 16 markers
  copy.model = "block_accumulate";
  copy.vocab = 16;
  copy.context = 4128;
  copy.dim = 96;
  copy.heads = 6;
  copy.block = 32;
  copy.positions = true;
  copy.activation = "relu";
  copy.readout = "tail";
  copy.dropout = 0.05;
  return {{"shakespeare_unit", unit, 1'795'584},
          {"shakespeare_unit_pos", unit_positions, 1'893'888},
          {"shakespeare_regular_1", regular_1, 1'893'888},
          {"shakespeare_regular_6", regular_6, 10'745'088},
          {"cifar_block", cifar_block, 53'664},
          {"cifar_regular", cifar, 90'720},
          {"copy", copy, 508'704}};
}

}  // namespace eddy
