// needs: eddy
// hint: The loss is the mean of error * error, where error = net(x) - target.
// hint: In the loop: loss_of, keep loss.item(), adam.zero_gradients(), backward(loss), adam.step().
// hint: Without zero_gradients every step uses the sum of all gradients so far,
//       and the loss falls slower or not at all.
#include <learn.h>
#include EXERCISE

namespace eddy_learn {

void check() {
  const Tensor x = tensor({{0.f, 0.f}, {0.f, 1.f}, {1.f, 0.f}, {1.f, 1.f}});
  const Tensor target = tensor({{0.f}, {1.f}, {1.f}, {0.f}});
  auto net = make_module<Mlp>(1);
  asks("loss_of(net, x [0, 0; 0, 1; 1, 0; 1, 1], target [0; 1; 1; 0]), net fresh from seed 1");
  const Tensor loss = loss_of(net, x, target);
  gives("shape of the loss", to_string(loss.shape()));
  const double before = loss.shape().elements() == 1 ? loss.item() : NAN;
  gives("loss_of", before, 1e-5);
  asks("train(net, x, target, 8), the same net");
  std::vector<double> losses = train(net, x, target, 8);
  gives("losses", losses, 0, 1e-3);
  // How the net is left tells apart why losses may stay as they are.
  double left = 0;
  for (const float g : net.params().gradients().to_vector<float>())
    left = std::max(left, static_cast<double>(std::abs(g)));
  gives("losses", loss_of(net, x, target).item() != before ? "the net has moved" : "the net has not moved");
  gives("losses", left > 0 ? "backward has run" : "backward has not run");
  const auto& parameters = net.params().parameters();
  gives("losses", std::any_of(parameters.begin(), parameters.end(),
                              [](const auto& parameter) { return grad(parameter.value).defined(); })
                      ? "gradients are left"
                      : "no gradients are left");
  asks("train(another net, x, target, 100), the last loss");
  auto other = make_module<Mlp>(2);
  losses = train(other, x, target, 100);
  gives("the last loss is below 0.01", !losses.empty() && losses.back() < 0.01);
}

}  // namespace eddy_learn
