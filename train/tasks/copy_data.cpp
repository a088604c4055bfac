// Examples, each drawn from its own random stream, and the curriculum.
#include "train/tasks/copy_data.h"

#include <algorithm>
#include <cmath>

#include "tensor/base/format.h"
#include "tensor/random/uniform_draw.h"

namespace eddy::training {
namespace {

// A uniformly drawn set of `count` of the places 0 … places - 1, in ascending order.
// source: R. Floyd's sampling without replacement (J. Bentley, "Programming pearls", 1987).
std::vector<std::int64_t> draw_places(const RandomKey& key, std::uint64_t first_draw, std::int64_t places,
                                      std::int64_t count) {
  std::vector<std::int64_t> drawn;
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t last = places - count + i;
    const auto place = static_cast<std::int64_t>(
        uniform_below(key, first_draw + static_cast<std::uint64_t>(i), static_cast<std::uint64_t>(last) + 1));
    const bool taken = std::find(drawn.begin(), drawn.end(), place) != drawn.end();
    drawn.push_back(taken ? last : place);
  }
  std::sort(drawn.begin(), drawn.end());
  return drawn;
}

}  // namespace

CopyExamples copy_examples(const RandomKey& key, std::int64_t first_row, std::int64_t rows,
                           std::int64_t symbols, std::int64_t noise, bool selective) {
  if (rows < 1 || symbols < 1 || noise < 0)
    fail<ValueError>("copy: rows {}, symbols {}, noise {} (at least 1, 1 and 0)", rows, symbols, noise);
  const std::int64_t body = symbols + noise, length = body + symbols;
  CopyExamples examples{std::vector<std::int32_t>(static_cast<std::size_t>(rows * length)),
                        std::vector<std::int32_t>(static_cast<std::size_t>(rows * symbols))};
  for (std::int64_t row = 0; row < rows; ++row) {
    std::int32_t* tokens = examples.tokens.data() + row * length;
    std::int32_t* targets = examples.targets.data() + row * symbols;
    // A row owns 2 * symbols draws: its symbols and their places.
    const auto draw = static_cast<std::uint64_t>((first_row + row) * 2 * symbols);
    for (std::int64_t i = 0; i < symbols; ++i)
      targets[i] =
          1 + static_cast<std::int32_t>(uniform_below(key, draw + static_cast<std::uint64_t>(i), 14));
    std::vector<std::int64_t> places;
    if (selective) places = draw_places(key, draw + static_cast<std::uint64_t>(symbols), body, symbols);
    for (std::int64_t i = 0; i < symbols; ++i)
      tokens[selective ? places[static_cast<std::size_t>(i)] : i] = targets[i];
    std::fill(tokens + body, tokens + length, kCopyMarker);
  }
  return examples;
}

double CopyCurriculum::paper_rate() const {
  const auto context = [this](std::int64_t n) { return static_cast<double>(2 * symbols + n); };
  return first_rate * (1 - 0.5 * context(noise) / context(longest));
}

void CopyCurriculum::begin() {
  base = rate = paper_rule ? paper_rate() : first_rate;
}

bool CopyCurriculum::update(double loss) {
  if (!std::isfinite(loss)) return false;
  const double rate_before = rate;
  const bool grows = loss < 0.3 && noise < longest;
  if (grows) noise = std::min(2 * noise, longest);
  if (paper_rule) {
    base = paper_rate();
    rate = noise == longest ? base * (1 - std::exp(-loss)) : base;
    return grows;
  }
  if (grows) {
    base *= 1 - 0.5 * static_cast<double>(noise) / static_cast<double>(longest);
    rate = base;
  }
  if (noise == longest) {
    const double lower = base * (1 - std::exp(-loss));
    if (lower < rate_before) rate = lower;
  }
  return grows;
}

std::int64_t copy_block(std::int64_t noise, std::int64_t largest) {
  return std::max<std::int64_t>(1, std::min(noise / 2, largest));
}

}  // namespace eddy::training
