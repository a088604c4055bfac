// A program outside Eddy's tree: a product of two matrices, its value and its gradient against numbers worked
// by hand, and a step of Adam.
#include <cmath>
#include <cstdio>
#include <vector>

#include "autograd/tape.h"
#include "models/optimizer/optimizer.h"
#include "models/params.h"
#include "ops/product/matmul.h"
#include "tensor/base/error.h"
#include "tensor/tensor.h"

namespace {

bool equal(const char* name, const std::vector<float>& found, const std::vector<float>& expected) {
  const bool same = found == expected;
  std::printf("consumer: %s %s\n", name, same ? "as expected" : "WRONG");
  return same;
}

// The first step of Adam moves each number by the learning rate against the sign of its gradient.
bool optimizer_moves_against_gradient() {
  eddy::ParamStore counted;
  counted.root().param("x", {2}, eddy::Init::zeros());
  eddy::ParamStore params(counted, eddy::Dtype::f32, eddy::kCpu);
  const eddy::Tensor x = params.root().param("x", {2}, eddy::Init::zeros());
  params.initialize(1);
  const auto optimizer = eddy::make_optimizer(params, {.optimizer = "adam", .clip = 0});
  params.zero_gradients();
  eddy::backward(x, eddy::Tensor::from(std::vector<float>{3, -5}, {2}));
  optimizer->step(params, 0.5);
  const std::vector<float> found = x.to_vector<float>();
  const bool moved = std::abs(found[0] + 0.5f) < 1e-6f && std::abs(found[1] - 0.5f) < 1e-6f;
  std::printf("consumer: optimizer %s\n", moved ? "as expected" : "WRONG");
  return moved;
}

}  // namespace

int main() {
  try {
    const eddy::Tensor a = eddy::Tensor::from(std::vector<float>{1, 2, 3, 4}, {2, 2});
    const eddy::Tensor b = eddy::Tensor::from(std::vector<float>{5, 6, 7, 8}, {2, 2});
    eddy::require_grad(a);
    const eddy::Tensor c = eddy::matmul(a, b);
    eddy::backward(c, eddy::Tensor::full({2, 2}, 1));
    // With a cotangent of ones, row i of da holds the sums of b's rows.
    const bool value = equal("product", c.to_vector<float>(), {19, 22, 43, 50});
    const bool gradient = equal("gradient", eddy::grad(a).to_vector<float>(), {11, 15, 11, 15});
    return value && gradient && optimizer_moves_against_gradient() ? 0 : 1;
  } catch (const eddy::Error& error) {
    std::fprintf(stderr, "consumer: %s\n", error.what());
    return 1;
  }
}
