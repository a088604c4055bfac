// The answer to exercise 17.
#include <eddy/eddy.h>
#include <vector>

using namespace eddy;

struct Mlp {
  explicit Mlp(const ParamScope& scope)
      : up(scope.scope("up"), 2, 8, 1.0, true), down(scope.scope("down"), 8, 1, 0.5, true) {}
  Tensor operator()(const Tensor& x) const { return down(tanh(up(x))); }

  Linear up, down;
};

Tensor loss_of(const Module<Mlp>& net, const Tensor& x, const Tensor& target) {
  const Tensor error = net(x) - target;
  return mean(error * error);
}

std::vector<double> train(Module<Mlp>& net, const Tensor& x, const Tensor& target, int steps) {
  Adam adam(net.params(), {.learning_rate = 0.1, .weight_decay = 0});
  std::vector<double> losses;
  for (int step = 0; step < steps; ++step) {
    const Tensor loss = loss_of(net, x, target);
    losses.push_back(loss.item());
    adam.zero_gradients();
    backward(loss);
    adam.step();
  }
  return losses;
}
