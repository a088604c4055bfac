// The answer to exercise 12.
#include <cmath>
#include <cstddef>
#include <vector>

using Numbers = std::vector<double>;

double sigmoid(double x) {
  return 1 / (1 + std::exp(-x));
}

Numbers gate(const Numbers& c, const Numbers& z, const Numbers& b) {
  Numbers next(c.size());
  for (std::size_t i = 0; i < c.size(); ++i) {
    const double f = sigmoid(b[i]);
    next[i] = c[i] * f + z[i] * (1 - f);
  }
  return next;
}

struct GateGradients {
  Numbers dc, dz, db;
};

GateGradients gate_gradients(const Numbers& c, const Numbers& z, const Numbers& b, const Numbers& dnext) {
  GateGradients g{Numbers(c.size()), Numbers(c.size()), Numbers(c.size())};
  for (std::size_t i = 0; i < c.size(); ++i) {
    const double f = sigmoid(b[i]);
    g.dc[i] = dnext[i] * f;
    g.dz[i] = dnext[i] * (1 - f);
    g.db[i] = dnext[i] * (c[i] - z[i]) * f * (1 - f);
  }
  return g;
}
