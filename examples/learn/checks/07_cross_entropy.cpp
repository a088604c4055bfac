// hint: Subtract the largest logit of the row first: softmax does not change, and no exponential is larger than 1.
// hint: -log p[target] = log(sum of exp(logit - largest)) - (logit[target] - largest): take no logarithm of a p that
//       may have become 0.
// hint: Count the rows whose target is not -1 before the loop, and divide both the loss and the gradient by that.
#include <learn.h>
#include EXERCISE

namespace eddy_learn {

int check() {
  near("the loss of logits {0, 0}, target 0", cross_entropy({0, 0}, {0}, 2).loss, std::log(2.0));
  near("the gradient of logits {0, 0}, target 0", cross_entropy({0, 0}, {0}, 2).dlogits, {-0.5, 0.5});
  near("the loss of logits {1000, 0}, target 0", cross_entropy({1000, 0}, {0}, 2).loss, 0, 1e-9,
       "exp(1000) is infinite");
  near("the loss of logits {1000, 0}, target 1", cross_entropy({1000, 0}, {1}, 2).loss, 1000, 1e-9,
       "log(0) is infinite");
  near("the gradient of logits {1000, 0}, target 1", cross_entropy({1000, 0}, {1}, 2).dlogits, {1, -1});

  const Numbers logits = numbers(5 * 3, 1);
  const std::vector<int> targets{2, -1, 0, 1, -1};
  const auto loss_of = [&](const Numbers& x) { return cross_entropy(x, targets, 3).loss; };
  double want = 0;
  for (const Size r : {0, 2, 3}) {
    double sum = 0;
    for (Size i = 0; i < 3; ++i) sum += std::exp(logits[r * 3 + i]);
    want += (std::log(sum) - logits[r * 3 + static_cast<Size>(targets[r])]) / 3;
  }
  near("the loss of 5 rows, 2 of them not counted", loss_of(logits), want, 1e-9, "the mean of 3 rows");
  near("the gradient of 5 rows, 2 of them not counted", cross_entropy(logits, targets, 3).dlogits,
       slopes(loss_of, logits), 3, 1e-7, "the slope of the loss");
  near("the loss where no row counts", cross_entropy(logits, {-1, -1, -1, -1, -1}, 3).loss, 0);
  near("the gradient where no row counts", cross_entropy(logits, {-1, -1, -1, -1, -1}, 3).dlogits,
       Numbers(15), 3);
  return result();
}

}  // namespace eddy_learn
