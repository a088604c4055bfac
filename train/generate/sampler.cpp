// The greedy choice, top_k and top_p, and the draw by inverting the cumulative sum.
#include "train/generate/generate.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "tensor/base/format.h"
#include "tensor/random/philox.h"

namespace eddy::training {
namespace {

void check_logits(const float* logits, std::int64_t count) {
  if (count < 1 || count > std::numeric_limits<std::int32_t>::max())
    fail<ValueError>("sample_token: {} logits (from 1 to 2^31 - 1)", count);
  for (std::int64_t i = 0; i < count; ++i)
    if (!std::isfinite(logits[i]))
      fail<NonFiniteError>(
          "sample_token: logit {} of {} is {} (logits must be finite; the weights of the model are "
          "probably not)",
          i, count, logits[i]);
}

// Uniform in [0, 1) with 53 bits, all that a double holds.
double uniform_double(const RandomKey& key) {
  const Philox4 words = key.words(0);
  const std::uint64_t bits = (static_cast<std::uint64_t>(words.word[0]) << 32) | words.word[1];
  return static_cast<double>(bits >> 11) * 0x1p-53;
}

}  // namespace

void validate(const SampleOptions& options) {
  if (!(options.temperature >= 0 && std::isfinite(options.temperature)))
    fail<ValueError>("sample: temperature is {} (at least 0, finite; 0 takes the most probable token)",
                     options.temperature);
  if (options.top_k < 0)
    fail<ValueError>("sample: top_k is {} (at least 0; 0 keeps all tokens)", options.top_k);
  if (!(options.top_p > 0 && options.top_p <= 1))
    fail<ValueError>("sample: top_p is {} (above 0, at most 1; 1 keeps all tokens)", options.top_p);
}

std::int32_t sample_token(const float* logits, std::int64_t count, const SampleOptions& options,
                          std::uint64_t position) {
  validate(options);
  check_logits(logits, count);
  const float* const largest = std::max_element(logits, logits + count);  // the first of equals
  if (options.temperature == 0) return static_cast<std::int32_t>(largest - logits);

  std::vector<std::int32_t> ids(static_cast<std::size_t>(count));
  std::iota(ids.begin(), ids.end(), 0);
  const auto before = [logits](std::int32_t a, std::int32_t b) {
    return logits[a] != logits[b] ? logits[a] > logits[b] : a < b;
  };
  if (options.top_k > 0 && options.top_k < count) {
    std::nth_element(ids.begin(), ids.begin() + options.top_k - 1, ids.end(), before);
    ids.resize(static_cast<std::size_t>(options.top_k));
  }
  // The library's partial sort leaves the ids in an unspecified order; sorted, the draw depends only on the
  // logits.
  if (std::ssize(ids) < count || options.top_p < 1) std::sort(ids.begin(), ids.end(), before);

  std::vector<double> weights(ids.size());
  double total = 0;
  for (std::size_t i = 0; i < ids.size(); ++i) {
    const double distance = static_cast<double>(logits[ids[i]]) - static_cast<double>(*largest);
    // A distance of 0 is not divided: 0 / temperature is 0 anyway, and the sum is then at least 1.
    weights[i] = distance == 0 ? 1.0 : std::exp(distance / options.temperature);
    total += weights[i];
  }
  if (options.top_p < 1) {
    double sum = 0;
    std::size_t kept = 0;
    while (kept < weights.size() && (kept == 0 || sum < options.top_p * total)) sum += weights[kept++];
    weights.resize(kept);
    total = sum;
  }

  const double point = uniform_double(random_key(options.seed, "sample", position)) * total;
  double sum = 0;
  std::size_t drawn = 0;
  for (std::size_t i = 0; i < weights.size(); ++i) {
    if (weights[i] == 0) continue;  // so that rounding never draws what cannot occur
    drawn = i;
    sum += weights[i];
    if (point < sum) break;
  }
  return ids[drawn];
}

}  // namespace eddy::training
