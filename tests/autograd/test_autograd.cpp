// The tape and its engine: order, accumulation, freeing, errors and what the statistics say.
#include <doctest/doctest.h>
#include <pthread.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <functional>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "autograd/scope.h"
#include "autograd/tape.h"
#include "tensor/base/error.h"
#include "tensor/memory/allocator.h"
#include "tests/autograd/tiny_ops.h"
#include "tests/support/errors.h"

using namespace eddy;
using namespace eddy::test;
using namespace eddy::tiny;

namespace {

using Values = std::vector<double>;
Values gradient(const Tensor& x) {
  return grad(x).to_vector<double>();
}

// scale by 1 that notes when its backward runs.
Tensor noting(const Tensor& x, std::vector<int>& order, int number) {
  return record("noting", {x}, raw::copy(x), {}, [&order, number](VjpContext& c) {
    order.push_back(number);
    c.sink.accumulate(0, c.dy());
  });
}

// 3 x, whose gradient is left to the node that made x, if that takes it.
struct LeftGradient final : detail::DeferredGradient {
  Tensor dy;
  void add_to(const Tensor& dst, float beta) override {
    for (std::int64_t i = 0; i < dst.elements(); ++i) {
      double& to = dst.mutable_data<double>()[i];
      to = (beta == 0 ? 0 : to) + 3 * dy.data<double>()[i];
    }
  }
};
Tensor leaving(const Tensor& x) {
  return record("leaving", {x}, map(x, [](double v) { return 3 * v; }), {}, [](VjpContext& c) {
    if (c.sink.is_taken_deferred(0))
      c.sink.defer<LeftGradient>(0).dy = c.dy();
    else
      c.sink.accumulate(0, map(c.dy(), [](double v) { return 3 * v; }));
  });
}
// x; counts what it takes.
struct TakingVjp {
  static constexpr bool kTakesDeferred = true;
  int* taken;
  void operator()(VjpContext& c) const {
    const std::unique_ptr<LeftGradient> left = c.take_deferred<LeftGradient>();
    *taken += left != nullptr;
    CHECK(c.dy().defined() == (left == nullptr));
    c.sink.accumulate(0, left == nullptr ? c.dy() : map(left->dy, [](double v) { return 3 * v; }));
  }
};
Tensor taking(const Tensor& x, int* taken) {
  return record("taking", {x}, raw::copy(x), {}, TakingVjp{taken});
}

void on_thread_with_8_mib_stack(const std::function<void()>& body) {
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, std::size_t{8} << 20);
  pthread_t thread;
  auto* argument = const_cast<void*>(static_cast<const void*>(&body));
  const auto run = [](void* function) -> void* {
    (*static_cast<const std::function<void()>*>(function))();
    return nullptr;
  };
  REQUIRE(pthread_create(&thread, &attributes, run, argument) == 0);
  pthread_join(thread, nullptr);
  pthread_attr_destroy(&attributes);
}

std::int64_t live_bytes() {
  return allocator(kCpu).stats().live_bytes;
}

}  // namespace

TEST_CASE("backward sums the gradient of every path to a leaf") {
  const Tensor a = leaf({2, 3}), b = leaf({5, 7});
  const Tensor y = sum(add(mul(a, b), scale(a, 10)));  // dy/da = b + 10, dy/db = a
  CHECK(y.item() == 2 * 5 + 3 * 7 + 50);
  backward(y);
  CHECK(gradient(a) == Values{15, 17});
  CHECK(gradient(b) == Values{2, 3});
}

TEST_CASE(
    "a node that takes deferred gradients gets one alone as it is, and the sum where there are others") {
  const auto run = [](const std::function<Tensor(const Tensor&)>& above, int* taken) {
    const Tensor x = leaf({2, 5});
    backward(sum(above(taking(x, taken))));
    return gradient(x);
  };
  int taken = 0;
  CHECK(run(leaving, &taken) == Values{3, 3});
  CHECK(taken == 1);
  CHECK(run([](const Tensor& y) { return add(leaving(y), leaving(y)); }, &taken) == Values{6, 6});
  CHECK(run([](const Tensor& y) { return add(y, leaving(y)); }, &taken) == Values{4, 4});
  CHECK(run([](const Tensor& y) { return scale(y, 2); }, &taken) == Values{2, 2});
  CHECK(taken == 1);
  const Tensor x = leaf({2, 5});  // a leaf takes none: the gradient is there when its consumer has run
  backward(sum(leaving(x)));
  CHECK(gradient(x) == Values{3, 3});
}

