// Truncated backpropagation: flat memory over many segments, exact gradients inside a window, none over a
// cut.
#include <doctest/doctest.h>

#include <cmath>
#include <cstdint>
#include <vector>

#include "autograd/tbptt.h"
#include "tensor/base/error.h"
#include "tensor/memory/allocator.h"
#include "tests/autograd/tiny_ops.h"
#include "tests/support/errors.h"

using namespace eddy;
using namespace eddy::test;
using namespace eddy::tiny;

namespace {

// h' = tanh(w * h + x_t), token by token; the loss of a segment is the sum over its tokens of sum(h').
struct Recurrence {
  Tensor w = leaf({0.7, -0.4, 0.9});
  std::int64_t segment = 1;

  Tensor input(std::int64_t token) const {
    const auto t = static_cast<double>(token);
    return vec({std::sin(t), std::cos(3 * t), 0.5 - 0.1 * t});
  }
  State start() const {
    State state;
    state.set("h", vec({0.3, -0.2, 0.1}));
    return state;
  }
  TbpttStep operator()(std::int64_t index, const State& state) const {
    Tensor h = state.get("h"), loss;
    for (std::int64_t token = index * segment; token < (index + 1) * segment; ++token) {
      h = tiny::tanh(add(mul(w, h), input(token)));
      const Tensor here = sum(h);
      loss = loss.defined() ? add(loss, here) : here;
    }
    State next;
    next.set("h", h);
    return {loss, next};
  }
};

// d loss / d w of the recurrence without a tape: forward-mode sensitivities s = dh/dw, which are set to zero
// at every cut. An oracle that shares no code with the loop.
std::vector<double> sensitivities(std::int64_t tokens, std::int64_t cut_every) {
  const Recurrence model;
  const std::vector<double> w = model.w.to_vector<double>();
  std::vector<double> h = model.start().get("h").to_vector<double>(), s(3), gradient(3);
  for (std::int64_t t = 0; t < tokens; ++t) {
    const std::vector<double> x = model.input(t).to_vector<double>();
    for (std::size_t i = 0; i < 3; ++i) {
      if (t % cut_every == 0) s[i] = 0;
      const double next = std::tanh(w[i] * h[i] + x[i]);
      s[i] = (1 - next * next) * (h[i] + w[i] * s[i]);
      h[i] = next;
      gradient[i] += s[i];
    }
  }
  return gradient;
}

void check_gradient(const Tensor& w, const std::vector<double>& expected) {
  const std::vector<double> got = grad(w).to_vector<double>();
  for (std::size_t i = 0; i < expected.size(); ++i) {
    CAPTURE(i);
    // Sums of some tens of terms of size 1: a few eps each.
    CHECK(std::abs(got[i] - expected[i]) <= 1e-13);  // false for NaN
  }
}

}  // namespace

TEST_CASE("tbptt: a window over the whole sequence gives the gradient of full backpropagation") {
  Recurrence model;
  model.segment = 3;
  const TbpttResult result = TbpttLoop{3, 24}.run(24, model.start(), model);
  CHECK(result.losses.size() == 8);
  check_gradient(model.w, sensitivities(24, 24));
}

TEST_CASE("tbptt: gradients stop at the cut between windows") {
  for (const std::int64_t through : {2, 4, 6, 12}) {
    CAPTURE(through);
    Recurrence model;
    model.segment = 2;
    TbpttLoop{2, through}.run(24, model.start(), model);
    check_gradient(model.w, sensitivities(24, through));
  }
  // The cuts matter: the oracle itself tells them apart.
  CHECK(std::abs(sensitivities(24, 2)[0] - sensitivities(24, 24)[0]) > 1e-3);
}

TEST_CASE("tbptt: losses and the last state do not depend on where the gradient is cut") {
  std::vector<double> losses, last;
  for (const std::int64_t through : {1, 2, 5, 10}) {
    Recurrence model;
    const TbpttResult result = TbpttLoop{1, through}.run(10, model.start(), model);
    if (losses.empty()) {
      losses = result.losses;
      last = result.state.get("h").to_vector<double>();
    }
    CHECK(result.losses == losses);
    CHECK(result.state.get("h").to_vector<double>() == last);
    CHECK_FALSE(requires_grad(result.state.get("h")));
  }
}

