// New tensors, random tensors and their text.
#include "tensor/create.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "tensor/base/error.h"
#include "tensor/print.h"
#include "tensor/random/random_tensors.h"
#include "tests/support/errors.h"

namespace {

using namespace eddy;
using namespace eddy::test;

using Floats = std::vector<float>;

std::string text_of(const Tensor& x) {
  std::ostringstream out;
  out << x;
  return out.str();
}

}  // namespace

TEST_CASE("create: filled tensors, the identity and numbers given") {
  CHECK(zeros({2}).to_vector<float>() == Floats{0, 0});
  CHECK(ones({2}, Dtype::i64).to_vector<std::int64_t>() == std::vector<std::int64_t>{1, 1});
  CHECK(full({1, 2}, 2.5).to_vector<float>() == Floats{2.5, 2.5});
  CHECK(eye(2).to_vector<float>() == Floats{1, 0, 0, 1});
  CHECK(eye(0).shape() == Shape{0, 0});
  const Tensor x = Tensor::zeros({3, 1}, Dtype::f64);
  CHECK(ones_like(x).to_vector<double>() == std::vector<double>{1, 1, 1});
  CHECK(zeros_like(x).shape() == x.shape());
  CHECK(tensor({1.f, 2.f}).to_vector<float>() == Floats{1, 2});
  CHECK(tensor(std::vector<double>{1, 2}).dtype() == Dtype::f64);
  CHECK(tensor(2.5f).item<float>() == 2.5f);
  const Tensor mask = tensor({{true, false}, {false, true}});
  CHECK(mask.dtype() == Dtype::u8);
  CHECK(mask.to_vector<std::uint8_t>() == std::vector<std::uint8_t>{1, 0, 0, 1});
  CHECK(tensor({true, false}).shape() == Shape{2});
  CHECK(tensor(true).shape() == Shape{});
  const Tensor matrix = tensor({{1, 2, 3}, {4, 5, 6}});
  CHECK(matrix.shape() == Shape{2, 3});
  CHECK(matrix.dtype() == Dtype::i32);
  CHECK(Tensor::from({1.f, 2.f}, {2, 1}).shape() == Shape{2, 1});
  CHECK(contains(error_of<ShapeError>([] { tensor({{1.f, 2.f}, {3.f}}); }), "rows of 2 and of 1 numbers"));
  CHECK_THROWS_AS(eye(-1), ShapeError);
}

TEST_CASE("arange: from, to, by") {
  CHECK(arange(4).to_vector<float>() == Floats{0, 1, 2, 3});
  CHECK(arange(3, Dtype::i64).to_vector<std::int64_t>() == std::vector<std::int64_t>{0, 1, 2});
  CHECK(arange(1, 2, 0.25).to_vector<float>() == Floats{1, 1.25, 1.5, 1.75});
  CHECK(arange(3, 0, -1).to_vector<float>() == Floats{3, 2, 1});
  CHECK(arange(0).shape() == Shape{0});
  CHECK(arange(2, 1).shape() == Shape{0});
  CHECK(contains(error_of<ValueError>([] { arange(0, 1, 0); }), "a step other than 0"));
  CHECK_THROWS_AS(arange(std::nan("")), ValueError);
  CHECK_THROWS_AS(arange(0, 1e300), OutOfMemoryError);
}

TEST_CASE("linspace: both ends are among the numbers") {
  CHECK(linspace(0, 1, 5).to_vector<float>() == Floats{0, 0.25, 0.5, 0.75, 1});
  CHECK(linspace(3, 1, 3, Dtype::i64).to_vector<std::int64_t>() == std::vector<std::int64_t>{3, 2, 1});
  CHECK(linspace(0.1, 0.7, 8, Dtype::f64).to_vector<double>().back() == 0.7);
  CHECK(linspace(2, 5, 1).to_vector<float>() == Floats{2});
  CHECK(linspace(2, 5, 0).shape() == Shape{0});
  CHECK_THROWS_AS(linspace(0, 1, -1), ShapeError);
  CHECK_THROWS_AS(linspace(0, INFINITY, 3), ValueError);
}

