// Example 1: a module, a training loop, a file. The network learns the exclusive or of two bits.
// docs/library.md goes on from here: it reads the file in Python, and what PyTorch saved in C++.
#include <eddy/eddy.h>
#include <exception>
#include <iostream>

using namespace eddy;

// A module declares its parameters in its constructor, each under a name.
struct Mlp {
  Mlp(const ParamScope& scope, std::int64_t width)
      : up(scope.scope("up"), 2, width, 1.0, true), down(scope.scope("down"), width, 1, 0.5, true) {}
  Tensor operator()(const Tensor& x) const { return down(tanh(up(x))); }

  Linear up, down;
};

int main() try {
  const Tensor x = tensor({{0.f, 0.f}, {0.f, 1.f}, {1.f, 0.f}, {1.f, 1.f}});
  const Tensor target = tensor({{0.f}, {1.f}, {1.f}, {0.f}});

  auto net = make_module<Mlp>(/*seed=*/1, /*width=*/8);
  Adam adam(net.params(), {.learning_rate = 0.1});
  double last = 1;
  for (int step = 1; step <= 100; ++step) {
    const Tensor error = net(x) - target;
    const Tensor loss = mean(error * error);
    adam.zero_gradients();
    backward(loss);
    adam.step();
    last = loss.item();
    if (step % 20 == 0) std::cout << "step " << step << "  loss " << last << "\n";
  }
  std::cout << net(x) << "\n";
  net.save("xor.safetensors");
  return last < 0.01 ? 0 : 1;
} catch (const std::exception& error) {
  std::cerr << "error: " << error.what() << "\n";
  return 1;
}