TEST_CASE("nodes run in strictly reverse creation order whatever the shape of the graph") {
  std::vector<int> order;
  const Tensor x = leaf({1});
  const Tensor a = noting(x, order, 1);
  const Tensor b = noting(x, order, 2);
  const Tensor a2 = noting(a, order, 3);
  const Tensor b2 = noting(b, order, 4);
  const Tensor a3 = noting(a2, order, 5);
  backward(add(add(a3, a), b2));  // a is reached early and must wait for 3 and 5
  CHECK(order == std::vector<int>{5, 4, 3, 2, 1});
  CHECK(gradient(x) == Values{3});
}

TEST_CASE("a leaf sums over two backward passes until zero_grad") {
  const Tensor x = leaf({1, 2});
  backward(sum(scale(x, 3)));
  backward(sum(scale(x, 4)));
  CHECK(gradient(x) == Values{7, 7});
  zero_grad(x);
  CHECK_FALSE(grad(x).defined());
  backward(sum(scale(x, 5)));
  CHECK(gradient(x) == Values{5, 5});
}

TEST_CASE("a gradient handed out before stays as it was when the leaf sums on") {
  const Tensor x = leaf({1});
  backward(scale(x, 3));
  const Tensor before = grad(x);
  backward(scale(x, 4));
  CHECK(before.item() == 3);
  CHECK(grad(x).item() == 7);
}

TEST_CASE("gradient storage is written in place and stale numbers are overwritten after zero_grad") {
  const Tensor x = leaf({1, 2});
  const Tensor arena = vec({99, 99});
  set_grad_storage(x, arena);
  CHECK_FALSE(grad(x).defined());
  backward(sum(scale(x, 3)));
  CHECK(arena.to_vector<double>() == Values{3, 3});
  CHECK(grad(x).same(arena));
  backward(sum(scale(x, 4)));
  CHECK(arena.to_vector<double>() == Values{7, 7});
  zero_grad(x);
  CHECK_FALSE(grad(x).defined());
  CHECK(arena.to_vector<double>() == Values{7, 7});  // forgotten, not cleared
  backward(sum(slice(x, 0, 1, 1)));  // touches one element: the other must not keep its stale number
  CHECK(arena.to_vector<double>() == Values{0, 1});
}

TEST_CASE("gradient storage may be f32 and must have the leaf's shape") {
  const Tensor x = leaf({1, 2});
  CHECK_THROWS_AS(set_grad_storage(x, vec({1, 2, 3})), ShapeError);
  const Tensor arena = Tensor::full({2}, 99);
  set_grad_storage(x, arena);
  backward(scale(x, 3), vec({1, 2}));
  CHECK(arena.to_vector<float>() == std::vector<float>{3, 6});
}

TEST_CASE("one tensor given to several inputs is not corrupted by later sums") {
  const Tensor x = leaf({1, 2}), y = leaf({3, 4});
  const Tensor dy = vec({10, 20});
  SUBCASE("x plus x") {
    backward(add(x, x), dy);
    CHECK(gradient(x) == Values{20, 40});
  }
  SUBCASE("both inputs get the same dy and then one of them gets more") {
    const Tensor more = scale(x, 1);
    backward({add(x, y), more}, {dy, vec({100, 100})});
    CHECK(gradient(x) == Values{110, 120});
    CHECK(gradient(y) == Values{10, 20});
    backward(scale(y, 1), vec({1, 1}));
    CHECK(gradient(x) == Values{110, 120});
    CHECK(gradient(y) == Values{11, 21});
  }
  SUBCASE("a chain of sums that all share dy") {
    const Tensor a = scale(x, 1), b = scale(x, 2);
    backward(add(add(a, b), add(a, x)), dy);  // 2a + b + x
    CHECK(gradient(x) == Values{50, 100});
  }
  CHECK(dy.to_vector<double>() == Values{10, 20});
}

