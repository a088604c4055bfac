// Exercise 1: the variance of some numbers
//
//   mean     = sum of x / n
//   variance = sum of (x - mean)^2 / n            0 where there are no numbers
#include <vector>

double variance(const std::vector<double>& numbers) {
  return -1;  // your code
}
