// embedding, gather and where: error texts, and what the list of OpSpecs does not say.
#include "ops/index/gather.h"

#include <doctest/doctest.h>

#include <limits>
#include <string>

#include "autograd/tape.h"
#include "ops/core/op_spec.h"
#include "ops/pointwise/where.h"
#include "tensor/base/error.h"
#include "tests/support/errors.h"

using namespace eddy;
using namespace eddy::test;

namespace {

using Doubles = std::vector<double>;
using Ids = std::vector<std::int64_t>;

}  // namespace

TEST_CASE("embedding names the position, the value and the vocabulary of a bad id") {
  const Tensor table = sample_normal({5, 3}, "table");
  const auto with = [&](const Tensor& ids) { return error_of<ValueError>([&] { embedding(table, ids); }); };
  CHECK(contains(with(Tensor::from(Ids{0, 1, 4, 5, 2, 9}, {2, 3})),
                 "embedding: id out of range: 5 at position 3 of [2, 3], vocab 5"));
  CHECK(contains(with(Tensor::from(Ids{-1}, {1})), "-1 at position 0 of [1], vocab 5"));
  CHECK(contains(with(Tensor::from(std::vector<std::int32_t>{0, 7}, {2})), "7 at position 1"));
  CHECK(contains(error_of<ValueError>([] {
                   embedding(Tensor::zeros({0, 3}), Tensor::from(Ids{0}, {1}));
                 }),
                 "vocab 0"));
}

TEST_CASE("embedding refuses tables and ids of other kinds") {
  const Tensor table = sample_normal({5, 3}, "table"), ids = Tensor::from(Ids{0}, {1});
  CHECK(contains(error_of<ShapeError>([&] { embedding(Tensor::zeros({5}), ids); }), "embedding: table [5]"));
  CHECK(contains(error_of<DtypeError>([&] { embedding(table, table); }),
                 "embedding: ids are f64 (i32 or i64)"));
  CHECK(contains(error_of<DtypeError>([&] { embedding(ids, ids); }), "embedding: table is i64"));
  CHECK(contains(error_of<ValueError>([&] { embedding(table, Tensor()); }), "embedding: ids is undefined"));
  CHECK(contains(error_of<ShapeError>([&] {
                   embedding(table, Tensor::zeros({1, 1, 1, 1, 1, 1}, Dtype::i64));
                 }),
                 "too many axes"));
}

TEST_CASE("rows of the table that no id names get a gradient of zero and repeated ones the sum") {
  const Tensor table = Tensor::zeros({4, 2}, Dtype::f64);
  require_grad(table);
  const Tensor y = embedding(table, Tensor::from(Ids{2, 0, 2}, {3}));
  backward(y, Tensor::from(Doubles{1, 2, 10, 20, 100, 200}, {3, 2}));
  CHECK(grad(table).to_vector<double>() == Doubles{10, 20, 0, 0, 101, 202, 0, 0});
}

TEST_CASE("repeated rows are added in the order of their positions") {
  // In f32 the sum depends on the order: (2^24 + 1) - 2^24 is 0 and (2^24 - 2^24) + 1 is 1.
  const Tensor table = Tensor::zeros({1, 1});
  for (const bool late : {false, true}) {
    require_grad(table);
    zero_grad(table);
    const std::vector<float> dy =
        late ? std::vector<float>{0x1p24f, -0x1p24f, 1} : std::vector<float>{0x1p24f, 1, -0x1p24f};
    backward(embedding(table, Tensor::from(Ids{0, 0, 0}, {3})), Tensor::from(dy, {3, 1}));
    CHECK(grad(table).item() == (late ? 1 : 0));
  }
}

TEST_CASE("ids that change before the backward pass are noticed") {
  const Tensor table = Tensor::zeros({4, 2}, Dtype::f64), ids = Tensor::from(Ids{1}, {1});
  require_grad(table);
  const Tensor y = embedding(table, ids);
  raw::fill(ids, 3);
  wrote_in_place(ids, "the data loader");
  CHECK(contains(error_of<VersionError>([&] {
                   backward(y, Tensor::full({1, 2}, 1, Dtype::f64));
                 }),
                 "the data loader"));
}

TEST_CASE("gather names the position and the value of a bad index") {
  const Tensor x = sample_normal({2, 3}, "x");
  CHECK(contains(error_of<ValueError>([&] {
                   gather(x, 1, Tensor::from(Ids{0, 2, 1, 3}, {2, 2}));
                 }),
                 "gather: index out of range: 3 at position 3 of [2, 2], axis 1 has 3"));
  CHECK(contains(error_of<ValueError>([&] {
                   gather(x, -1, Tensor::from(Ids{0, -1}, {2, 1}));
                 }),
                 "-1 at position 1"));
}

