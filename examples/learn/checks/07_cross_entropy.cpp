// hint: Subtract the largest logit of the row first: softmax does not change, and no exponential is larger than 1.
// hint: -log p[target] = log(sum of exp(logit - largest)) - (logit[target] - largest): take no logarithm of a p that
//       may have become 0.
// hint: Count the rows whose target is not -1 before the loop, and divide both the loss and the gradient by that.
#include <learn.h>
#include EXERCISE

namespace eddy_learn {

void check(const Numbers& logits, const std::vector<int>& targets, Size classes, const std::string& kind) {
  asks("cross_entropy(logits " + text_of(logits, classes) + ", targets " + text_of(targets) + ", " +
       text_of(classes) + ")");
  const Loss loss = cross_entropy(logits, targets, classes);
  gives("loss" + kind, loss.loss);
  gives("dlogits" + kind, loss.dlogits, classes);
}

void check() {
  check({0, 0}, {0}, 2, "");
  check({2, -1, 1}, {1}, 3, "");
  check({1, 2, 0, 3, 1, -1}, {2, 0}, 3, "");
  check({2, 0, 1, 1, 0, 2, 1, 1, -1, 0, 3, 1, 2, 2, 0}, {2, -1, 0, 1, -1}, 3, "");
  check({1000, 0}, {0}, 2, " of large logits");
  check({1000, 0}, {1}, 2, " of large logits");
  check({1, 2, 0, 1}, {-1, -1}, 2, " where no row counts");
}

}  // namespace eddy_learn