TEST_CASE("random tensors: the default generator draws anew, a seed repeats, a key is a pure function") {
  manual_seed(3);
  const Floats first = randn({5}).to_vector<float>(), second = randn({5}).to_vector<float>();
  CHECK(first != second);
  manual_seed(3);
  CHECK(randn({5}).to_vector<float>() == first);
  manual_seed(4);
  CHECK(randn({5}).to_vector<float>() != first);
  const RandomKey key = random_key(1, "test", 0);
  CHECK(randn({5}, key).to_vector<float>() == randn({5}, key).to_vector<float>());

  const std::vector<double> normal = randn({10000}, key, Dtype::f64).to_vector<double>();
  double sum = 0, squares = 0;
  for (const double value : normal) sum += value, squares += value * value;
  CHECK(std::abs(sum / 10000) < 0.04);  // four standard errors
  CHECK(std::abs(squares / 10000 - 1) < 0.06);

  const Floats uniform = rand({10000}, key).to_vector<float>();
  CHECK(*std::min_element(uniform.begin(), uniform.end()) >= 0);
  CHECK(*std::max_element(uniform.begin(), uniform.end()) < 1);

  const std::vector<std::int64_t> whole = randint(-2, 3, {1000}, key).to_vector<std::int64_t>();
  CHECK(*std::min_element(whole.begin(), whole.end()) == -2);
  CHECK(*std::max_element(whole.begin(), whole.end()) == 2);
  CHECK(randint(0, 9, {3}, Dtype::i32).dtype() == Dtype::i32);
  CHECK_THROWS_AS(randint(3, 3, {1}), ValueError);
  CHECK_THROWS_AS(randn({2}, Dtype::i64), DtypeError);
  CHECK_THROWS_AS(randint(0, 3, {2}, Dtype::f32), DtypeError);
}

TEST_CASE("randperm gives each number once, each order as likely as the next") {
  const RandomKey key = random_key(1, "order", 0);
  std::vector<std::int64_t> order = randperm(100, key).to_vector<std::int64_t>();
  CHECK(order == randperm(100, key).to_vector<std::int64_t>());
  std::sort(order.begin(), order.end());
  CHECK(order == arange(100, Dtype::i64).to_vector<std::int64_t>());
  CHECK(randperm(0).shape() == Shape{0});
  CHECK_THROWS_AS(randperm(-1), ShapeError);

  std::map<std::vector<std::int64_t>, int> found;
  for (std::uint64_t i = 0; i < 6000; ++i)
    ++found[randperm(3, random_key(1, "order", i)).to_vector<std::int64_t>()];
  CHECK(found.size() == 6);
  for (const auto& [numbers, count] : found) CHECK(std::abs(count - 1000) < 145);  // five standard deviations
}

TEST_CASE("multinomial draws places in proportion to their numbers, and none twice") {
  const Tensor weights = tensor({{0.0, 1.0, 3.0, 0.0}, {2.0, 0.0, 0.0, 0.0}});
  std::map<std::int64_t, int> found;
  for (std::uint64_t i = 0; i < 4000; ++i) {
    const Tensor one = multinomial(weights, 1, random_key(1, "token", i));
    REQUIRE(one.shape() == Shape{2, 1});
    const std::vector<std::int64_t> places = one.to_vector<std::int64_t>();
    ++found[places[0]];
    REQUIRE(places[1] == 0);
  }
  CHECK(found.size() == 2);
  CHECK(std::abs(found[1] - 1000) < 137);  // five standard deviations

  found.clear();
  for (std::uint64_t i = 0; i < 4000; ++i) {
    const Tensor two = multinomial(tensor({1.f, 2.f, 1.f}), 2, random_key(2, "token", i));
    const std::vector<std::int64_t> places = two.to_vector<std::int64_t>();
    REQUIRE(places[0] != places[1]);
    ++found[3 * places[0] + places[1]];
  }
  CHECK(found.size() == 6);
  CHECK(std::abs(found[1] - 667) < 118);   // 1/4 2/3: place 0, then 1
  CHECK(std::abs(found[5] - 1000) < 137);  // 1/2 1/2: place 1, then 2

  CHECK(multinomial(weights, 1).dtype() == Dtype::i64);
  CHECK_THROWS_AS(multinomial(weights, 2, random_key(1, "token", 0)), ValueError);  // the second row has one
  CHECK_THROWS_AS(multinomial(weights, 5), ShapeError);
  CHECK_THROWS_AS(multinomial(weights, 0), ShapeError);
  CHECK_THROWS_AS(multinomial(tensor(1.0), 1), ShapeError);
  CHECK_THROWS_AS(multinomial(tensor({1.0, -1.0}), 1), ValueError);  // logits
  CHECK_THROWS_AS(multinomial(tensor({1, 2}), 1), DtypeError);
}