TEST_CASE("gather refuses an index of another kind") {
  const Tensor x = sample_normal({2, 3}, "x");
  CHECK(contains(error_of<ShapeError>([&] {
                   gather(x, 1, Tensor::zeros({3, 1}, Dtype::i64));
                 }),
                 "gather: index [3, 1] for [2, 3] along axis 1"));
  CHECK(contains(error_of<ShapeError>([&] { gather(x, 0, Tensor::zeros({2}, Dtype::i64)); }),
                 "gather: index [2]"));
  CHECK(contains(error_of<DtypeError>([&] {
                   gather(x, 1, Tensor::zeros({2, 1}, Dtype::i32));
                 }),
                 "the index is i32"));
  CHECK(contains(error_of<ShapeError>([&] {
                   gather(x, 2, Tensor::zeros({2, 1}, Dtype::i64));
                 }),
                 "no such axis"));
}

TEST_CASE("gather takes integers and bytes") {
  const Tensor index = Tensor::from(Ids{1, 0, 1}, {3});
  CHECK(gather(Tensor::from(Ids{7, 9}, {2}), 0, index).to_vector<std::int64_t>() == Ids{9, 7, 9});
  CHECK(gather(Tensor::from(std::vector<std::uint8_t>{7, 9}, {2}), 0, index).to_vector<std::uint8_t>() ==
        std::vector<std::uint8_t>{9, 7, 9});
}

TEST_CASE("what where does not choose leaves no trace in values and gradients") {
  const double inf = std::numeric_limits<double>::infinity(), nan = std::numeric_limits<double>::quiet_NaN();
  const Tensor mask = Tensor::from(std::vector<std::uint8_t>{1, 0, 255}, {3});
  const Tensor a = Tensor::from(Doubles{1, nan, 3}, {3}), b = Tensor::from(Doubles{inf, 2, nan}, {3});
  require_grad(a);
  require_grad(b);
  const Tensor y = where(mask, a, b);
  CHECK(y.to_vector<double>() == Doubles{1, 2, 3});
  backward(y, Tensor::from(Doubles{5, 6, 7}, {3}));
  CHECK(grad(a).to_vector<double>() == Doubles{5, 0, 7});
  CHECK(grad(b).to_vector<double>() == Doubles{0, 6, 0});
}

TEST_CASE("where refuses masks and operands that do not fit") {
  const Tensor x = sample_normal({2, 3}, "x"), mask = Tensor::zeros({2, 3}, Dtype::u8);
  CHECK(contains(error_of<DtypeError>([&] { where(x, x, x); }), "where: the mask is f64 (u8)"));
  CHECK(contains(error_of<DtypeError>([&] { where(mask, x, Tensor::zeros({2, 3})); }), "where: f64 and f32"));
  CHECK(contains(error_of<ShapeError>([&] { where(Tensor::zeros({2}, Dtype::u8), x, x); }),
                 "where: shapes do not broadcast: [2] and [2, 3]"));
  CHECK(contains(error_of<ValueError>([&] { where(mask, x, Tensor()); }), "undefined"));
}

TEST_CASE("where chooses between integers") {
  const Tensor mask = Tensor::from(std::vector<std::uint8_t>{0, 1}, {2});
  CHECK(where(mask, Tensor::from(Ids{1, 2}, {2}), Tensor::from(Ids{-1}, {1})).to_vector<std::int64_t>() ==
        Ids{-1, 2});
}

TEST_CASE("embedding_sum names what does not fit") {
  const Tensor table = Tensor::full({4, 3}, 1), ids = Tensor::full({2, 5}, 1, Dtype::i64);
  const auto sum = [&](const Tensor& rows, Dtype dtype) { return embedding_sum(table, ids, rows, dtype); };
  CHECK_THROWS_WITH_AS(sum(Tensor::full({4, 3}, 1), Dtype::f32), doctest::Contains("embedding_sum"),
                       ShapeError);
  CHECK_THROWS_WITH_AS(sum(Tensor::full({5, 1}, 1), Dtype::f32),
                       doctest::Contains("embedding_sum: rows [5, 1] do not repeat to [2, 5, 3]"),
                       ShapeError);
  CHECK_THROWS_WITH_AS(sum(Tensor::full({7, 2, 5, 3}, 1), Dtype::f32), doctest::Contains("do not repeat"),
                       ShapeError);
  CHECK_THROWS_AS(sum(Tensor::full({3}, 1, Dtype::f64), Dtype::f32), DtypeError);
  CHECK_THROWS_WITH_AS(sum({}, Dtype::i64), doctest::Contains("embedding_sum: into i64"), DtypeError);
}

TEST_CASE("embedding_sum rounds the sum of rows once") {
  const Tensor table = Tensor::full({2, 3}, 1 + 0x1p-8), rows = Tensor::full({3}, 0x1p-8);
  const Tensor ids = Tensor::full({4}, 1, Dtype::i64);
  const Tensor y = embedding_sum(table, ids, rows, Dtype::bf16);
  CHECK(y.dtype() == Dtype::bf16);
  CHECK(raw::cast(y, Dtype::f32).to_vector<float>() == std::vector<float>(12, 1 + 0x1p-7f));
  require_grad(table);
  require_grad(rows);
  backward(embedding_sum(table, ids, rows, Dtype::bf16), Tensor::full({4, 3}, 0.5, Dtype::bf16));
  CHECK(grad(table).to_vector<float>() == std::vector<float>{0, 0, 0, 2, 2, 2});
  CHECK(grad(rows).to_vector<float>() == std::vector<float>(3, 2));
}
