// Sums over the text for each number of a state, and the shades of those that are chosen.
#include "train/app/inspect/state_map.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <utility>

#include "tensor/base/format.h"

namespace eddy::app {

std::string StateRow::name() const {
  return fmt::format("{}[{}]", path, index);
}

void StateChooser::visit(const std::string& path, std::int64_t from, std::int64_t to,
                         std::span<const double> numbers) {
  call_[path][from] = {to, {numbers.begin(), numbers.end()}, {}};
}

void StateChooser::visit_cleared(const std::string& path, std::int64_t from,
                                 std::span<const double> numbers) {
  const auto state = call_.find(path);
  if (state == call_.end()) return;
  const auto behind = state->second.find(from);
  if (behind != state->second.end()) behind->second.cleared.assign(numbers.begin(), numbers.end());
}

void StateChooser::end_call(std::int64_t begin, std::span<const double> saved) {
  for (const auto& [path, states] : call_) {
    Sums& sums = sums_[path];
    for (const auto& [from, behind] : states) {
      const std::vector<double>& x = behind.numbers;
      if (sums.origin.empty()) {
        sums.origin = x;
        sums.sum.assign(x.size(), 0);
        sums.squares.assign(x.size(), 0);
        sums.differs.assign(x.size(), 0);
      }
      if (x.size() != sums.origin.size()) continue;  // a state that grows
      ++sums.count;
      for (std::size_t i = 0; i < x.size(); ++i) {
        const double from_origin = x[i] - sums.origin[i];
        sums.sum[i] += from_origin;
        sums.squares[i] += from_origin * from_origin;
      }
      if (behind.cleared.size() != x.size()) continue;
      double weight = 0;
      for (std::int64_t token = from; token < behind.to; ++token)
        if (const auto at = static_cast<std::size_t>(token - begin); at < saved.size() && saved[at] > 0)
          weight += saved[at];
      if (!(weight > 0) || !std::isfinite(weight)) continue;
      sums.weight += weight;
      for (std::size_t i = 0; i < x.size(); ++i)
        sums.differs[i] += weight * std::abs(x[i] - behind.cleared[i]);
    }
  }
  call_.clear();
}

StateMap StateChooser::choose(std::int64_t most) const {
  struct Candidate {
    const std::string* path;
    std::int64_t index;
    double score;
  };
  std::vector<Candidate> found;
  StateMap map;
  for (const auto& [path, sums] : sums_) map.by_gain = map.by_gain || sums.weight > 0;
  for (const auto& [path, sums] : sums_) {
    map.parts.push_back({path, std::ssize(sums.origin)});
    for (std::size_t i = 0; i < sums.origin.size(); ++i) {
      const double mean = sums.sum[i] / sums.count;
      const double spread = std::sqrt(std::max(0.0, sums.squares[i] / sums.count - mean * mean));
      if (!(spread > 0) || !std::isfinite(spread)) continue;
      const double score = !map.by_gain      ? spread
                           : sums.weight > 0 ? sums.differs[i] / sums.weight / spread
                                             : 0;
      if (score > 0) found.push_back({&path, static_cast<std::int64_t>(i), score});
    }
  }
  std::ranges::stable_sort(found, std::greater(), &Candidate::score);
  for (const Candidate& one : found) {
    if (std::ssize(map.rows) == most) break;
    map.rows.push_back({*one.path, one.index, one.score});
  }
  for (StateMap::Part& part : map.parts)
    part.shown = std::ranges::count(map.rows, part.path, &StateRow::path);
  return map;
}

StateShader::StateShader(StateMap map, std::int64_t tokens, std::int64_t bytes)
    : map_(std::move(map)), tokens_(tokens) {
  const auto rows = std::ssize(map_.rows);
  map_.columns = rows > 0 ? std::clamp<std::int64_t>(bytes / rows, 1, tokens) : 0;
  const auto columns = static_cast<std::size_t>(map_.columns);
  sum_.assign(map_.rows.size(), std::vector<double>(columns, 0));
  count_.assign(map_.rows.size(), std::vector<float>(columns, 0));
}

void StateShader::visit(const std::string& path, std::int64_t from, std::int64_t to,
                        std::span<const double> numbers) {
  for (std::size_t row = 0; row < map_.rows.size(); ++row) {
    const StateRow& shown = map_.rows[row];
    if (shown.path != path || shown.index >= std::ssize(numbers)) continue;
    const double x = numbers[static_cast<std::size_t>(shown.index)];
    if (!std::isfinite(x)) continue;
    for (std::int64_t token = from; token < to; ++token) {
      const auto column = static_cast<std::size_t>(token * map_.columns / tokens_);
      sum_[row][column] += x;
      ++count_[row][column];
    }
  }
}

// The ends of the shades: all but one in a hundred columns lie between them, on either side.
StateMap StateShader::take() && {
  for (std::size_t row = 0; row < map_.rows.size(); ++row) {
    StateRow& shown = map_.rows[row];
    std::vector<double> means(sum_[row].size()), sorted;
    for (std::size_t column = 0; column < means.size(); ++column) {
      if (count_[row][column] == 0) continue;
      means[column] = sum_[row][column] / static_cast<double>(count_[row][column]);
      sorted.push_back(means[column]);
    }
    std::ranges::sort(sorted);
    if (!sorted.empty()) {
      const std::size_t rare = sorted.size() / 100;
      shown.low = sorted[rare];
      shown.high = sorted[sorted.size() - 1 - rare];
    }
    const double range = shown.high - shown.low;
    shown.shade.assign(means.size(), 255);
    for (std::size_t column = 0; column < means.size(); ++column)
      if (count_[row][column] > 0)
        shown.shade[column] = static_cast<std::uint8_t>(
            std::lround(range > 0 ? std::clamp((means[column] - shown.low) / range, 0.0, 1.0) * 254 : 127));
  }
  return std::move(map_);
}

}  // namespace eddy::app
