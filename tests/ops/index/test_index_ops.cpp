// Slices by index, one-hot vectors and sorting: what they refuse, and NaN.
#include <doctest/doctest.h>

#include <cmath>

#include "ops/index/index_ops.h"
#include "ops/index/sort.h"
#include "tensor/base/error.h"
#include "tensor/create.h"

using namespace eddy;

TEST_CASE("index_select, index_add and one_hot name an index outside the axis") {
  const Tensor x = zeros({2, 3}), index = tensor<std::int64_t>({0, 3});
  CHECK_THROWS_WITH_AS(index_select(x, 1, index), doctest::Contains("index_select: 3 at position 1"),
                       ValueError);
  CHECK_THROWS_WITH_AS(index_add(x, 1, index, zeros({2, 2})), doctest::Contains("index_add: 3 at position 1"),
                       ValueError);
  CHECK_THROWS_WITH_AS(one_hot(index, 3), doctest::Contains("one_hot: 3 at position 1 of [2], size 3"),
                       ValueError);
  CHECK_THROWS_AS(one_hot(index, -1), ValueError);
}

TEST_CASE("index_add refuses a source of another shape and leaves x as it was") {
  const Tensor x = ones({2, 3}), index = tensor<std::int64_t>({2, 2});
  CHECK_THROWS_WITH_AS(index_add(x, 1, index, zeros({2, 3})), doctest::Contains("source [2, 3]"), ShapeError);
  CHECK_THROWS_AS(index_add(x, 1, zeros({2}), zeros({2, 2})), DtypeError);
  const Tensor y = index_add(x, -1, index, ones({2, 2}));
  CHECK(y.to_vector<float>() == std::vector<float>{1, 1, 3, 1, 1, 3});
  CHECK(x.to_vector<float>() == std::vector<float>(6, 1.0F));
}

TEST_CASE("index_select moves whole numbers and masks along any axis") {
  const Tensor x = tensor<std::int64_t>({{1, 2, 3}, {4, 5, std::int64_t{1} << 60}}),
               index = tensor({2, 0, 2});
  CHECK(index_select(x, 1, index).to_vector<std::int64_t>() ==
        std::vector<std::int64_t>{3, 1, 3, std::int64_t{1} << 60, 4, std::int64_t{1} << 60});
  CHECK(index_select(x, -2, tensor({1})).shape() == Shape{1, 3});
  const Tensor mask = tensor<std::uint8_t>({1, 0, 0});
  CHECK(index_select(mask, 0, index).to_vector<std::uint8_t>() == std::vector<std::uint8_t>{0, 1, 0});
  CHECK_THROWS_WITH_AS(index_select(x, 0, index), doctest::Contains("index_select: 2 at position 0"),
                       ValueError);
  CHECK_THROWS_AS(index_add(x, 0, tensor({0}), x), DtypeError);
}

TEST_CASE("one_hot gives f32, or the dtype asked for") {
  const Tensor ids = tensor<std::int32_t>({1, 0});
  CHECK(one_hot(ids, 2).to_vector<float>() == std::vector<float>{0, 1, 1, 0});
  CHECK(one_hot(ids, 2, Dtype::i64).to_vector<std::int64_t>() == std::vector<std::int64_t>{0, 1, 1, 0});
}

TEST_CASE("sort puts NaN above all, and topk refuses more than there are") {
  const Tensor x = tensor<double>({2, std::nan(""), -1, INFINITY});
  CHECK(sort(x).indices.to_vector<std::int64_t>() == std::vector<std::int64_t>{2, 0, 3, 1});
  CHECK(topk(x, 2).indices.to_vector<std::int64_t>() == std::vector<std::int64_t>{1, 3});
  CHECK(topk(x, 0).values.elements() == 0);
  CHECK_THROWS_WITH_AS(topk(x, 5), doctest::Contains("topk: the 5 largest along axis 0 of [4]"), ValueError);
}
