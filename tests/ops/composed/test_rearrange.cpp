// Padding and rearrangements: what they refuse, and their corners.
#include <doctest/doctest.h>

#include "ops/composed/rearrange.h"
#include "tensor/base/error.h"
#include "tensor/create.h"

using namespace eddy;

TEST_CASE("pad takes pairs from the last axis, as PyTorch does") {
  const Tensor x = tensor({{1.F, 2.F}});
  CHECK(pad(x, {1, 0}).to_vector<float>() == std::vector<float>{0, 1, 2});
  CHECK(pad(x, {0, 0, 0, 1}, 9).to_vector<float>() == std::vector<float>{1, 2, 9, 9});
  CHECK(pad(x, {}).to_vector<float>() == x.to_vector<float>());
  CHECK_THROWS_WITH_AS(pad(x, {1}), doctest::Contains("pad: pads [1] for [1, 2]"), ValueError);
  CHECK_THROWS_AS(pad(x, {1, 1, 1, 1, 1, 1}), ValueError);
  CHECK_THROWS_AS(pad(x, {-1, 0}), ValueError);
}

TEST_CASE("repeat adds leading axes and takes 0") {
  const Tensor x = tensor({1.F, 2.F});
  CHECK(repeat(x, {2, 1}).shape() == Shape{2, 2});
  CHECK(repeat(x, {0}).shape() == Shape{0});
  CHECK_THROWS_AS(repeat(zeros({2, 2}), {2}), ShapeError);
}

TEST_CASE("roll moves by any number of places, in both directions") {
  const Tensor x = tensor({1.F, 2.F, 3.F});
  CHECK(roll(x, 1, 0).to_vector<float>() == std::vector<float>{3, 1, 2});
  CHECK(roll(x, -4, 0).to_vector<float>() == std::vector<float>{2, 3, 1});
  CHECK(flip(x, -1).to_vector<float>() == std::vector<float>{3, 2, 1});
}
