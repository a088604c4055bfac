// The answer to exercise 13.
#include <algorithm>
#include <cstddef>
#include <vector>

using Numbers = std::vector<double>;

struct Result {
  double loss = 0, da = 0;
};

Result run(double a, const Numbers& x, std::size_t segment) {
  Result result;
  double carried = 0;
  for (std::size_t begin = 0; begin < x.size(); begin += segment) {
    const std::size_t end = std::min(begin + segment, x.size());
    Numbers before;  // h[t-1] of each step of the segment
    for (std::size_t t = begin; t < end; ++t) {
      before.push_back(carried);
      carried = a * carried + x[t];
      result.loss += carried * carried / 2;
    }
    double dh = 0, h = carried;
    for (std::size_t t = end; t-- > begin;) {
      dh = h + a * dh;
      h = before[t - begin];
      result.da += dh * h;
    }
  }
  return result;
}