TEST_CASE("one tensor as two inputs gets both gradients if the vjp holds both buffers while it writes") {
  // y = a + 3 b + c; the buffers are opened first and written last, in the reverse order, and c is given between.
  const auto op = [](const Tensor& a, const Tensor& b, const Tensor& c) {
    return record("op", {a, b, c}, vec({0, 0}), {}, [](VjpContext& v) {
      struct Buffer {
        Tensor tensor;
        float beta;
      } buffers[2];
      for (int k = 0; k < 2; ++k)
        v.sink.into(k, [&](const Tensor& dst, float beta) { buffers[k] = {dst, beta}; });
      v.sink.accumulate(2, v.dy());
      for (int k = 1; k >= 0; --k)
        for (int i = 0; i < 2; ++i) {
          double& to = buffers[k].tensor.mutable_data<double>()[i];
          to = (buffers[k].beta == 0 ? 0 : to) + (k == 0 ? 1 : 3) * v.dy().data<double>()[i];
        }
    });
  };
  for (const bool pinned : {false, true}) {
    const Tensor x = leaf({1, 2}), y = leaf({3, 4});
    if (pinned) set_grad_storage(x, vec({99, 99}));
    backward(op(x, x, x), vec({10, 20}));
    CHECK(gradient(x) == Values{50, 100});
    backward(op(x, y, x), vec({10, 20}));
    CHECK(gradient(x) == Values{70, 140});
    CHECK(gradient(y) == Values{30, 60});
    backward(op(y, x, x), vec({1, 1}));
    CHECK(gradient(x) == Values{74, 144});
    CHECK(gradient(y) == Values{31, 61});
  }
}

TEST_CASE("tensors that are very many inputs get all gradients") {
  constexpr int kInputs = 70;
  const Tensor x = leaf({1, 2}), z = leaf({3, 4});
  std::vector<Tensor> inputs(kInputs, x);
  std::fill(inputs.begin() + 64, inputs.end(), z);
  // dx_k = k dy; all buffers are opened before any is written.
  const Tensor y = vec({0, 0});
  record_many("op", inputs, {y}, {}, [](VjpContext& v) {
    std::vector<std::pair<Tensor, float>> buffers;
    for (int k = 0; k < kInputs; ++k)
      v.sink.into(k, [&](const Tensor& dst, float beta) { buffers.emplace_back(dst, beta); });
    for (int k = 0; k < kInputs; ++k)
      for (int i = 0; i < 2; ++i) {
        double& to = buffers[k].first.mutable_data<double>()[i];
        to = (buffers[k].second == 0 ? 0 : to) + k * v.dy().data<double>()[i];
      }
  });
  backward(y, vec({1, 2}));
  CHECK(gradient(x) == Values{2016, 4032});  // 0 + ... + 63 = 2016
  CHECK(gradient(z) == Values{399, 798});    // 64 + ... + 69 = 399
}

TEST_CASE(
    "a vjp may accumulate into an input that needs no gradient, and reaches no input that is not there") {
  const Tensor x = leaf({1, 2}), constant = vec({3, 4});
  const auto summed = [&](auto vjp) {
    zero_grad(x);
    backward(sum(record("sum_of_two", {x, constant}, raw::copy(x), {x}, vjp)));
  };
  summed([](VjpContext& c) {
    c.sink.accumulate(0, c.dy());
    c.sink.accumulate(1, c.dy());
  });
  CHECK(gradient(x) == Values{1, 1});
  CHECK_FALSE(requires_grad(constant));
  CHECK(contains(error_of<GraphError>(
                     [&] { summed([](VjpContext& c) { c.sink.into(1, [](const Tensor&, float) {}); }); }),
                 "sum_of_two: input 1 needs no gradient"));
  CHECK(contains(error_of<ValueError>([&] { summed([](VjpContext& c) { c.sink.accumulate(2, c.dy()); }); }),
                 "sum_of_two: a gradient for input 2 of 2"));
  CHECK(
      contains(error_of<ValueError>([&] { summed([](VjpContext& c) { c.sink.accumulate(0, c.saved(1)); }); }),
               "sum_of_two: saved tensor 1 of 1"));
}

TEST_CASE("a missing output gradient counts as zero") {
  const Tensor x = leaf({1, 2});
  const auto [once, twice] = once_and_twice(x);
  SUBCASE("only the second output is used") {
    backward(sum(twice));
    CHECK(gradient(x) == Values{2, 2});
  }
  SUBCASE("only the first output is used") {
    backward(sum(once));
    CHECK(gradient(x) == Values{1, 1});
  }
  SUBCASE("both are used") {
    backward({sum(once), sum(twice)}, {Tensor(), Tensor()});
    CHECK(gradient(x) == Values{3, 3});
  }
}

