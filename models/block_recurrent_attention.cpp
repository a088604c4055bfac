// Buckets, heads, and the dense form of attention.
#include "models/block_recurrent_attention.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "ops/dropout.h"
#include "ops/gather.h"
#include "ops/matmul.h"
#include "ops/pointwise.h"
#include "ops/softmax.h"
#include "ops/unit_norm.h"
#include "ops/views.h"

namespace eddy {
namespace {

Tensor on_device(const Tensor& x, Device device) {
  return device == kCpu ? x : raw::to_device(x, device);
}

}  // namespace

std::int64_t relative_bucket(std::int64_t distance, std::int64_t buckets, std::int64_t max_distance) {
  const std::int64_t exact = buckets / 2;
  if (distance < exact) return distance;
  // The authors' nudge of one f32 epsilon lands distances on a border in the bucket that begins there.
  const auto from = static_cast<double>(exact);
  const double position =
      std::log(static_cast<double>(distance) / from + std::numeric_limits<float>::epsilon()) /
      std::log(static_cast<double>(max_distance) / from);
  const double bucket = std::floor(position * static_cast<double>(buckets - exact));
  return std::min(buckets - 1, exact + static_cast<std::int64_t>(bucket));
}

Tensor bucket_index(const ModelConfig& config, Device device) {
  std::vector<std::int64_t> index(static_cast<std::size_t>(config.heads * (config.window + 1)));
  for (std::int64_t distance = 0; distance <= config.window; ++distance) {
    const std::int64_t bucket = relative_bucket(distance, config.rel_buckets, config.rel_max_distance);
    for (std::int64_t head = 0; head < config.heads; ++head)
      index[static_cast<std::size_t>(head * (config.window + 1) + distance)] = bucket;
  }
  return on_device(Tensor::from(index, {config.heads, config.window + 1}), device);
}

Tensor spread_bias(const Tensor& table, const Tensor& index) {
  return gather(table, 1, index);
}

Tensor HeadRules::split(const Tensor& x) const {
  return reshape(x, {x.dim(0), x.dim(1), heads, head_dim});
}

Tensor HeadRules::split_unit(const Tensor& x) const {
  return unit ? unit_norm(split(x), eps) : split(x);
}

Tensor HeadRules::join(const Tensor& x) const {
  return reshape(x, {x.dim(0), x.dim(1), heads * head_dim});
}

Tensor HeadRules::scale(const Tensor& learned) const {
  return absolute ? abs(learned) : learned;
}

Tensor dense_attention(const Tensor& q, const Tensor& k, const Tensor& v, const AttentionOptions& options) {
  detail::check_attention("dense_attention", q, k, v, options);
  const std::int64_t queries = q.dim(1), keys = k.dim(1), heads = q.dim(2);
  const std::int64_t least =
      options.causal ? std::max<std::int64_t>(0, options.band.least) : options.band.least;

  const std::int64_t columns = options.bias.defined() ? options.bias.dim(1) : 1;
  std::vector<std::uint8_t> visible(static_cast<std::size_t>(queries * keys));
  std::vector<std::int64_t> column(visible.size() * static_cast<std::size_t>(heads));
  for (std::int64_t j = 0; j < queries; ++j)
    for (std::int64_t t = 0; t < keys; ++t) {
      const std::int64_t distance = j + keys - queries - t;
      const auto at = static_cast<std::size_t>(j * keys + t);
      visible[at] = distance >= least && distance <= options.band.most;
      for (std::int64_t head = 0; head < heads; ++head)
        column[static_cast<std::size_t>(head) * visible.size() + at] =
            std::clamp<std::int64_t>(distance, 0, columns - 1);
    }

  Tensor scores = matmul(transpose(q, 1, 2), transpose(transpose(k, 1, 2), 2, 3));
  if (options.bias.defined()) {
    const Tensor index = on_device(Tensor::from(column, {heads, queries * keys}), q.device());
    scores = scores + reshape(gather(options.bias, 1, index), {heads, queries, keys});
  }
  scores = scores * detail::attention_scale(options, q.dim(3));
  if (options.head_scale.defined()) scores = scores * reshape(options.head_scale, {heads, 1, 1});
  const Tensor mask = on_device(Tensor::from(visible, {queries, keys}), q.device());
  Tensor probabilities = softmax(scores, SoftmaxMode::plain, mask);
  if (options.dropout > 0) probabilities = dropout(probabilities, options.dropout, options.dropout_key);
  return contiguous(transpose(matmul(probabilities, transpose(v, 1, 2)), 1, 2));
}

}  // namespace eddy