TEST_CASE("tbptt: the last window is shorter when the windows do not divide the sequence") {
  Recurrence model;
  std::vector<std::int64_t> sizes, firsts;
  const TbpttResult result = TbpttLoop{1, 4}.run(10, model.start(), model, [&](const TbpttWindow& window) {
    firsts.push_back(window.first_segment);
    sizes.push_back(window.segments);
  });
  CHECK(firsts == std::vector<std::int64_t>{0, 4, 8});
  CHECK(sizes == std::vector<std::int64_t>{4, 4, 2});
  CHECK(result.losses.size() == 10);
  check_gradient(model.w, sensitivities(10, 4));
}

TEST_CASE("tbptt: two runs that hand over the state equal one") {
  Recurrence whole, halves;
  const TbpttResult one = TbpttLoop{1, 4}.run(16, whole.start(), whole);
  const TbpttResult first = TbpttLoop{1, 4}.run(8, halves.start(), halves);
  const TbpttResult second = TbpttLoop{1, 4}.run(
      8, first.state, [&](std::int64_t i, const State& state) { return halves(i + 8, state); });
  CHECK(second.state.get("h").to_vector<double>() == one.state.get("h").to_vector<double>());
  CHECK(grad(halves.w).to_vector<double>() == grad(whole.w).to_vector<double>());
}

TEST_CASE("tbptt: nodes and saved bytes and depth are flat over a thousand segments") {
  const GraphStats before = graph_stats();
  const std::int64_t live_before = allocator(kCpu).stats().live_bytes;
  Recurrence model;
  model.segment = 2;
  std::vector<TbpttWindow> windows;
  std::vector<GraphStats> after;
  std::vector<std::int64_t> live;
  windows.reserve(250);
  const TbpttResult result = TbpttLoop{2, 8}.run(2000, model.start(), model, [&](const TbpttWindow& window) {
    windows.push_back(window);
    after.push_back(graph_stats());
    live.push_back(allocator(kCpu).stats().live_bytes);
  });
  CHECK(result.losses.size() == 1000);
  REQUIRE(windows.size() == 250);
  for (std::size_t i = 0; i < windows.size(); ++i) {
    CAPTURE(i);
    // 8 tokens of mul, add, tanh and sum, and in each of 4 segments one sum of two losses.
    CHECK(windows[i].graph.nodes - before.nodes == 8 * 4 + 4);
    // From the leaf: mul, add, tanh for each token, then sum and the addition of the losses.
    CHECK(windows[i].graph.max_depth == 8 * 3 + 2);
    CHECK(windows[i].graph.saved_bytes == windows[0].graph.saved_bytes);
    CHECK(after[i].nodes == before.nodes);
    CHECK(after[i].saved_bytes == before.saved_bytes);
    CHECK(live[i] == live[0]);
  }
  CHECK(windows[0].graph.saved_bytes > before.saved_bytes);
  CHECK(live[0] - live_before < 4096);
}

TEST_CASE("tbptt: the weight scales the gradient and leaves the losses") {
  Recurrence plain, mean;
  const TbpttResult sum_of = TbpttLoop{1, 4}.run(8, plain.start(), plain);
  const TbpttResult mean_of =
      TbpttLoop{.segment = 1, .backprop_through = 4, .loss_weight = 0.25}.run(8, mean.start(), mean);
  CHECK(sum_of.losses == mean_of.losses);
  std::vector<double> quarter = grad(plain.w).to_vector<double>();
  for (double& value : quarter) value *= 0.25;
  check_gradient(mean.w, quarter);
}

