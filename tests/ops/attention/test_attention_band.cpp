// Attention within a band and with tables: against a dense masked softmax, against the composed form, and the
// contract of the options.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "autograd/tape.h"
#include "ops/attention/attention.h"
#include "ops/core/op_spec.h"
#include "ops/cpu/isa.h"
#include "tensor/base/format.h"
#include "tensor/threads/thread_pool.h"
#include "tests/support/errors.h"
#include "tests/support/isa_levels.h"
#include "tests/support/tensors.h"
#include "tests/support/threads.h"

using namespace eddy;
using namespace eddy::test;

namespace {

// Sums over up to some 300 pairs of products of size 4 or less, up to 64 of them in a score: some 64
// roundings of values below 64.
double band_tolerance(Dtype dtype) {
  return 64 * 64 * (dtype == Dtype::f32 ? 0x1p-24 : 0x1p-53);
}

struct BandCase {
  std::int64_t batch, queries, keys, heads, kv_heads, head_size;
  AttentionBand band;
  bool head_scale = false, bias = false, positions = false;
  double dropout = 0;
};

constexpr std::int64_t kFar = AttentionBand::kFar;

// Two distances more than are visible in each table. The scale of head 0 is negative, that of head 1 zero.
std::vector<Tensor> band_inputs(const BandCase& c, Dtype dtype) {
  const std::int64_t distances = std::max<std::int64_t>(0, std::min(c.band.most, c.keys - 1) + 1) + 2;
  std::vector<Tensor> x = {sample_normal({c.batch, c.queries, c.heads, c.head_size}, "q"),
                           sample_normal({c.batch, c.keys, c.kv_heads, c.head_size}, "k"),
                           sample_normal({c.batch, c.keys, c.kv_heads, c.head_size}, "v"),
                           sample_normal({c.heads}, "head_scale"),
                           sample_normal({c.heads, distances}, "bias"),
                           sample_normal({distances, c.head_size}, "positions", 0.5)};
  x[3].mutable_data<double>()[0] = -0.75;
  if (c.heads > 1) x[3].mutable_data<double>()[1] = 0;
  for (Tensor& part : x) part = raw::cast(part, dtype);
  return x;
}

AttentionOptions options_of(const BandCase& c, const std::vector<Tensor>& x) {
  AttentionOptions options;
  options.band = c.band;
  options.dropout = c.dropout;
  options.dropout_key = random_key(5, "test_attention_band", 3);
  if (c.head_scale) options.head_scale = x[3];
  if (c.bias) options.bias = x[4];
  if (c.positions) options.positions = x[5];
  return options;
}

using Attention = Tensor (*)(const Tensor&, const Tensor&, const Tensor&, const AttentionOptions&);

// The result and the gradients of all six inputs, undefined where an input takes no part.
std::vector<Tensor> run(Attention function, const BandCase& c, const std::vector<Tensor>& inputs) {
  std::vector<Tensor> x;
  for (const Tensor& input : inputs) x.push_back(require_grad(raw::alias(input)));
  const Tensor y = function(x[0], x[1], x[2], options_of(c, x));
  backward(y, raw::cast(sample_normal(y.shape(), "cotangent"), y.dtype()));
  std::vector<Tensor> results = {detach(y)};
  for (const Tensor& leaf : x) results.push_back(grad(leaf));
  return results;
}

const BandCase kBandCases[] = {
    {2, 20, 27, 2, 2, 16, {1, 7}, true, true, false},           // a segment after its cache
    {1, 130, 230, 2, 2, 24, {1, 100}, true, true, false},       // three query tiles
    {1, 40, 400, 2, 1, 20, {0, 360}, false, false, true},       // two key tiles, grouped heads
    {2, 60, 60, 3, 3, 8, {0, kFar}, false, false, true},        // causal
    {1, 100, 340, 2, 2, 5, {1, 260}, false, false, true},       // band over key tiles
    {1, 50, 300, 4, 2, 16, {3, 270}, true, true, true, 0.3},    // everything
    {1, 3, 40, 1, 1, 16, {0, kFar}, true, true, true, 0.3},     // fewer rows than a register tile
    {1, 1, 19, 3, 3, 12, {1, 7}, true, true, true},             // one query
    {2, 1, 700, 2, 2, 32, {0, kFar}, false, false, true, 0.3},  // one query, three key tiles
    {2, 1, 29, 3, 3, 64, {2, 17}, false, false, true},          // one query, keys unseen on both sides
    {2, 1, 9, 2, 2, 16, {0, kFar}, false, false, false, 0.3},   // one query and no table
    {2, 70, 20, 2, 1, 12, {1, 5}, true, true, true},            // the first queries see nothing
    {1, 57, 57, 1, 1, 64, {4, 4}, false, true, true},           // one key each
    {2, 30, 90, 4, 2, 10, {-kFar, kFar}, true, false, false},   // cross attention
    {1, 64, 50, 2, 2, 10, {-9, 5}, true, false, false},         // both sides
    {1, 300, 320, 1, 1, 16, {-60, -20}, false, false, false},   // later keys alone
    // Narrow heads: over key tiles, with grouped heads; the first queries see nothing; both sides; one key each.
    {1, 70, 330, 4, 2, 8, {1, 300}, false, false, false, 0.3},
    {2, 70, 20, 2, 1, 4, {1, 5}, false, false, false},
    {1, 64, 50, 2, 2, 16, {-9, 5}, false, false, false, 0.3},
    {1, 57, 57, 1, 1, 8, {4, 4}, false, false, false},
};

// Plain attention with a mask, all scores stored: no tables, no dropout.
Tensor dense(const Tensor& q, const Tensor& k, const Tensor& v, const std::vector<bool>& mask) {
  const std::int64_t queries = q.dim(1), keys = k.dim(1), heads = q.dim(2), size = q.dim(3);
  const std::vector<double> a = numbers(q), b = numbers(k), c = numbers(v);
  std::vector<double> y(a.size(), 0.0);
  const auto at = [&](std::int64_t batch, std::int64_t time, std::int64_t length, std::int64_t h) {
    return static_cast<std::size_t>(((batch * length + time) * heads + h) * size);
  };
  for (std::int64_t n = 0; n < q.dim(0); ++n)
    for (std::int64_t h = 0; h < heads; ++h)
      for (std::int64_t j = 0; j < queries; ++j) {
        double sum = 0;
        std::vector<double> mixed(static_cast<std::size_t>(size), 0.0);
        for (std::int64_t t = 0; t < keys; ++t) {
          if (!mask[static_cast<std::size_t>(j * keys + t)]) continue;
          double score = 0;
          for (std::size_t i = 0; i < mixed.size(); ++i)
            score += a[at(n, j, queries, h) + i] * b[at(n, t, keys, h) + i];
          const double e = std::exp(score / std::sqrt(static_cast<double>(size)));
          sum += e;
          for (std::size_t i = 0; i < mixed.size(); ++i) mixed[i] += e * c[at(n, t, keys, h) + i];
        }
        for (std::size_t i = 0; i < mixed.size() && sum > 0; ++i)
          y[at(n, j, queries, h) + i] = mixed[i] / sum;
      }
  return Tensor::from(y, q.shape());
}

}  // namespace

