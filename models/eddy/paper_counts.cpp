// By the names of models.
#include "models/eddy/paper_counts.h"

#include <algorithm>
#include <limits>

#include "models/recurrent_transformer/paper_operations.h"

namespace eddy {

std::int64_t recurrent_steps(const ModelConfig& config) {
  if (config.model == "staircase") return config.steps;
  if (config.model == "cached_staircase") return std::max<std::int64_t>(config.cache_after, 1);
  if (config.model == "ladder" || config.model == "universal") return config.repeats;
  return 1;
}

double paper_operations(const ModelConfig& config, std::int64_t tokens) {
  if (config.family != "recurrent_transformer") return std::numeric_limits<double>::quiet_NaN();
  return recurrent_transformer::paper_operations(part_of<recurrent_transformer::Config>(config), tokens);
}

}  // namespace eddy
