// Exercise 17: a loop that trains a net
//
// A step: compute the loss, clear the gradients of the step before, run the tape backwards, let the optimizer move the
// parameters. The names, in no particular order:
//
//   backward(loss)      adam.step()      adam.zero_gradients()      net(x)      mean(...)
//
// In Eddy: examples/01_first_program.cpp; train/step/train_step.cpp for what a large run adds.
#include <eddy/eddy.h>
#include <vector>

using namespace eddy;

struct Mlp {
  explicit Mlp(const ParamScope& scope)
      : up(scope.scope("up"), 2, 8, 1.0, true), down(scope.scope("down"), 8, 1, 0.5, true) {}
  Tensor operator()(const Tensor& x) const { return down(tanh(up(x))); }

  Linear up, down;
};

// The mean squared error of the net.
Tensor loss_of(const Module<Mlp>& net, const Tensor& x, const Tensor& target) {
  return mean(net(x));  // your code
}

// Takes `steps` steps. Returns the loss of each, before its step.
std::vector<double> train(Module<Mlp>& net, const Tensor& x, const Tensor& target, int steps) {
  Adam adam(net.params(), {.learning_rate = 0.1, .weight_decay = 0});
  std::vector<double> losses;
  // your code: loss.item() is the number of a loss
  return losses;
}