TEST_CASE("NoGrad leaves no nodes and EnableGrad records inside it") {
  const Tensor x = leaf({1});
  const NoGrad off;
  CHECK_FALSE(grad_enabled());
  CHECK_FALSE(requires_grad(scale(x, 2)));
  {
    const EnableGrad on;
    CHECK(requires_grad(scale(x, 2)));
  }
  CHECK_FALSE(requires_grad(scale(x, 2)));
}

TEST_CASE("detach shares the numbers and stops the gradient") {
  const Tensor x = leaf({3});
  const Tensor y = scale(x, 2);
  const Tensor cut = detach(y);
  CHECK(cut.buffer() == y.buffer());
  CHECK_FALSE(requires_grad(cut));
  backward(mul(y, cut));  // d(2x * 6)/dx with the 6 constant
  CHECK(gradient(x) == Values{12});
}

TEST_CASE("a second backward over a freed graph is a GraphError") {
  const Tensor x = leaf({1});
  const Tensor trunk = scale(x, 2);
  const Tensor y = scale(trunk, 3), z = scale(trunk, 4);
  backward(y);
  CHECK(contains(error_of<GraphError>([&] { backward(y); }),
                 "the graph behind scale was freed by an earlier backward"));
  CHECK(contains(error_of<GraphError>([&] { backward(z); }), "detach what is carried over"));
  CHECK(gradient(x) == Values{6});
}

TEST_CASE("backward names what is wrong with its arguments and then changes nothing") {
  const Tensor x = leaf({1, 2});
  const Tensor y = scale(x, 2);
  CHECK(contains(error_of<GraphError>([&] { backward(vec({1})); }),
                 "depends on nothing that requires a gradient"));
  CHECK(contains(error_of<GraphError>([&] { backward(Tensor()); }), "depends on nothing"));
  CHECK(contains(error_of<ShapeError>([&] { backward(y); }), "shape [2] and the cotangent is missing"));
  CHECK(contains(error_of<ShapeError>([&] { backward(y, vec({1, 2, 3})); }), "the cotangent [3]"));
  CHECK_THROWS_AS(backward({x, y}, {vec({1, 1}), Tensor()}), ShapeError);
  CHECK_THROWS_AS(backward({x, y}, {vec({1, 1})}), ValueError);
  CHECK_FALSE(grad(x).defined());
  backward(y, vec({1, 1}));
  CHECK(gradient(x) == Values{2, 2});
}

TEST_CASE("a backward that fails leaves no half sums for the next one") {
  const Tensor x = leaf({1});
  bool broken = true;
  const Tensor y = record("fragile", {x}, raw::copy(x), {}, [&](VjpContext& c) {
    if (broken) throw ValueError("broken");
    c.sink.accumulate(0, c.dy());
  });
  const Tensor z =
      record("identity", {y}, raw::copy(y), {}, [](VjpContext& c) { c.sink.accumulate(0, c.dy()); });
  const Tensor w = scale(y, 2);
  CHECK_THROWS_AS(backward(z), ValueError);
  broken = false;
  backward(w);
  CHECK(gradient(x) == Values{2});
}

TEST_CASE("a tracked cotangent does not tie its graph to the leaf") {
  const GraphStats before = graph_stats();
  {
    const Tensor x = leaf({1});
    const Tensor dy = scale(x, 3);
    backward(x, dy);  // the first contribution to a leaf is kept without a copy
    CHECK_FALSE(requires_grad(grad(x)));
    CHECK(gradient(x) == Values{3});
  }
  CHECK(graph_stats().nodes == before.nodes);
}

TEST_CASE("require_grad takes floating tensors that are no results") {
  const Tensor x = leaf({1});
  CHECK(require_grad(x).same(x));
  CHECK_THROWS_AS(require_grad(Tensor::zeros({2}, Dtype::i32)), DtypeError);
  CHECK_THROWS_AS(require_grad(Tensor()), GraphError);
  CHECK(contains(error_of<GraphError>([&] { require_grad(scale(x, 2)); }), "the result of scale"));
  CHECK(contains(error_of<GraphError>([&] { grad(scale(x, 2)); }), "is not a leaf"));
  CHECK_THROWS_AS(grad(vec({1})), GraphError);
}

