// The answer to exercise 1.
#include <vector>

double variance(const std::vector<double>& numbers) {
  if (numbers.empty()) return 0;
  const auto n = static_cast<double>(numbers.size());
  double mean = 0, sum = 0;
  for (const double x : numbers) mean += x / n;
  for (const double x : numbers) sum += (x - mean) * (x - mean);
  return sum / n;
}
