// Dropout: which elements go, and what stays the same in the mean.
#include "ops/pointwise/dropout.h"

#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "autograd/tape.h"
#include "ops/cast/upcast.h"
#include "ops/core/op_spec.h"
#include "ops/index/gather.h"
#include "ops/pointwise/pointwise.h"
#include "ops/views/views.h"
#include "tensor/base/error.h"
#include "tests/support/errors.h"
#include "tests/support/spec_check.h"

using namespace eddy;
using namespace eddy::detail;
using namespace eddy::test;

namespace {

using Floats = std::vector<float>;

const RandomKey kKey = random_key(5, "layers.0.dropout", 17);

}  // namespace

TEST_CASE("dropout keeps the elements whose own random number reaches p") {
  const std::int64_t n = 1000;
  const Tensor ones = Tensor::full({n}, 1);
  // Values of p at, just below and just above a number that is drawn: only >= keeps it.
  const double drawn = uniform01(kKey.word(123));
  for (const double p : {0.1, 0.5, 0.999, drawn, std::nextafter(drawn, 0.0), std::nextafter(drawn, 1.0)})
    for (const std::uint64_t first : {0, 1, 2, 3, 61}) {
      const Floats y = dropout(ones, p, kKey, first).to_vector<float>();
      std::int64_t wrong = 0;
      for (std::size_t i = 0; i < y.size(); ++i) {
        const bool keep = static_cast<double>(uniform01(kKey.word(first + i))) >= p;
        wrong += y[i] != (keep ? static_cast<float>(1 / (1 - p)) : 0.0f);
      }
      CHECK(wrong == 0);
    }
}

TEST_CASE("dropout of a part is a part of the dropout") {
  const Tensor x = sample_normal({40000}, "x");
  const Tensor whole = dropout(x, 0.25, kKey);
  for (const std::int64_t start : {1, 62, 16383, 16386}) {
    const Tensor part = dropout(narrow(x, 0, start, 20000), 0.25, kKey, static_cast<std::uint64_t>(start));
    CHECK(part.to_vector<double>() == narrow(whole, 0, start, 20000).to_vector<double>());
  }
}

TEST_CASE("dropout preserves the mean") {
  const std::int64_t n = 1 << 18;
  const double p = 0.3;
  double sum = 0;
  for (const float value : dropout(Tensor::full({n}, 1), p, kKey).to_vector<float>()) sum += value;
  // The mean of n such elements has the standard deviation sqrt(p / (1 - p) / n); five of them are passed by
  // chance once in 10^6 keys, and the key is fixed.
  CHECK(std::abs(sum / static_cast<double>(n) - 1) <= 5 * std::sqrt(p / (1 - p) / static_cast<double>(n)));
}

TEST_CASE("dropout draws another mask for another stream and another step") {
  const Tensor ones = Tensor::full({256}, 1);
  const Floats y = dropout(ones, 0.5, kKey).to_vector<float>();
  CHECK(y == dropout(ones, 0.5, random_key(5, "layers.0.dropout", 17)).to_vector<float>());
  CHECK(y != dropout(ones, 0.5, random_key(5, "layers.0.dropout", 18)).to_vector<float>());
  CHECK(y != dropout(ones, 0.5, random_key(5, "layers.1.dropout", 17)).to_vector<float>());
  CHECK(y != dropout(ones, 0.5, random_key(6, "layers.0.dropout", 17)).to_vector<float>());
}

TEST_CASE("the backward of dropout draws the forward's mask and stores none") {
  const Tensor x = Tensor::full({777}, 1);
  require_grad(x);
  const std::int64_t saved = graph_stats().saved_bytes;
  const Tensor y = dropout(x, 0.4, kKey, 9);
  CHECK(graph_stats().saved_bytes == saved);
  backward(y, Tensor::full({777}, 1));
  CHECK(grad(x).to_vector<float>() == y.to_vector<float>());
}

TEST_CASE("dropout with p = 0 returns its input itself") {
  const Tensor x = sample_normal({3, 4}, "x");
  CHECK(dropout(x, 0, kKey).same(x));
}

