// The answer to exercise 7: log p = logit - largest - log(sum of exp(logit - largest)), which never overflows.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <vector>

using Numbers = std::vector<double>;
using Size = std::size_t;

struct Loss {
  double loss = 0;
  Numbers dlogits;
};

Loss cross_entropy(const Numbers& logits, const std::vector<int>& targets, Size classes) {
  Loss result{0, Numbers(logits.size())};
  const auto ignored = std::count(targets.begin(), targets.end(), -1);
  const double counted = static_cast<double>(targets.size()) - static_cast<double>(ignored);
  for (Size r = 0; r < targets.size(); ++r) {
    if (targets[r] < 0) continue;
    const double* row = logits.data() + r * classes;
    const double largest = *std::max_element(row, row + classes);
    double sum = 0;
    for (Size i = 0; i < classes; ++i) sum += std::exp(row[i] - largest);
    for (Size i = 0; i < classes; ++i) {
      const double log_p = row[i] - largest - std::log(sum);
      const bool hit = i == static_cast<Size>(targets[r]);
      if (hit) result.loss -= log_p / counted;
      result.dlogits[r * classes + i] = (std::exp(log_p) - (hit ? 1 : 0)) / counted;
    }
  }
  return result;
}
