// needs: eddy
// hint: The loss is the mean of error * error, where error = net(x) - target.
// hint: In the loop: loss_of, keep loss.item(), adam.zero_gradients(), backward(loss), adam.step().
// hint: Without zero_gradients every step uses the sum of all gradients so far, and the loss falls slower or not at all.
#include <learn.h>
#include EXERCISE

namespace eddy_learn {

int check() {
  const Tensor x = tensor({{0.f, 0.f}, {0.f, 1.f}, {1.f, 0.f}, {1.f, 1.f}});
  const Tensor target = tensor({{0.f}, {1.f}, {1.f}, {0.f}});
  auto net = make_module<Mlp>(1), other = make_module<Mlp>(1);
  const std::vector<float> said = net(x).to_vector<float>();
  const float wanted[] = {0, 1, 1, 0};
  double want = 0;
  for (std::size_t i = 0; i < 4; ++i) want += (said[i] - wanted[i]) * (said[i] - wanted[i]) / 4;
  const Tensor before = loss_of(net, x, target);
  same("the shape of the loss", to_string(before.shape()), std::string("[]"));
  near("the loss before training", before.item(), want, 1e-5);

  const std::vector<double> losses = train(net, x, target, 100);
  if (same("the count of losses after 100 steps", losses.size(), std::size_t{100})) {
    near("the first loss", losses[0], want, 1e-5, "that of the first step, before it moves anything");
    // The same steps by a loop of the check's own.
    Adam adam(other.params(), {.learning_rate = 0.1, .weight_decay = 0});
    std::vector<double> own;
    for (int step = 0; step < 100; ++step) {
      const Tensor error = other(x) - target, loss = mean(error * error);
      own.push_back(loss.item());
      adam.zero_gradients();
      backward(loss);
      adam.step();
    }
    near("the loss of the third step", losses[2], own[2], 1e-4, "are gradients cleared between steps?");
    holds(losses[99] < 0.01, "the loss of the last step", text_of(losses[99]), "less than 0.01");
  }
  return result();
}

}  // namespace eddy_learn