TEST_CASE("a saved tensor that was overwritten names op and module and both versions") {
  const Tensor x = leaf({1, 2}), memory = vec({3, 4});
  Tensor y;
  {
    const ScopeGuard layer("layers.3"), part("gate");
    y = sum(mul(x, memory));
  }
  raw::copy_into(memory, vec({9, 4}));
  wrote_in_place(memory, "cache_update");
  const std::string text = error_of<VersionError>([&] { backward(y); });
  INFO(text);
  CHECK(contains(text, "mul in layers.3.gate"));
  CHECK(contains(text, "overwritten by cache_update"));
  CHECK(contains(text, "version 0 was saved, it is now 1"));
  CHECK(contains(text, "[2]"));
}

TEST_CASE("writing through mutable_data between forward and backward is found, reading through data is not") {
  const Tensor x = leaf({1, 2}), factor = vec({3, 4});
  const Tensor read = sum(mul(x, factor));
  CHECK(factor.data<double>()[0] == 3);
  backward(read);
  CHECK(grad(x).to_vector<double>() == std::vector<double>{3, 4});
  const Tensor overwritten = sum(mul(x, factor));
  factor.mutable_data<double>()[0] = 0;
  CHECK(contains(error_of<VersionError>([&] { backward(overwritten); }), "overwritten by mutable_data"));
}

TEST_CASE("writing in place to the result of a tracked operation is a GraphError") {
  const Tensor x = leaf({1});
  const Tensor y = scale(x, 2);
  const std::uint32_t version = y.buffer()->version();
  CHECK(contains(error_of<GraphError>([&] { wrote_in_place(y, "fill"); }),
                 "fill: an in-place write to the result of scale"));
  CHECK(y.buffer()->version() == version);
  wrote_in_place(x, "optimizer");  // a leaf may be updated
  CHECK(x.buffer()->version() == 1);
}

TEST_CASE("anomaly mode names op and module of the first result that is not finite") {
  const Tensor x = leaf({1, 2});
  const AnomalyMode anomaly;
  const ScopeGuard module("head");
  const std::string text =
      error_of<NonFiniteError>([&] { scale(x, std::numeric_limits<double>::infinity()); });
  CHECK(contains(text, "scale in head"));
  CHECK(contains(text, "NaN or infinity"));
}

TEST_CASE("anomaly mode names op and module of the first gradient that is not finite") {
  const Tensor x = leaf({1, 2});
  Tensor y;
  {
    const ScopeGuard module("head");
    y = record("bad_root", {x}, raw::copy(x), {},
               [](VjpContext& c) { c.sink.accumulate(0, map(c.dy(), [](double) { return std::nan(""); })); });
  }
  const Tensor loss = sum(y);
  const AnomalyMode anomaly;
  const std::string text = error_of<NonFiniteError>([&] { backward(loss); });
  CHECK(contains(text, "bad_root in head gave a gradient with a NaN or infinity for its input 0"));
}

TEST_CASE("without anomaly mode a NaN flows on") {
  const Tensor x = leaf({1});
  CHECK_FALSE(anomaly_mode());
  backward(scale(x, std::nan("")));
  CHECK(std::isnan(grad(x).item()));
}

TEST_CASE("all_finite looks at every element of strided and empty tensors") {
  Tensor x = Tensor::zeros({5, 7}, Dtype::f64);
  CHECK(all_finite(x));
  CHECK(all_finite(Tensor::zeros({0}, Dtype::f64)));
  CHECK(all_finite(Tensor::zeros({3}, Dtype::i64)));
  x.mutable_data<double>()[34] = -std::numeric_limits<double>::infinity();
  CHECK_FALSE(all_finite(x));
  CHECK_FALSE(all_finite(raw::transpose(x, 0, 1)));
  CHECK(all_finite(raw::narrow(x, 1, 0, 6)));
}

TEST_CASE("graph statistics return to where they were after backward") {
  const Tensor x = leaf({1, 2, 3});
  const GraphStats before = graph_stats();
  reset_graph_depth();
  Tensor y = x;
  for (int i = 0; i < 5; ++i) y = mul(y, y);
  const GraphStats built = graph_stats();
  CHECK(built.nodes - before.nodes == 5);
  CHECK(built.recorded - before.recorded == 5);
  CHECK(built.saved_bytes - before.saved_bytes ==
        5 * 24);  // x and four results, each saved twice and counted once
  CHECK(built.max_depth == 5);
  const Tensor loss = sum(y);
  backward(loss);
  const GraphStats after = graph_stats();
  CHECK(after.saved_bytes == before.saved_bytes);
  CHECK(after.nodes - before.nodes == 2);  // y and loss still hold their own nodes
  CHECK(after.max_depth == 6);             // backward itself adds nothing
  CHECK(after.recorded - before.recorded == 6);
}