TEST_CASE("random tensors: sizes that cannot be had are refused as those of zeros are") {
  for (const Shape& shape : {Shape{std::int64_t{1} << 50},
                             {std::int64_t{1} << 62},
                             {std::int64_t{1} << 40, std::int64_t{1} << 40}}) {
    CHECK_THROWS_AS(randn(shape), OutOfMemoryError);
    CHECK_THROWS_AS(rand(shape, Dtype::bf16), OutOfMemoryError);
    CHECK_THROWS_AS(randint(0, 9, shape), OutOfMemoryError);
  }
  CHECK_THROWS_AS(randn({-1}), ShapeError);
}

TEST_CASE("random tensors: the numbers of a narrow type are those of f64 rounded whatever the size") {
  const RandomKey key = random_key(2, "narrow", 0);
  for (const std::int64_t size : {0, 1, 8191, 20001})
    for (const Dtype dtype : {Dtype::f32, Dtype::bf16}) {
      const auto same = [&](const Tensor& narrow, const Tensor& wide) {
        return raw::cast(narrow, Dtype::f64).to_vector<double>() ==
               raw::cast(raw::cast(wide, dtype), Dtype::f64).to_vector<double>();
      };
      CHECK(same(randn({size}, key, dtype), randn({size}, key, Dtype::f64)));
      CHECK(same(rand({size}, key, dtype), rand({size}, key, Dtype::f64)));
    }
  std::vector<double> filled(20001);
  fill_normal(filled, key, 1);
  CHECK(randn({20001}, key, Dtype::f64).to_vector<double>() == filled);
}

TEST_CASE("print: numbers in columns, then dtype, shape and device") {
  CHECK(text_of(Tensor()) == "undefined");
  CHECK(text_of(full({}, 1.5)) == "1.5  f32 [] cpu");
  CHECK(text_of(tensor({{1.5f, 2.f, -3.f}, {4.f, 50.f, 6.f}})) ==
        "[[1.5,   2,  -3],\n [  4,  50,   6]]  f32 [2, 3] cpu");
  CHECK(text_of(raw::reshape(arange(8, Dtype::i64), {2, 2, 2})) ==
        "[[[0, 1],\n  [2, 3]],\n\n [[4, 5],\n  [6, 7]]]  i64 [2, 2, 2] cpu");
  CHECK(text_of(zeros({0, 3})) == "[]  f32 [0, 3] cpu");
  CHECK(text_of(tensor({1e-7f, 1.f})) == "[1.0000e-07, 1.0000e+00]  f32 [2] cpu");
  CHECK(text_of(tensor({1.f / 3, NAN, -INFINITY})) == "[0.3333,    nan,   -inf]  f32 [3] cpu");
  CHECK(text_of(arange(2000)) == "[   0,    1,    2, ..., 1997, 1998, 1999]  f32 [2000] cpu");
  CHECK(text_of(zeros({100, 100})).size() < 300);
  std::ostringstream parts;
  parts << Shape{2, 3} << " " << Dtype::bf16 << " " << kCpu;
  CHECK(parts.str() == "[2, 3] bf16 cpu");
  CHECK(text_of(raw::transpose(tensor({{1, 2}, {3, 4}}), 0, 1)) == "[[1, 3],\n [2, 4]]  i32 [2, 2] cpu");
}
