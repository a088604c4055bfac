// Append-only buffers: numbers, gradients against a composition of plain operations, cost and
// errors.
#include <doctest/doctest.h>

#include <cmath>

#include "autograd/seq_buffer.h"
#include "tensor/base/error.h"
#include "tensor/memory/allocator.h"
#include "tests/autograd/tiny_ops.h"
#include "tests/support/errors.h"
#include "tests/support/tensors.h"

using namespace eddy;
using namespace eddy::test;
using namespace eddy::tiny;

namespace {

using Values = std::vector<double>;

SeqBuffer line(std::int64_t capacity) {
  return SeqBuffer({capacity}, 0, Dtype::f64);
}

}  // namespace

TEST_CASE("appended rows appear in windows that view one storage") {
  SeqBuffer memory({2, 5, 3}, 1, Dtype::f64);
  CHECK(memory.capacity() == 5);
  CHECK(memory.axis() == 1);
  const Tensor a = counted({2, 2, 3}, 0), b = counted({2, 1, 3}, 100);
  memory = memory.append(a).append(b);
  CHECK(memory.count() == 3);
  CHECK(memory.window(0, 2).to_vector<double>() == a.to_vector<double>());
  CHECK(memory.window(2, 3).to_vector<double>() == b.to_vector<double>());
  CHECK(memory.all().shape() == Shape{2, 3, 3});
  CHECK(memory.window(1, 1).elements() == 0);
  CHECK(memory.window(0, 2).buffer() == memory.all().buffer());
  CHECK_FALSE(memory.tracked());
  CHECK_FALSE(requires_grad(memory.all()));
}

TEST_CASE("appending does not count as an in-place write so saved windows stay valid") {
  const Tensor w = leaf({2, 3});
  SeqBuffer memory = line(8).append(vec({1, 2}));
  const Tensor y = mul(memory.window(0, 2), w);
  memory = memory.append(vec({7}));
  CHECK(memory.window(0, 1).buffer()->version() == 0);
  backward(sum(y));
  CHECK(grad(w).to_vector<double>() == Values{1, 2});
}

TEST_CASE("gradients of overlapping windows of several versions reach the rows they saw") {
  const Tensor a = leaf({1, 2}), b = leaf({3}), c = leaf({4, 5});
  const SeqBuffer v1 = line(6).append(scale(a, 10));
  const Tensor early = v1.window(0, 2);
  const SeqBuffer v2 = v1.append(b);
  const Tensor middle = v2.window(1, 3);
  const SeqBuffer v3 = v2.append(c);
  const Tensor late = v3.window(0, 5);
  const Tensor old = v2.window(2, 3);  // of an older version, after the newer one was made
  CHECK(late.to_vector<double>() == Values{10, 20, 3, 4, 5});
  backward({early, middle, late, old},
           {vec({1, 2}), vec({10, 20}), vec({100, 200, 300, 400, 500}), vec({1000})});
  CHECK(grad(a).to_vector<double>() == Values{1010, 2120});
  CHECK(grad(b).to_vector<double>() == Values{1320});
  CHECK(grad(c).to_vector<double>() == Values{400, 500});
}

