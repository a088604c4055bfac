// Rows of numbers in plain loops, from which tests compute what a model should give.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "tensor/random/philox.h"

namespace eddy::test {

using Row = std::vector<double>;

// Uniform numbers in [-width / 2, width / 2).
inline Row random_row(std::int64_t n, const std::string& name, double width) {
  Row values(static_cast<std::size_t>(n));
  const RandomKey key = random_key(21, name.c_str(), 0);
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] = width * (static_cast<double>(uniform01(key.word(i))) - 0.5);
  return values;
}

// (x - mean) / sqrt(variance + eps) * gain + bias; without a bias where it is empty.
inline Row layer_norm_row(const Row& x, const Row& gain, const Row& bias, double eps) {
  const auto n = static_cast<double>(x.size());
  double mean = 0, variance = 0;
  for (const double v : x) mean += v / n;
  for (const double v : x) variance += (v - mean) * (v - mean) / n;
  Row y(x.size());
  for (std::size_t i = 0; i < x.size(); ++i)
    y[i] = (x[i] - mean) / std::sqrt(variance + eps) * gain[i] + (bias.empty() ? 0 : bias[i]);
  return y;
}

}  // namespace eddy::test