TEST_CASE("attention within a band equals a dense masked softmax") {
  for (const AttentionBand band : {AttentionBand{1, 6}, {0, 6}, {0, kFar}, {3, 3}, {-4, 2}, {2, kFar}})
    for (const std::int64_t keys : {9, 30, 47}) {
      const std::int64_t queries = 23;
      const Tensor q = sample_normal({2, queries, 3, 8}, "q"), k = sample_normal({2, keys, 3, 8}, "k"),
                   v = sample_normal({2, keys, 3, 8}, "v");
      std::vector<bool> mask;
      for (std::int64_t j = 0; j < queries; ++j)
        for (std::int64_t t = 0; t < keys; ++t) {
          const std::int64_t distance = (j - (queries - 1)) - (t - (keys - 1));
          mask.push_back(distance >= band.least && distance <= band.most);
        }
      AttentionOptions options;
      options.band = band;
      CAPTURE(keys);
      CAPTURE(band.least);
      CHECK(largest_difference(attention_bthd(q, k, v, options), dense(q, k, v, mask)) <=
            band_tolerance(Dtype::f64));
      CHECK(largest_difference(detail::attention_bthd_composed(q, k, v, options), dense(q, k, v, mask)) <=
            band_tolerance(Dtype::f64));
    }
}

TEST_CASE("bands and tables equal the composed form in result and gradients on every instruction set") {
  const char* const names[] = {"y", "dq", "dk", "dv", "dhead_scale", "dbias", "dpositions"};
  for (const Dtype dtype : {Dtype::f32, Dtype::f64})
    for (const BandCase& c : kBandCases) {
      const std::vector<Tensor> inputs = band_inputs(c, dtype);
      const std::vector<Tensor> composed = run(detail::attention_bthd_composed, c, inputs);
      on_every_isa_level([&] {
        const std::vector<Tensor> blocked = run(attention_bthd, c, inputs);
        for (std::size_t i = 0; i < blocked.size(); ++i) {
          INFO(fmt::format("{} at queries {}, keys {}, band {} .. {}, {}, {}", names[i], c.queries, c.keys,
                           c.band.least, c.band.most, dtype_name(dtype), isa_name(isa_level())));
          REQUIRE(blocked[i].defined() == composed[i].defined());
          if (!blocked[i].defined()) continue;
          double largest = 1;  // a table's gradient sums over all pairs of a distance
          for (const double value : numbers(composed[i])) largest = std::max(largest, std::abs(value));
          CHECK(largest_difference(blocked[i], composed[i]) <= largest * band_tolerance(dtype));
        }
      });
    }
}

