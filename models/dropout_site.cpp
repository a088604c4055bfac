// Dropout without a key of the caller's own.
#include "models/dropout_site.h"

#include "autograd/tape.h"
#include "tensor/base/format.h"

namespace eddy {

Tensor dropout(const Tensor& x, double p) {
  detail::RandomCalls& calls = detail::random_calls;
  if (!calls.given && grad_enabled())
    fail<ValueError>(
        "dropout: no key, and no DropoutScope on this thread (in training: const DropoutScope "
        "dropping({{.training = true, .seed = 1, .step = step}}); in evaluation: NoGrad)");
  RandomKey key = random_key(calls.seed, "dropout", calls.next, calls.step);
  key.step_base = calls.step_base;
  if (calls.draws) ++calls.next;
  const bool wrong = !(p >= 0 && p < 1);  // refused by the op, in evaluation too
  return dropout(x, calls.draws || wrong ? p : 0.0, key);
}

}  // namespace eddy
