// Block sizes that are drawn anew for each step, against over-fitting to one of them.
// Source: Kausik, "Recurrent Transformers" (2025), block recurrence with forget.
#pragma once

#include <cstdint>

#include "train/config/run_config.h"

namespace eddy::training {

// The keys of the tasks that draw them.
struct BlockKeys {
  std::int64_t block_min =
      0;  // each step draws its block size from block_min to block_max; 0, 0: model.block
  std::int64_t block_max = 0;

  friend bool operator==(const BlockKeys&, const BlockKeys&) = default;
};
void describe(KeyList& keys, BlockKeys& config);

// errors: ConfigError where data.block_min and data.block_max are no range, or the model has no blocks. What is only
// measured draws none: there the order alone is checked.
void check_block_sizes(const RunConfig& config, bool training);

// The block size of a step, uniform over block_min to block_max; 0 (model.block) where none are drawn.
// `stream` names the random numbers.
std::int64_t drawn_block(const DataConfig& config, std::int64_t seed, std::int64_t step, const char* stream);

}  // namespace eddy::training