TEST_CASE("a segment in two calls with a cache of keys gives what one call gives") {
  const std::int64_t window = 40, segment = 150, heads = 2, size = 16;
  const BandCase c{2, segment, window + segment, heads, heads, size, {1, window}, true, true, true};
  const std::vector<Tensor> x = band_inputs(c, Dtype::f64);
  const Tensor whole = attention_bthd(x[0], x[1], x[2], options_of(c, x));
  for (const std::int64_t cut : {1, 40, 97}) {
    const auto part = [&](std::int64_t from, std::int64_t length) {
      return attention_bthd(raw::narrow(x[0], 1, from, length), raw::narrow(x[1], 1, from, window + length),
                            raw::narrow(x[2], 1, from, window + length), options_of(c, x));
    };
    CHECK(largest_difference(part(0, cut), raw::narrow(whole, 1, 0, cut)) <= band_tolerance(Dtype::f64));
    CHECK(largest_difference(part(cut, segment - cut), raw::narrow(whole, 1, cut, segment - cut)) <=
          band_tolerance(Dtype::f64));
  }
}

TEST_CASE("keys before the band change nothing to the bit") {
  for (const BandCase& c : {BandCase{1, 100, 400, 2, 2, 16, {1, 90}, true, true, false},
                            BandCase{1, 100, 400, 2, 2, 8, {1, 90}, false, false, false}}) {
    const std::vector<Tensor> x = band_inputs(c, Dtype::f32);
    const std::vector<Tensor> before = run(attention_bthd, c, x);
    // The first query is token 300 and sees back to token 210.
    for (std::size_t i : {1, 2}) raw::fill(raw::narrow(x[i], 1, 0, 210), 3);
    const std::vector<Tensor> after = run(attention_bthd, c, x);
    for (std::size_t i = 0; i < 6; ++i)
      if (before[i].defined()) CHECK(equal_bits(before[i], after[i]));
  }
}

