// hint: With the new largest score m' = max(m, score), both sums are multiplied by exp(m - m') before they grow.
// hint: At the first key m is -infinity, and exp(-infinity) is 0: that works. But -infinity - (-infinity) is NaN: leave
//       a masked key out, and a part that has seen nothing.
// hint: A key is a part of its own: {score, 1, value}. If join is right, take is one line.
#include <learn.h>
#include EXERCISE

namespace eddy_learn {

// By two passes.
double wanted(const std::vector<double>& scores, const std::vector<double>& values) {
  double largest = scores[0], sum = 0, weighted = 0;
  for (const double s : scores) largest = std::max(largest, s);
  for (std::size_t i = 0; i < scores.size(); ++i) {
    sum += std::exp(scores[i] - largest);
    weighted += std::exp(scores[i] - largest) * values[i];
  }
  return weighted / sum;
}

Seen of(const std::vector<double>& scores, const std::vector<double>& values, std::size_t begin,
        std::size_t end) {
  Seen seen;
  for (std::size_t i = begin; i < end; ++i) take(seen, scores[i], values[i]);
  return seen;
}

int check() {
  const auto pass = [](const std::vector<double>& scores, const std::vector<double>& values) {
    return read(of(scores, values, 0, scores.size()));
  };
  near("scores {0, 0}, values {1, 3}", pass({0, 0}, {1, 3}), 2);
  near("scores {1, 2, 3}, values {1, 2, 3}", pass({1, 2, 3}, {1, 2, 3}), wanted({1, 2, 3}, {1, 2, 3}));
  near("scores {3, 2, 1}, values {1, 2, 3}", pass({3, 2, 1}, {1, 2, 3}), wanted({3, 2, 1}, {1, 2, 3}));
  near("scores {1000, 1001}, values {0, 1}", pass({1000, 1001}, {0, 1}), 1 / (1 + std::exp(-1.0)), 1e-9,
       "exp(1000) is infinite");
  near("scores {-1000, -1001}, values {0, 1}", pass({-1000, -1001}, {0, 1}), 1 / (1 + std::exp(1.0)), 1e-9,
       "exp(-1000) is 0");
  near("scores {-inf, 0, -inf}, values {5, 7, 9}", pass({kNothing, 0, kNothing}, {5, 7, 9}), 7);
  near("scores {-inf, -inf}, values {5, 7}", pass({kNothing, kNothing}, {5, 7}), 0, 1e-9, "all are masked");

  std::vector<double> scores = numbers(40, 1);
  const std::vector<double> values = numbers(40, 2);
  for (double& s : scores) s *= 300;
  const double want = wanted(scores, values);
  for (const std::size_t cut : {0, 1, 13, 39, 40}) {
    const Seen a = of(scores, values, 0, cut), b = of(scores, values, cut, 40);
    near("40 keys, cut at " + text_of(cut) + " and joined", read(join(a, b)), want);
    near("the same joined in the other order", read(join(b, a)), want);
  }
  near("two parts of masked keys, joined", read(join(of({kNothing}, {1}, 0, 1), Seen{})), 0);
  return result();
}

}  // namespace eddy_learn
