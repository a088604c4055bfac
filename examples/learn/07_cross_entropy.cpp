// Exercise 7: the loss of a classifier
//
//   p        = softmax(logits)                       of each row
//   loss     = mean over the counted rows of -log p[target]
//   dlogits  = (p - one_hot(target)) / counted rows
//
// A row whose target is -1 is not counted, and its gradient is 0. If no row counts, the loss is 0. Logits may be as
// large as 1000. In Eddy: ops/loss/cross_entropy.h.
#include <cmath>
#include <cstddef>
#include <vector>

using Numbers = std::vector<double>;
using Size = std::size_t;

struct Loss {
  double loss = 0;
  Numbers dlogits;  // [rows, classes], one row behind the other
};

Loss cross_entropy(const Numbers& logits, const std::vector<int>& targets, Size classes) {
  Loss result{0, Numbers(logits.size())};
  // your code
  return result;
}
