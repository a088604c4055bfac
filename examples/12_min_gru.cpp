// Example 12: a recurrent layer whose steps run all at once. In minGRU gate and candidate come from the input alone, so
// a step is linear in the state:
//
//   z_t = sigmoid(W_z x_t + b_z)     c_t = W_c x_t + b_c     h_t = (1 - z_t) h_{t-1} + z_t c_t
//
// and `scan` computes all h_t without a loop over time. The layer learns to hold the last number that had a mark, and
// is compared with the loop.
//
//   number   0.3 -0.8  0.1  0.7 -0.2
//   mark     1    0    1    0    0
//   target   0.3  0.3  0.1  0.1  0.1
//
// Source: Feng, Tung, Ahmed, Bengio, Hajimirsadeghi, "Were RNNs all we needed?" (arXiv 2410.01201), section 3.1.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <exception>
#include <vector>

#include "models/eddy/eddy.h"

using namespace eddy;

namespace {

struct MinGru {
  MinGru(const ParamScope& scope, std::int64_t in, std::int64_t hidden)
      : gate(scope.scope("gate"), in, hidden, 0.5, true),
        candidate(scope.scope("candidate"), in, hidden, 0.5, true) {}

  // x [batch, time, in] and the state before it, [batch, hidden] or undefined -> [batch, time, hidden].
  Tensor operator()(const Tensor& x, const Tensor& state = {}) const {
    const Tensor z = sigmoid(gate(x));
    return scan(1 - z, z * candidate(x), 1, state);
  }

  Linear gate, candidate;
};

struct Holder {
  explicit Holder(const ParamScope& scope)
      : cell(scope.scope("cell"), 2, 16), out(scope.scope("out"), 16, 1, 0.25, true) {}
  Tensor operator()(const Tensor& x) const { return out(cell(x)); }

  MinGru cell;
  Linear out;
};

struct Batch {
  Tensor x, targets;  // [batch, time, 2] and [batch, time, 1]
};

Batch make_batch(std::uint64_t step, std::int64_t batch = 16, std::int64_t time = 64) {
  const RandomKey key = random_key(1, "batch", step);
  std::vector<float> x, targets;
  float held = 0;
  for (std::int64_t i = 0; i < batch * time; ++i) {
    const auto at = static_cast<std::uint64_t>(2 * i);
    const float number = 2 * uniform01(key.word(at)) - 1;
    const bool marked = i % time == 0 || uniform01(key.word(at + 1)) < 0.1F;
    if (marked) held = number;
    x.insert(x.end(), {number, marked ? 1.0F : 0.0F});
    targets.push_back(held);
  }
  return {Tensor::from(x, {batch, time, 2}), Tensor::from(targets, {batch, time, 1})};
}

// The same layer one step after the other.
double distance_from_loop(const MinGru& cell, const Tensor& x) {
  const NoGrad untracked;
  const Tensor all = cell(x);
  Tensor h = zeros({x.dim(0), all.dim(2)});
  double worst = 0;
  for (std::int64_t t = 0; t < x.dim(1); ++t) {
    const Tensor now = select(x, 1, t), z = sigmoid(cell.gate(now));
    h = (1 - z) * h + z * cell.candidate(now);
    worst = std::max(worst, max(abs(select(all, 1, t) - h)).item());
  }
  return worst;
}

int run() {
  auto net = make_module<Holder>(1);
  Adam adam(net.params(), {.learning_rate = 1e-2, .weight_decay = 0});
  for (std::uint64_t step = 0; step < 600; ++step) {
    const Batch batch = make_batch(step);
    adam.zero_gradients();
    const Tensor loss = mse_loss(net(batch.x), batch.targets);
    backward(loss);
    adam.step();
    if (step % 100 == 0) std::printf("step %3d  loss %.4f\n", static_cast<int>(step), loss.item());
  }
  const NoGrad evaluating;
  const Batch test = make_batch(1000, 16, 256);  // four times as long as the lines it trained on
  const double loss = mse_loss(net(test.x), test.targets).item();
  const double distance = distance_from_loop(net->cell, test.x);
  std::printf("lines four times as long: loss %.4f (0.33 is a guess of 0)\n", loss);
  std::printf("largest distance of a scan from its loop: %.1e\n", distance);
  const bool right = loss < 0.03 && distance < 1e-5;
  std::printf("%s\n", right ? "OK" : "WRONG");
  return right ? 0 : 1;
}

}  // namespace

int main() {
  try {
    return run();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
