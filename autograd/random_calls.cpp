// Keys of random calls that have none of their own.
#include "autograd/random_calls.h"

#include "autograd/tape.h"
#include "tensor/base/format.h"

namespace eddy {

std::optional<RandomKey> detail::next_call_key(const char* op) {
  RandomCalls& calls = random_calls;
  if (!calls.given && grad_enabled())
    fail<ValueError>(
        "{}: no key, and no DropoutScope on this thread (in training: const DropoutScope "
        "dropping({{.training = true, .seed = 1, .step = step}}); in evaluation: NoGrad without such a scope)",
        op);
  if (!calls.draws) return {};
  RandomKey key = random_key(calls.seed, "dropout", calls.next++, calls.step);
  key.step_base = calls.step_base;
  return key;
}

}  // namespace eddy
