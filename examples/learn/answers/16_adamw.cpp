// The answer to exercise 16.
#include <cmath>
#include <cstddef>
#include <vector>

using Numbers = std::vector<double>;

struct AdamW {
  double rate = 0.1, beta1 = 0.9, beta2 = 0.95, eps = 1e-8, decay = 0;
  int steps = 0;
  Numbers m, v;

  void step(Numbers& p, const Numbers& g) {
    m.resize(p.size());
    v.resize(p.size());
    ++steps;
    for (std::size_t i = 0; i < p.size(); ++i) {
      m[i] = beta1 * m[i] + (1 - beta1) * g[i];
      v[i] = beta2 * v[i] + (1 - beta2) * g[i] * g[i];
      const double mean = m[i] / (1 - std::pow(beta1, steps)), square = v[i] / (1 - std::pow(beta2, steps));
      p[i] -= rate * (mean / (std::sqrt(square) + eps) + decay * p[i]);
    }
  }
};
