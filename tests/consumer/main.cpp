// A program outside Eddy's tree: a product of two matrices with its value and its gradient against numbers
// worked by hand, and a module that one step of Adam moves and a file brings back.
#include <eddy/eddy.h>
#include <cmath>
#include <cstdio>
#include <vector>

using namespace eddy;

namespace {

bool as_expected(const char* name, bool holds) {
  std::printf("consumer: %s %s\n", name, holds ? "as expected" : "WRONG");
  return holds;
}

struct Scale {
  explicit Scale(const ParamScope& scope) : factor(scope.param("factor", {2}, Init::zeros())) {}
  Tensor operator()(const Tensor& x) const { return x * factor; }
  Tensor factor;
};

// The first step of Adam moves each number by the learning rate against the sign of its gradient.
bool step_moves_against_gradient() {
  auto net = make_module<Scale>(1);
  Adam adam(net.params(), {.learning_rate = 0.5});
  adam.zero_gradients();
  backward(sum(net(tensor({3.f, -5.f}))));
  adam.step();
  const std::vector<float> found = net->factor.to_vector<float>();
  net.save("scale.safetensors");
  auto other = make_module<Scale>({.seed = 2, .matmul_precision = MatmulPrecision::bf16});
  other.load("scale.safetensors");
  return as_expected("optimizer", std::abs(found[0] + 0.5f) < 1e-6f && std::abs(found[1] - 0.5f) < 1e-6f) &&
         as_expected("weights from a file", other->factor.to_vector<float>() == found);
}

}  // namespace

int main() {
  try {
    const Tensor a = tensor({{1.f, 2.f}, {3.f, 4.f}}), b = tensor({{5.f, 6.f}, {7.f, 8.f}});
    require_grad(a);
    const Tensor c = matmul(a, b);
    backward(c, ones({2, 2}));
    // With a cotangent of ones, row i of da holds the sums of b's rows.
    const bool value = as_expected("product", c.to_vector<float>() == std::vector<float>{19, 22, 43, 50});
    const bool gradient =
        as_expected("gradient", grad(a).to_vector<float>() == std::vector<float>{11, 15, 11, 15});
    return value && gradient && step_moves_against_gradient() ? 0 : 1;
  } catch (const Error& error) {
    std::fprintf(stderr, "consumer: %s\n", error.what());
    return 1;
  }
}
