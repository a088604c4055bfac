// Exercise 16: a step of AdamW
//
//   m  = beta1 m + (1 - beta1) g                running mean of the gradient
//   v  = beta2 v + (1 - beta2) g^2              and of its square
//   m^ = m / (1 - beta1^step)                   both begin at 0: this takes the bias away
//   v^ = v / (1 - beta2^step)
//   p  = p - rate (m^ / (sqrt(v^) + eps) + decay p)
//
// The first step has the number 1. The decay is beside the gradient, not in it, so it is not divided by the root (that
// is the W). In Eddy: models/optimizer/adam.h.
#include <cmath>
#include <cstddef>
#include <vector>

using Numbers = std::vector<double>;

struct AdamW {
  double rate = 0.1, beta1 = 0.9, beta2 = 0.95, eps = 1e-8, decay = 0;
  int steps = 0;  // so far
  Numbers m, v;   // empty before the first step

  void step(Numbers& p, const Numbers& g) {
    // your code
  }
};
