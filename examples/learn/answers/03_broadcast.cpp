// The answer to exercise 3.
#include <algorithm>
#include <cstddef>
#include <stdexcept>
#include <vector>

using Sizes = std::vector<long>;

Sizes broadcast(const Sizes& a, const Sizes& b) {
  Sizes result(std::max(a.size(), b.size()));
  for (std::size_t back = 1; back <= result.size(); ++back) {
    const long of_a = back <= a.size() ? a[a.size() - back] : 1;
    const long of_b = back <= b.size() ? b[b.size() - back] : 1;
    if (of_a != of_b && of_a != 1 && of_b != 1) throw std::invalid_argument("the shapes do not fit");
    result[result.size() - back] = of_a == 1 ? of_b : of_a;
  }
  return result;
}