TEST_CASE("rows that were computed from earlier windows pass gradients through time") {
  // h[t+1] = tanh(w * (h[t] + h[t-1])), with the memory and without it.
  const auto with_memory = [](const Tensor& w, const Tensor& h0) {
    SeqBuffer memory = SeqBuffer({12, 2}, 0, Dtype::f64).append(h0);
    for (std::int64_t t = 1; t < 10; ++t) {
      const Tensor h = add(memory.window(t - 1, t), memory.window(t, t + 1));
      memory = memory.append(tanh(mul(w, h)));
    }
    return sum(memory.all());
  };
  const auto plain = [](const Tensor& w, const Tensor& h0) {
    std::vector<Tensor> h{slice(h0, 0, 0, 1), slice(h0, 0, 1, 1)};
    Tensor total = add(sum(h[0]), sum(h[1]));
    for (std::size_t t = 1; t < 10; ++t) {
      h.push_back(tanh(mul(w, add(h[t - 1], h[t]))));
      total = add(total, sum(h.back()));
    }
    return total;
  };
  const auto gradients = [](const auto& fn) {
    const Tensor w = require_grad(counted({1, 2}, 0.4)), h0 = require_grad(counted({2, 2}, 0.1));
    backward(fn(w, h0));
    Values both = grad(w).to_vector<double>();
    for (const double v : grad(h0).to_vector<double>()) both.push_back(v);
    return both;
  };
  const Values got = gradients(with_memory), wanted = gradients(plain);
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    INFO("element " << i << ": " << got[i] << " and " << wanted[i]);
    CHECK_FALSE(
        !(std::abs(got[i] - wanted[i]) <= 1e-13 * std::abs(wanted[i])));  // a different order of some 10 sums
  }
}

TEST_CASE("tracked and untracked rows may alternate") {
  const Tensor a = leaf({1}), b = leaf({2});
  SUBCASE("tracked behind untracked") {
    const SeqBuffer memory = line(4).append(vec({9, 8})).append(a).append(vec({7}));
    CHECK(memory.tracked());
    CHECK_FALSE(requires_grad(memory.window(0, 2)));  // no tracked row in it
    CHECK(requires_grad(memory.window(1, 4)));
    backward(memory.all(), vec({1, 2, 3, 4}));
    CHECK(grad(a).item() == 3);
  }
  SUBCASE("untracked between tracked") {
    const SeqBuffer memory = line(4).append(a).append(vec({9})).append(b);
    backward({memory.window(0, 2), memory.window(1, 3)}, {vec({1, 2}), vec({10, 20})});
    CHECK(grad(a).item() == 1);
    CHECK(grad(b).item() == 20);
  }
  SUBCASE("tracked rows under NoGrad are constants") {
    SeqBuffer memory = line(4).append(a);
    {
      const NoGrad off;
      memory = memory.append(b);
      CHECK_FALSE(requires_grad(memory.all()));
    }
    backward(memory.all(), vec({5, 6}));
    CHECK(grad(a).item() == 5);
    CHECK_FALSE(grad(b).defined());
  }
}

TEST_CASE("detach goes on with the same rows and stops the gradient") {
  const Tensor a = leaf({1, 1}), b = leaf({2});
  SeqBuffer memory = line(8).append(scale(a, 2));
  backward(sum(memory.all()));
  memory = memory.detach();
  CHECK_FALSE(memory.tracked());
  CHECK_FALSE(requires_grad(memory.all()));
  memory = memory.append(b);
  const Tensor window = memory.window(1, 3);
  CHECK(window.to_vector<double>() == Values{2, 2});
  backward(window, vec({10, 20}));
  CHECK(grad(a).to_vector<double>() == Values{2, 2});
  CHECK(grad(b).item() == 20);
}

TEST_CASE("a memory carried over a backward pass without detach is a GraphError") {
  const Tensor a = leaf({1}), b = leaf({2});
  SeqBuffer memory = line(8).append(a);
  backward(memory.all());
  memory = memory.append(b);
  const std::string text = error_of<GraphError>([&] { backward(sum(memory.all())); });
  CHECK(contains(text, "SeqBuffer.append was freed by an earlier backward"));
}

TEST_CASE("rows appended twice get both gradients and may be a window of the same memory") {
  const Tensor a = leaf({1, 2});
  SeqBuffer memory = line(8).append(a).append(a);
  memory = memory.append(memory.window(1, 3));
  CHECK(memory.all().to_vector<double>() == Values{1, 2, 1, 2, 2, 1});
  backward(memory.all(), vec({1, 2, 10, 20, 100, 200}));
  CHECK(grad(a).to_vector<double>() == Values{211, 122});
}

