// The range, and its draws.
#include "train/tasks/block_sizes.h"

#include "models/eddy/config.h"
#include "tensor/base/format.h"
#include "tensor/random/philox.h"
#include "tensor/random/uniform_draw.h"

namespace eddy::training {

void describe(KeyList& keys, BlockKeys& c) {
  keys.list_before("noise");
  keys.add("block_min", c.block_min,
           "Smallest block size that a step draws (text: read as windows); 0: model.block",
           {0, 1'000'000'000});
  keys.add("block_max", c.block_max, "Largest block size that a step draws; 0: model.block",
           {0, 1'000'000'000});
}

void check_block_sizes(const RunConfig& config, bool training) {
  const auto& data = config.data.extensions.get<BlockKeys>();
  if (data.block_max < data.block_min)
    fail<ConfigError>(
        "config: data.block_min is {} and data.block_max {} (a range, or 0 and 0 for model.block)",
        data.block_min, data.block_max);
  if (!training || data.block_max == 0) return;
  if (data.block_min < 1)
    fail<ConfigError>(
        "config: data.block_min is {} and data.block_max {} (from 1 on, or 0 and 0 for model.block)",
        data.block_min, data.block_max);
  if (!reads_key(config.model, "block"))
    fail<ConfigError>(
        "config: data.block_min is {} and data.block_max {}, and {} has no blocks (leave them out)",
        data.block_min, data.block_max, config.model.model);
}

std::int64_t drawn_block(const DataConfig& config, std::int64_t seed, std::int64_t step, const char* stream) {
  const auto& data = config.extensions.get<BlockKeys>();
  if (data.block_max == 0) return 0;
  const RandomKey key =
      random_key(static_cast<std::uint64_t>(seed), stream, static_cast<std::uint64_t>(step));
  const auto choices = static_cast<std::uint64_t>(data.block_max - data.block_min + 1);
  return data.block_min + static_cast<std::int64_t>(uniform_below(key, 0, choices));
}

}  // namespace eddy::training
