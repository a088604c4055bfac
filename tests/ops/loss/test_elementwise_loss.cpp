// Losses of elements: shapes that would broadcast, extreme logits, and probabilities of 0 and 1.
#include <doctest/doctest.h>

#include "autograd/tape.h"
#include "ops/loss/elementwise_loss.h"
#include "ops/pointwise/pointwise.h"
#include "tensor/base/error.h"
#include "tensor/create.h"

using namespace eddy;

TEST_CASE("losses of elements refuse shapes that broadcast, and an average of nothing") {
  const Tensor column = zeros({3, 1}), list = zeros({3});
  using Loss = Tensor (*)(const Tensor&, const Tensor&);
  for (const Loss loss : {&mse_loss, &binary_cross_entropy_with_logits, &binary_cross_entropy, &kl_div}) {
    CHECK_THROWS_WITH_AS(loss(column, list), doctest::Contains("[3, 1] and targets [3]"), ShapeError);
    CHECK_THROWS_AS(loss(zeros({0}), zeros({0})), ShapeError);
    CHECK_THROWS_AS(loss(list, zeros({3}, Dtype::i64)), DtypeError);
    CHECK(loss(full({3}, 0.5, Dtype::bf16), full({3}, 0.5, Dtype::bf16)).dtype() == Dtype::f32);
  }
}

TEST_CASE("the cross-entropy of huge logits is finite, and so is its gradient") {
  const Tensor logits = tensor<float>({1000, -1000, 1000, -1000}), targets = tensor<float>({1, 0, 0, 1});
  require_grad(logits);
  const Tensor loss = binary_cross_entropy_with_logits(logits, targets);
  CHECK(loss.item() == 500);
  backward(loss);
  CHECK(grad(logits).to_vector<float>() == std::vector<float>{0, 0, 0.25F, -0.25F});
}

TEST_CASE("binary cross-entropy of probabilities and of their logits agree") {
  const Tensor logits = tensor<double>({-3, 0, 0.5, 2}), targets = tensor<double>({0, 1, 0.3, 1});
  CHECK(binary_cross_entropy(sigmoid(logits), targets).item() ==
        doctest::Approx(binary_cross_entropy_with_logits(logits, targets).item()).epsilon(1e-12));
  // A certain mistake costs 100, as in PyTorch.
  CHECK(binary_cross_entropy(tensor<double>({0}), tensor<double>({1})).item() == 100);
}