TEST_CASE("a memory along the middle axis takes strided rows and sums into gradient storage") {
  const Tensor x = require_grad(counted({3, 2, 4}, 0));
  const Tensor arena = Tensor::full({3, 2, 4}, 77, Dtype::f64);
  set_grad_storage(x, arena);
  SeqBuffer memory =
      SeqBuffer({3, 6, 4}, -2, Dtype::f64).append(x).append(Tensor::zeros({3, 1, 4}, Dtype::f64));
  backward({memory.window(0, 2), memory.window(1, 3)}, {counted({3, 2, 4}, 0), counted({3, 2, 4}, 100)});
  const Values got = arena.to_vector<double>();
  CHECK(got[0] == 0);             // batch 0, row 0
  CHECK(got[5] == 5 + 101);       // batch 0, row 1: also row 0 of the second window
  CHECK(got[8 + 4] == 12 + 108);  // batch 1, row 1
}

TEST_CASE("bf16 memories sum their gradient in f32") {
  const Tensor x = require_grad(raw::cast(vec({1, 2}), Dtype::bf16));
  const SeqBuffer memory = SeqBuffer({4}, 0, Dtype::bf16).append(x);
  std::vector<Tensor> windows, ones;
  for (int i = 0; i < 300; ++i) {
    windows.push_back(memory.all());
    ones.push_back(Tensor::full({2}, 1, Dtype::bf16));
  }
  backward(windows, ones);  // in bf16 the sum would stick at 256
  CHECK(raw::cast(grad(x), Dtype::f64).to_vector<double>() == Values{300, 300});
}

TEST_CASE("the shared gradient is freed by the oldest append and saved bytes return to zero") {
  const GraphStats before = graph_stats();
  const Tensor w = leaf(Values(256, 1));
  SeqBuffer memory({64, 256}, 0, Dtype::f64);
  const Tensor first = vec(Values(256, 1));
  memory = memory.append(raw::reshape(first, {1, 256}));
  const std::int64_t live = allocator(kCpu).stats().live_bytes;
  Tensor loss = Tensor::zeros({}, Dtype::f64);
  for (std::int64_t t = 1; t < 64; ++t) {
    memory = memory.append(record("row", {w}, raw::reshape(w, {1, 256}), {},
                                  [](VjpContext& c) { c.sink.accumulate(0, raw::reshape(c.dy(), {256})); }));
    loss = add(loss, sum(memory.window(t - 1, t + 1)));
  }
  backward(loss);
  loss = Tensor();
  CHECK(grad(w).to_vector<double>()[3] == 125);  // every tracked row is seen twice, the last one once
  CHECK(allocator(kCpu).stats().live_bytes - live <= 2 * 2048 + 64);  // the gradient of w
  memory = memory.detach();
  CHECK(graph_stats().nodes == before.nodes);
  CHECK(graph_stats().saved_bytes == before.saved_bytes);
}

TEST_CASE("a long memory is freed without backward and without recursion") {
  const GraphStats before = graph_stats();
  const Tensor x = leaf({1});
  constexpr std::int64_t kRows = 200'000;
  SeqBuffer memory = line(kRows);
  for (std::int64_t t = 0; t < kRows; ++t) memory = memory.append(x);
  CHECK(graph_stats().nodes - before.nodes == kRows);
  memory = SeqBuffer();
  CHECK(graph_stats().nodes == before.nodes);
}

