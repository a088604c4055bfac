// Dropout: which elements go, and what stays the same in the mean.
#include "ops/dropout.h"

#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <string>

#include "autograd/tape.h"
#include "ops/op_spec.h"
#include "ops/views.h"
#include "tensor/error.h"

using namespace eddy;

namespace {

using Floats = std::vector<float>;

const RandomKey kKey = random_key(5, "layers.0.dropout", 17);

template <class E, class Function>
std::string text_of(Function&& function) {
  try {
    function();
  } catch (const E& error) {
    return error.what();
  }
  return "no error of this type";
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

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
    CHECK(contains(text_of<ValueError>([&] { dropout(x, p, kKey); }), "dropout: p out of range"));
  CHECK(contains(text_of<DtypeError>([&] { dropout(Tensor::zeros({3}, Dtype::i64), 0.1, kKey); }),
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