TEST_CASE("dropout refuses a p outside its range") {
  const Tensor x = Tensor::zeros({3});
  for (const double p : {1.0, 1.5, -0.1, std::numeric_limits<double>::quiet_NaN()})
    CHECK(contains(error_of<ValueError>([&] { dropout(x, p, kKey); }), "dropout: p out of range"));
  CHECK(contains(error_of<DtypeError>([&] { dropout(Tensor::zeros({3}, Dtype::i64), 0.1, kKey); }),
                 "dropout: input is i64"));
}

TEST_CASE("the dropout kernel adds and works in place") {
  const std::int64_t n = 200;
  const Tensor x = sample_normal({n}, "x"), want = dropout(x, 0.5, kKey, 2);
  const Tensor in_place = raw::copy(x);
  dropout_slot(kCpu, {Dtype::f64, n, in_place.raw_data(), in_place.raw_data(), 0.5, kKey, 2, 2.0, 0});
  CHECK(in_place.to_vector<double>() == want.to_vector<double>());
  const Tensor sum = raw::copy(x);
  dropout_slot(kCpu, {Dtype::f64, n, x.raw_data(), sum.raw_data(), 0.5, kKey, 2, 2.0, 1});
  const std::vector<double> added = sum.to_vector<double>(), dropped = want.to_vector<double>(),
                            old = x.to_vector<double>();
  std::int64_t wrong = 0;
  for (std::size_t i = 0; i < added.size(); ++i) wrong += added[i] != old[i] + dropped[i];
  CHECK(wrong == 0);
}

TEST_CASE("tiled_dropout is the product with a mask of one tile whose rows are picked by position") {
  for (const Dtype dtype : {Dtype::f32, Dtype::f64, Dtype::bf16})
    for (const std::int64_t dim : {1, 7, 8, 1031})
      for (const auto& [tile, first] :
           {std::pair<std::int64_t, std::int64_t>{1, 0}, {5, 0}, {5, 13}, {40, 2}}) {
        const std::int64_t time = 12;
        const Tensor x = raw::cast(sample_normal({3, time, dim}, "x"), dtype);
        const Tensor dy = raw::cast(sample_normal({3, time, dim}, "dy"), dtype);
        const auto tiled = [tile, first](const Tensor& input) {
          return tiled_dropout(input, 0.3, kKey, tile, first);
        };
        // The mask beside bf16 in f32, where 1 / (1 - p) would be rounded.
        const auto composed = [&, tile, first](const Tensor& input) {
          const Tensor values = upcast(input);
          const Tensor mask = dropout(Tensor::full({tile, dim}, 1, values.dtype()), 0.3, kKey);
          std::vector<std::int64_t> rows;
          for (std::int64_t t = 0; t < time; ++t) rows.push_back((first + t) % tile);
          return cast(values * embedding(mask, Tensor::from(rows, {time})), dtype);
        };
        const auto run = [&](auto&& op) {
          const Tensor leaf = raw::copy(x);
          require_grad(leaf);
          const Tensor y = op(leaf);
          backward(y, dy);
          return std::pair{raw::copy(detach(y)), grad(leaf)};
        };
        const auto want = run(composed), got = run(tiled);
        for (const std::string& text : {spec_check::bit_difference("result", got.first, want.first),
                                        spec_check::bit_difference("gradient", got.second, want.second)})
          CHECK_MESSAGE(text.empty(), text);
      }
}

TEST_CASE("tiled_dropout names what does not fit") {
  const Tensor x = Tensor::full({2, 3, 4}, 1);
  CHECK(contains(error_of<ValueError>([&] { tiled_dropout(x, 1, kKey, 2); }), "p out of range: 1"));
  CHECK(contains(error_of<ValueError>([&] { tiled_dropout(x, 0.5, kKey, 0); }), "a tile of 0 positions"));
  CHECK(contains(error_of<ValueError>([&] { tiled_dropout(x, 0.5, kKey, 2, -1); }), "from position -1"));
  CHECK(contains(error_of<ShapeError>([&] {
                   tiled_dropout(Tensor::full({3, 4}, 1), 0.5, kKey, 2);
                 }),
                 "x has shape [3, 4]"));
}
