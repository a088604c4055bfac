// A program outside Eddy's tree: a product of two matrices, its value and its gradient against numbers worked
// by hand.
#include <cstdio>
#include <vector>

#include "autograd/tape.h"
#include "ops/product/matmul.h"
#include "tensor/base/error.h"
#include "tensor/tensor.h"

namespace {

bool equal(const char* name, const std::vector<float>& found, const std::vector<float>& expected) {
  const bool same = found == expected;
  std::printf("consumer: %s %s\n", name, same ? "as expected" : "WRONG");
  return same;
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
    return value && gradient ? 0 : 1;
  } catch (const eddy::Error& error) {
    std::fprintf(stderr, "consumer: %s\n", error.what());
    return 1;
  }
}