TEST_CASE("distances that no pair has get a gradient of exactly zero") {
  for (const Attention function : {Attention(attention_bthd), Attention(detail::attention_bthd_composed)}) {
    const BandCase c{1, 60, 80, 2, 2, 8, {2, 17}, false, true, true};
    const std::vector<Tensor> results = run(function, c, band_inputs(c, Dtype::f32));
    REQUIRE(results[5].shape() == Shape{2, 20});
    const std::vector<double> dbias = numbers(results[5]), dpositions = numbers(results[6]);
    for (std::size_t d = 0; d < 20; ++d) {
      const bool seen = d >= 2 && d <= 17;
      for (std::size_t h = 0; h < 2; ++h) CHECK((dbias[h * 20 + d] != 0) == seen);
      for (std::size_t i = 0; i < 8; ++i) CHECK((dpositions[d * 8 + i] != 0) == seen);
    }
  }
}

TEST_CASE("queries outside the band of all keys get zeros and take no gradient") {
  // Without a cache token 0 has nothing strictly before it.
  const BandCase c{2, 50, 50, 2, 2, 8, {1, 20}, true, true, true};
  const std::vector<Tensor> results = run(attention_bthd, c, band_inputs(c, Dtype::f64));
  for (const double y : numbers(raw::narrow(results[0], 1, 0, 1))) CHECK(y == 0);
  for (const double dq : numbers(raw::narrow(results[1], 1, 0, 1))) CHECK(dq == 0);
  // Here no pair is visible at all.
  const BandCase nothing{1, 4, 3, 2, 2, 8, {3, 9}, true, true, true};
  for (const Tensor& result : run(attention_bthd, nothing, band_inputs(nothing, Dtype::f32)))
    for (const double value : numbers(result)) CHECK(value == 0);
}

TEST_CASE("bands and tables give the same bits with one thread as with two or three") {
  const Threads keep(thread_count());
  for (const BandCase& c : {BandCase{5, 290, 390, 4, 2, 32, {1, 100}, true, true, true, 0.2},
                            BandCase{40, 32, 32, 4, 4, 16, {0, kFar}, false, false, true},
                            BandCase{3, 590, 690, 4, 2, 8, {1, 300}, false, false, false, 0.2}}) {
    const std::vector<Tensor> inputs = band_inputs(c, Dtype::f32);
    set_thread_count(1);
    const std::vector<Tensor> one = run(attention_bthd, c, inputs);
    for (const int threads : {2, 3}) {
      set_thread_count(threads);
      const std::vector<Tensor> more = run(attention_bthd, c, inputs);
      for (std::size_t i = 0; i < one.size(); ++i)
        if (one[i].defined()) CHECK(equal_bits(one[i], more[i]));
    }
  }
}

TEST_CASE("a gradient is the same to the bit whichever others are wanted") {
  const BandCase c{2, 60, 90, 4, 2, 16, {1, 30}, true, true, true, 0.2};
  const std::vector<Tensor> inputs = band_inputs(c, Dtype::f32), all = run(attention_bthd, c, inputs);
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    std::vector<Tensor> x;
    for (const Tensor& input : inputs) x.push_back(raw::alias(input));
    require_grad(x[i]);
    const Tensor y = attention_bthd(x[0], x[1], x[2], options_of(c, x));
    backward(y, raw::cast(sample_normal(y.shape(), "cotangent"), y.dtype()));
    // The scale's gradient takes a loop of its own, whose factor is applied apart.
    if (i < 3 || i == 5)
      CHECK(largest_difference(grad(x[i]), all[i + 1]) <= 64 * band_tolerance(Dtype::f32));
    else
      CHECK(equal_bits(grad(x[i]), all[i + 1]));
  }
}

