// hint: The slope of a b with respect to a is b, and that of exp(a) is exp(a).
// hint: A node's gradient is complete only when all nodes that used it have run. They stand behind it on the tape.
// hint: Set all gradients to 0 first: backward may be called twice.
#include <learn.h>
#include EXERCISE

namespace eddy_learn {

int check() {
  {
    Tape tape;
    const auto a = leaf(tape, 3), b = leaf(tape, 5), y = multiply(tape, a, b);
    backward(tape, y);
    near("the gradient of a in a b, a 3, b 5", tape[a].gradient, 5);
    near("the gradient of b in a b, a 3, b 5", tape[b].gradient, 3);
  }
  {
    Tape tape;
    const auto x = leaf(tape, 2), y = add(tape, multiply(tape, x, x), x);
    backward(tape, y);
    near("the gradient of x in x x + x, x 2", tape[x].gradient, 5, 1e-9, "x is used three times");
    backward(tape, y);
    near("the same when backward is called again", tape[x].gradient, 5);
  }
  {
    Tape tape;
    const auto x = leaf(tape, 0.5), e = exponential(tape, x), y = multiply(tape, e, add(tape, e, x));
    backward(tape, y);
    const double z = std::exp(0.5);
    near("the gradient of x in exp(x) (exp(x) + x), x 0.5", tape[x].gradient, z * (z + 0.5) + z * (z + 1));
  }
  {
    Tape tape;
    const auto x = leaf(tape, 1), first = multiply(tape, x, x), later = multiply(tape, first, x);
    backward(tape, first);
    near("the gradient of x where the loss is not the last node", tape[x].gradient, 2);
    near("the gradient of a node behind the loss", tape[later].gradient, 0);
  }
  {
    Tape tape;
    const auto x = leaf(tape, 0);
    auto y = x;
    for (int i = 0; i < 300'000; ++i) y = add(tape, y, x);
    backward(tape, y);
    near("the gradient of x in a sum of 300,001 times x", tape[x].gradient, 300'001);
  }
  return result();
}

}  // namespace eddy_learn
