// Drawing tokens: the greedy choice, the cuts, the distribution, and the same draw for the same key.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>
#include <string>
#include <vector>

#include "tensor/base/error.h"
#include "tests/support/errors.h"
#include "train/generate/generate.h"

namespace {

using namespace eddy;
using namespace eddy::training;
using namespace eddy::test;

std::int32_t draw(const std::vector<float>& logits, const SampleOptions& options, std::uint64_t position) {
  return sample_token(logits.data(), static_cast<std::int64_t>(logits.size()), options, position);
}

std::set<std::int32_t> drawn(const std::vector<float>& logits, const SampleOptions& options,
                             int draws = 4000) {
  std::set<std::int32_t> ids;
  for (int i = 0; i < draws; ++i) ids.insert(draw(logits, options, static_cast<std::uint64_t>(i)));
  return ids;
}

// The largest difference, over the ids, between how often each came and its softmax share, in standard
// deviations.
double worst_deviation(const std::vector<float>& logits, const SampleOptions& options, int draws) {
  std::vector<double> counts(logits.size());
  for (int i = 0; i < draws; ++i)
    counts[static_cast<std::size_t>(draw(logits, options, static_cast<std::uint64_t>(i)))] += 1;
  double sum = 0;
  for (const float logit : logits) sum += std::exp(static_cast<double>(logit) / options.temperature);
  double worst = 0;
  for (std::size_t i = 0; i < logits.size(); ++i) {
    const double share = std::exp(static_cast<double>(logits[i]) / options.temperature) / sum;
    worst = std::max(worst, std::abs(counts[i] - draws * share) / std::sqrt(draws * share * (1 - share)));
  }
  return worst;
}

std::string error_of(const std::vector<float>& logits, const SampleOptions& options = {}) {
  return eddy::test::error_of<Error>([&] { draw(logits, options, 0); });
}

}  // namespace

TEST_CASE("sampler: temperature 0 takes the largest logit and the first of equals") {
  const SampleOptions greedy{.temperature = 0};
  for (std::uint64_t position = 0; position < 50; ++position) {
    CHECK(draw({1, 5, -2, 4}, greedy, position) == 1);
    CHECK(draw({1, 7, 7, 7}, greedy, position) == 1);
  }
  CHECK(draw({3}, greedy, 0) == 0);
}

TEST_CASE("sampler: draws follow the softmax at the temperature") {
  const std::vector<float> logits{0.0f, 1.5f, -1.0f, 0.75f, 2.0f};
  // Five counts beyond 4.5 deviations: chance 3e-5, and the draws are the same every time.
  for (const double temperature : {0.5, 1.0, 2.0}) {
    CAPTURE(temperature);
    CHECK(worst_deviation(logits, {.temperature = temperature}, 40000) <= 4.5);
  }
}

TEST_CASE("sampler: top-k and top-p of nothing left out draw by the same distribution") {
  const std::vector<float> logits{0.0f, 1.5f, -1.0f, 0.75f, 2.0f};
  CHECK(worst_deviation(logits, {.top_k = 5}, 20000) <= 4.5);
  CHECK(worst_deviation(logits, {.top_k = 100}, 20000) <= 4.5);
  CHECK(worst_deviation(logits, {.top_p = 1 - 1e-12}, 20000) <= 4.5);
}

TEST_CASE("sampler: top-k draws all of the k largest and nothing else") {
  const std::vector<float> logits{0.0f, 1.5f, -1.0f, 0.75f, 2.0f};
  CHECK(drawn(logits, {.top_k = 1}) == std::set<std::int32_t>{4});
  CHECK(drawn(logits, {.top_k = 3}) == std::set<std::int32_t>{1, 3, 4});
  CHECK(drawn({1, 1, 1, 1}, {.top_k = 2}) == std::set<std::int32_t>{0, 1});
}

TEST_CASE("sampler: top-p draws the fewest tokens whose share reaches p and always one") {
  // Shares 0.5, 0.25, 0.125, 0.125.
  const std::vector<float> logits{std::log(0.5f), std::log(0.25f), std::log(0.125f), std::log(0.125f)};
  CHECK(drawn(logits, {.top_p = 1e-9}) == std::set<std::int32_t>{0});
  CHECK(drawn(logits, {.top_p = 0.4}) == std::set<std::int32_t>{0});
  CHECK(drawn(logits, {.top_p = 0.6}) == std::set<std::int32_t>{0, 1});
  CHECK(drawn(logits, {.top_p = 0.8}) == std::set<std::int32_t>{0, 1, 2});
  CHECK(drawn(logits, {.top_p = 0.9}) == std::set<std::int32_t>{0, 1, 2, 3});
  // Of the two largest, 0 has a share of 2/3.
  CHECK(drawn(logits, {.top_k = 2, .top_p = 0.6}) == std::set<std::int32_t>{0});
}

TEST_CASE("sampler: a draw depends on seed and position alone") {
  const std::vector<float> logits(40, 0.0f);
  SampleOptions options;
  std::vector<std::int32_t> forwards(100), backwards(100), other(100);
  for (std::size_t i = 0; i < 100; ++i) forwards[i] = draw(logits, options, i);
  for (std::size_t i = 100; i-- > 0;) backwards[i] = draw(logits, options, i);
  CHECK(forwards == backwards);
  options.seed = 2;
  for (std::size_t i = 0; i < 100; ++i) other[i] = draw(logits, options, i);
  CHECK(forwards != other);
}

TEST_CASE("sampler: extreme logits and temperatures neither overflow nor draw the impossible") {
  const float huge = std::numeric_limits<float>::max();
  CHECK(drawn({-huge, huge}, {}) == std::set<std::int32_t>{1});
  CHECK(drawn({1.0f, 1.0f + 1e-6f}, {.temperature = 1e-300}) == std::set<std::int32_t>{1});
  CHECK(drawn({0.0f, 5.0f}, {.temperature = 1e300}) == std::set<std::int32_t>{0, 1});
}

TEST_CASE("sampler: logits that are not finite are a typed error that names the first") {
  const float nan = std::numeric_limits<float>::quiet_NaN(),
              infinity = std::numeric_limits<float>::infinity();
  for (const SampleOptions& options : {SampleOptions{}, SampleOptions{.temperature = 0}}) {
    for (const float bad : {nan, infinity, -infinity}) {
      CHECK_THROWS_AS(draw({0, 1, bad}, options, 0), NonFiniteError);
      CHECK(error_of({0, 1, bad}, options).find("logit 2 of 3") != std::string::npos);
    }
  }
}

TEST_CASE("sampler: options out of range are refused with the rule") {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  CHECK_THROWS_AS(draw({0, 1}, {.temperature = -1}, 0), ValueError);
  CHECK(error_of({0, 1}, {.temperature = nan}).find("temperature is nan (at least 0") != std::string::npos);
  CHECK(error_of({0, 1}, {.top_k = -1}).find("top_k is -1") != std::string::npos);
  CHECK(error_of({0, 1}, {.top_p = 0}).find("top_p is 0") != std::string::npos);
  CHECK(error_of({0, 1}, {.top_p = 1.5}).find("top_p is 1.5") != std::string::npos);
  CHECK(error_of({0, 1}, {.top_p = nan}).find("top_p is nan") != std::string::npos);
  CHECK(error_of({}).find("0 logits") != std::string::npos);
}