TEST_CASE("appends and windows cost what they hold and make no zero tensors") {
  constexpr std::int64_t kSteps = 2048, kChannels = 64, kWindow = 4;
  const Tensor x = require_grad(Tensor::zeros({1, kChannels}, Dtype::f64));
  SeqBuffer memory({kSteps, kChannels}, 0, Dtype::f64);
  std::vector<Tensor> windows, ones;
  const Tensor one = Tensor::full({kWindow, kChannels}, 1, Dtype::f64);
  for (std::int64_t t = 0; t < kSteps; ++t) {
    memory = memory.append(x);
    if (t + 1 < kWindow) continue;
    windows.push_back(memory.window(t + 1 - kWindow, t + 1));
    ones.push_back(one);
  }
  allocator(kCpu).reset_peak();
  const AllocatorStats before = allocator(kCpu).stats();
  backward(windows, ones);
  const AllocatorStats after = allocator(kCpu).stats();
  CHECK(after.allocations - before.allocations == 2);  // the shared gradient and the gradient of x
  const std::int64_t bytes = kSteps * kChannels * 8;
  CHECK(after.peak_bytes - before.live_bytes <= bytes + bytes / 8 + 1024);
  CHECK(grad(x).to_vector<double>()[5] == static_cast<double>(kWindow * (kSteps - kWindow + 1)));
}

TEST_CASE("a backward that fails inside leaves no shared gradient behind") {
  const Tensor a = leaf({1}), w = vec({2});
  SeqBuffer memory = line(4).append(a);
  const Tensor bad = mul(memory.all(), w);
  const Tensor good = scale(memory.all(), 3);
  wrote_in_place(w, "test");
  // good has run and the shared gradient has its sum when bad fails.
  CHECK_THROWS_AS(backward({good, bad}, {Tensor(), Tensor()}), VersionError);
  const Tensor again = scale(memory.all(), 5);
  backward(again);
  CHECK(grad(a).item() == 5);
}

TEST_CASE("appending to an old version is a GraphError") {
  const SeqBuffer v0 = line(4);
  const SeqBuffer v1 = v0.append(vec({1, 2}));
  CHECK(contains(error_of<GraphError>([&] { (void)v0.append(vec({3})); }),
                 "this version has 0 rows and 2 were written"));
  CHECK(v1.append(vec({3})).count() == 3);
  CHECK_THROWS_AS((void)v1.append(vec({4})), GraphError);
}

TEST_CASE("rows that do not fit are refused with the numbers and change nothing") {
  SeqBuffer memory = SeqBuffer({2, 3, 4}, 1, Dtype::f64).append(Tensor::zeros({2, 2, 4}, Dtype::f64));
  const auto refused = [&](const Tensor& rows) { return [&, rows] { (void)memory.append(rows); }; };
  CHECK(contains(error_of<ShapeError>(refused(Tensor::zeros({2, 2, 4}, Dtype::f64))),
                 "2 rows behind 2 exceed the capacity of 3"));
  CHECK(contains(error_of<ShapeError>(refused(Tensor::zeros({2, 1, 5}, Dtype::f64))),
                 "rows [2, 1, 5] for a buffer [2, 3, 4]"));
  CHECK_THROWS_AS(refused(Tensor::zeros({2, 4}, Dtype::f64))(), ShapeError);
  CHECK(contains(error_of<DtypeError>(refused(Tensor::zeros({2, 1, 4}))), "rows of f32 for a buffer of f64"));
  CHECK_THROWS_AS(refused(Tensor())(), ValueError);
  CHECK(contains(error_of<ShapeError>([&] { memory.window(1, 3); }), "rows 1 to 3 of 2"));
  CHECK_THROWS_AS(memory.window(-1, 1), ShapeError);
  CHECK_THROWS_AS(memory.window(2, 1), ShapeError);
  CHECK(memory.append(Tensor::zeros({2, 0, 4}, Dtype::f64)).count() == 2);
  CHECK(memory.append(Tensor::zeros({2, 1, 4}, Dtype::f64)).count() == 3);
  CHECK_THROWS_AS(SeqBuffer({2, 3}, 2), ShapeError);
  CHECK_THROWS_AS(SeqBuffer({}, 0), ShapeError);
  CHECK_THROWS_AS(SeqBuffer({2}, 0, Dtype::i32), DtypeError);
  CHECK_THROWS_AS((void)SeqBuffer().append(vec({1})), ValueError);
  CHECK_THROWS_AS(SeqBuffer().window(0, 0), ValueError);
}