TEST_CASE("packed attention takes bands and tables") {
  const std::int64_t heads = 2, size = 12, time = 60;
  const BandCase c{2, time, time, heads, heads, size, {1, 25}, true, true, true, 0.2};
  std::vector<Tensor> x = band_inputs(c, Dtype::f32);
  const Tensor qkv = require_grad(raw::cast(sample_normal({2, time, 3 * heads * size}, "qkv"), Dtype::f32));
  std::vector<Tensor> tables;
  for (std::size_t i = 0; i < 3; ++i) {
    x[i] = raw::reshape(raw::narrow(qkv, 2, static_cast<std::int64_t>(i) * heads * size, heads * size),
                        {2, time, heads, size});
    tables.push_back(require_grad(raw::alias(x[i + 3])));
  }
  const std::vector<Tensor> apart = run(attention_bthd, c, x);
  const Tensor y = attention_packed(qkv, heads, options_of(c, {{}, {}, {}, tables[0], tables[1], tables[2]}));
  backward(
      y, raw::reshape(raw::cast(sample_normal({2, time, heads, size}, "cotangent"), Dtype::f32), y.shape()));
  CHECK(equal_bits(raw::reshape(y, {2, time, heads, size}), apart[0]));
  for (std::int64_t i = 0; i < 3; ++i) {
    CHECK(equal_bits(
        raw::copy(raw::reshape(raw::narrow(grad(qkv), 2, i * heads * size, heads * size), apart[1].shape())),
        apart[static_cast<std::size_t>(i) + 1]));
    CHECK(equal_bits(grad(tables[static_cast<std::size_t>(i)]), apart[static_cast<std::size_t>(i) + 4]));
  }
}

TEST_CASE("attention names what does not fit in its tables and band") {
  const Tensor q = Tensor::zeros({2, 3, 6, 8}), k = Tensor::zeros({2, 5, 6, 8});
  const auto call = [&](auto&& set) {
    AttentionOptions options;
    options.causal = true;
    set(options);
    return [=] { attention_bthd(q, k, k, options); };
  };
  CHECK(error_of<ShapeError>(call([](AttentionOptions& o) { o.head_scale = Tensor::zeros({5}); })) ==
        "attention_bthd: head_scale has shape [5] ([heads]: heads 6, head_size 8)");
  CHECK(error_of<ShapeError>(call([](AttentionOptions& o) {
          o.bias = Tensor::zeros({5, 9});
        })) == "attention_bthd: bias has shape [5, 9] ([heads, distances]: heads 6, head_size 8)");
  CHECK(error_of<ShapeError>(call([](AttentionOptions& o) {
          o.bias = Tensor::zeros({6});
        })).find("bias has shape [6]") != std::string::npos);
  CHECK(error_of<ShapeError>(call([](AttentionOptions& o) {
          o.positions = Tensor::zeros({9, 6});
        })) == "attention_bthd: positions has shape [9, 6] ([distances, head_size]: heads 6, head_size 8)");
  CHECK(error_of<ValueError>(call([](AttentionOptions& o) {
          o.bias = Tensor::zeros({6, 4});
        })) ==
        "attention_bthd: bias [6, 4] has no entry for distance 4 (queries 3, keys 5: distances up to 4 are "
        "visible)");
  CHECK(error_of<ValueError>(call([](AttentionOptions& o) {
          o.positions = Tensor::zeros({2, 8});
          o.band.most = 2;
        })).find("positions [2, 8] has no entry for distance 2") != std::string::npos);
  CHECK(error_of<ValueError>(call([](AttentionOptions& o) {
          o.causal = false;
          o.band.least = -1;
          o.bias = Tensor::zeros({6, 9});
        })) == "attention_bthd: bias needs a causal band: band.least -1 (at least 0, or causal)");
  CHECK(error_of<ValueError>(call([](AttentionOptions& o) {
          o.band = {5, 3};
        })) == "attention_bthd: no distance lies in the band 5 .. 3, causal (least <= most)");
  CHECK(error_of<ValueError>(call([](AttentionOptions& o) { o.band.most = -1; })) ==
        "attention_bthd: no distance lies in the band 0 .. -1, causal (least <= most)");
  CHECK(error_of<DtypeError>(call([](AttentionOptions& o) {
          o.bias = Tensor::zeros({6, 9}, Dtype::f64);
        })).find("f32 and f64") != std::string::npos);
  CHECK(error_of<DtypeError>(call([](AttentionOptions& o) {
          o.bias = Tensor::zeros({6, 9}, Dtype::i64);
        })).find("bias is i64") != std::string::npos);
  // A table as long as the band is enough, however long the keys are.
  CHECK(error_of<Error>(call([](AttentionOptions& o) {
          o.positions = Tensor::zeros({3, 8});
          o.band.most = 2;
        })) == "");
}