TEST_CASE("saved bytes are counted for the module that saved first") {
  const Tensor x = leaf({1, 2, 3, 4});
  const Scope* scope = current_scope()->child("saving_module");
  CHECK(scope->saved_bytes == 0);
  {
    const ScopeGuard module("saving_module");
    const Tensor y = mul(x, vec({1, 1, 1, 1}));
    CHECK(scope->saved_bytes == 64);
    CHECK(largest_scopes(1)[0]->saved_bytes >= 64);
  }
  CHECK(scope->saved_bytes == 0);
}

TEST_CASE("the tape is flat over 1000 truncated segments") {
  const Tensor w = leaf({0.5, -0.5});
  Tensor state = vec({0.1, 0.2});
  std::optional<GraphStats> first;
  std::int64_t first_live = 0;
  for (int segment = 0; segment < 1000; ++segment) {
    reset_graph_depth();
    Tensor h = state;
    for (int step = 0; step < 4; ++step) h = tanh(add(mul(h, w), w));
    backward(sum(h));
    state = detach(h);
    h = Tensor();
    zero_grad(w);
    const GraphStats stats = graph_stats();
    if (!first) {
      first = stats;
      first_live = live_bytes();
    }
    REQUIRE(stats.nodes == first->nodes);
    REQUIRE(stats.saved_bytes == first->saved_bytes);
    REQUIRE(stats.max_depth == first->max_depth);
    REQUIRE(live_bytes() == first_live);
  }
  CHECK(first->max_depth == 13);  // three operations a step and the sum
}

TEST_CASE("a state that is not detached makes the next backward a GraphError") {
  const Tensor w = leaf({0.5});
  const Tensor h = mul(w, w);
  backward(h);
  const Tensor next = mul(h, w);
  CHECK(contains(error_of<GraphError>([&] { backward(next); }), "mul was freed by an earlier backward"));
}

TEST_CASE("a chain of a million operations builds and runs and frees on a stack of 8 MiB") {
  constexpr int kOps = 1'000'000;
  const GraphStats before = graph_stats();
  double result = 0;
  std::int64_t built = 0;
  SUBCASE("with backward") {
    on_thread_with_8_mib_stack([&] {
      const Tensor x = leaf({1});
      Tensor y = x;
      for (int i = 0; i < kOps; ++i) y = scale(y, i % 2 == 0 ? 2 : 0.5);
      built = graph_stats().nodes - before.nodes;
      backward(y);
      result = grad(x).item();
    });
    CHECK(result == 1);
  }
  SUBCASE("freed without backward") {
    on_thread_with_8_mib_stack([&] {
      Tensor y = leaf({1});
      for (int i = 0; i < kOps; ++i) y = scale(y, 1);
      built = graph_stats().nodes - before.nodes;
    });
  }
  CHECK(built == kOps);
  CHECK(graph_stats().nodes == before.nodes);
}

TEST_CASE("the gradient of all time slices needs one buffer and linear work") {
  constexpr std::int64_t kSteps = 4096, kChannels = 512;
  const Tensor x = require_grad(Tensor::zeros({kSteps, kChannels}, Dtype::f64));
  std::vector<Tensor> slices, ones;
  for (std::int64_t t = 0; t < kSteps; ++t) {
    slices.push_back(slice(x, 0, t, 1));
    ones.push_back(raw::expand(Tensor::full({1, 1}, static_cast<double>(t), Dtype::f64), {1, kChannels}));
  }
  allocator(kCpu).reset_peak();
  const AllocatorStats before = allocator(kCpu).stats();
  const auto start = std::chrono::steady_clock::now();
  backward(slices, ones);
  const std::chrono::duration<double, std::milli> ms = std::chrono::steady_clock::now() - start;
  MESSAGE("gradient of " << kSteps << " slices of " << kChannels << " channels: " << ms.count() << " ms");
  const AllocatorStats after = allocator(kCpu).stats();
  // One zero tensor of the size of x, allocated once. A second one, even for a moment, would show in the
  // peak.
  CHECK(after.allocations - before.allocations == 1);
  CHECK(after.peak_bytes - before.live_bytes <= x.bytes() + x.bytes() / 8);
  const Values g = gradient(x);
  bool right = true;
  for (std::int64_t i = 0; i < x.elements(); ++i)
    right = right && g[static_cast<std::size_t>(i)] == static_cast<double>(i / kChannels);
  CHECK(right);
}