TEST_CASE("tbptt: an optimizer may write the parameters after each backward") {
  Recurrence model;
  std::vector<double> sums;
  const TbpttResult result = TbpttLoop{1, 3}.run(9, model.start(), model, [&](const TbpttWindow& window) {
    sums.push_back(window.loss);
    REQUIRE(grad(model.w).defined());
    for (int i = 0; i < 3; ++i) model.w.data<double>()[i] -= 0.1 * grad(model.w).data<double>()[i];
    wrote_in_place(model.w, "sgd");
    zero_grad(model.w);
  });
  REQUIRE(sums.size() == 3);
  for (std::size_t i = 0; i < 3; ++i)
    CHECK(sums[i] == result.losses[3 * i] + result.losses[3 * i + 1] + result.losses[3 * i + 2]);
  CHECK_FALSE(grad(model.w).defined());
}

TEST_CASE("tbptt: a segment without a loss passes gradients on to the losses after it") {
  Recurrence model;
  const auto last_of_two = [&](std::int64_t i, const State& state) {
    TbpttStep step = model(i, state);
    if (i % 2 == 0) step.loss = Tensor();
    return step;
  };
  const TbpttResult result = TbpttLoop{1, 2}.run(2, model.start(), last_of_two);
  CHECK(std::isnan(result.losses[0]));
  CHECK(std::isfinite(result.losses[1]));
  // loss = h2 = tanh(w h1 + x1): dh2/dw = (1 - h2^2) (h1 + w dh1/dw).
  const double h0 = 0.3, w = 0.7, h1 = std::tanh(w * h0), h2 = std::tanh(w * h1 + std::sin(1.0));
  const double expected = (1 - h2 * h2) * (h1 + w * (1 - h1 * h1) * h0);
  CHECK(std::abs(grad(model.w).to_vector<double>()[0] - expected) <= 1e-14);

  // A window that scores nothing leaves no graph and no gradient.
  Recurrence silent;
  const GraphStats before = graph_stats();
  TbpttLoop{1, 2}.run(4, silent.start(), [&](std::int64_t i, const State& state) {
    return TbpttStep{Tensor(), silent(i, state).state};
  });
  CHECK_FALSE(grad(silent.w).defined());
  CHECK(graph_stats().nodes == before.nodes);
}

TEST_CASE("tbptt: an initial state with a graph is cut before the first segment") {
  Recurrence model;
  const Tensor outside = leaf({0.3, -0.2, 0.1});
  State state;
  state.set("h", scale(outside, 1));
  TbpttLoop{1, 2}.run(2, state, model);
  CHECK_FALSE(grad(outside).defined());
  CHECK(grad(model.w).defined());
}

TEST_CASE("tbptt: sizes that do not divide are a ValueError before anything runs") {
  const Recurrence model;
  int calls = 0;
  const auto counted = [&](std::int64_t i, const State& state) {
    ++calls;
    return model(i, state);
  };
  const auto text = [&](TbpttLoop loop, std::int64_t tokens) {
    return error_of<ValueError>([&] { loop.run(tokens, model.start(), counted); });
  };
  CHECK(contains(text({4, 6}, 12), "backprop_through 6, segment 4"));
  CHECK(contains(text({4, 0}, 12), "backprop_through 0, segment 4"));
  CHECK(contains(text({4, 2}, 12), "backprop_through 2, segment 4"));
  CHECK(contains(text({0, 4}, 12), "a segment of 0 tokens"));
  CHECK(contains(text({4, 8}, 10), "tokens 10, segment 4"));
  CHECK(contains(text({4, 8}, -4), "tokens -4"));
  CHECK(calls == 0);
  CHECK(TbpttLoop{4, 8}.run(0, model.start(), counted).losses.empty());
  CHECK(calls == 0);
}

TEST_CASE("tbptt: a loss that no gradient reaches is a GraphError and a loss of two elements a ShapeError") {
  const Recurrence model;
  const NoGrad no_grad;
  CHECK_THROWS_AS(TbpttLoop({1, 2}).run(4, model.start(), model), GraphError);
  const EnableGrad with_grad;
  CHECK_THROWS_AS(TbpttLoop({1, 1}).run(1, model.start(),
                                        [&](std::int64_t, const State& state) {
                                          return TbpttStep{mul(model.w, state.get("h")), state};
                                        }),
                  ShapeError);
}
