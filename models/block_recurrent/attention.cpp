// Buckets of distances, and the split into heads.
#include "models/block_recurrent/attention.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "ops/index/gather.h"

namespace eddy {
std::int64_t relative_bucket(std::int64_t distance, std::int64_t buckets, std::int64_t max_distance) {
  const std::int64_t exact = buckets / 2;
  if (distance < exact) return distance;
  // As in the authors' code, one f32 epsilon puts a distance on a border into the bucket that begins there.
  const auto from = static_cast<double>(exact);
  const double position =
      std::log(static_cast<double>(distance) / from + std::numeric_limits<float>::epsilon()) /
      std::log(static_cast<double>(max_distance) / from);
  const double bucket = std::floor(position * static_cast<double>(buckets - exact));
  return std::min(buckets - 1, exact + static_cast<std::int64_t>(bucket));
}

Tensor bucket_index(const block_recurrent::Config& config, Device device) {
  std::vector<std::int64_t> index(static_cast<std::size_t>(config.heads * (config.window + 1)));
  for (std::int64_t distance = 0; distance <= config.window; ++distance) {
    const std::int64_t bucket = relative_bucket(distance, config.rel_buckets, config.rel_max_distance);
    for (std::int64_t head = 0; head < config.heads; ++head)
      index[static_cast<std::size_t>(head * (config.window + 1) + distance)] = bucket;
  }
  return raw::to_device(Tensor::from(index, {config.heads, config.window + 1}), device);
}

Tensor distance_bias(const Tensor& table, const Tensor& index) {
  return gather(table, 1, index);
}

Tensor HeadRules::split_queries(const Tensor& x) const {
  return unit ? unit_norm(split(x), eps) : split(x) * (1 / std::sqrt(static_cast<double>(head_dim)));
}

Tensor HeadRules::learned_scale(const ParamScope& scope, const std::string& name) const {
  if (unit) return scope.param(name, {heads}, Init::ones());
  return scope.omitted(name,
                       "model.qk_norm = false has no scales of heads: train such a model anew; where all "
                       "scales are 1, take them out of the file");
}

}  // namespace eddy
