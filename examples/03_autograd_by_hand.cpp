// Example 3: the gradient of a two-layer function, once in plain loops and once by the tape.
//
//   u    = x W1^T + b1
//   a    = tanh u
//   y    = a W2^T + b2
//   loss = mean (y - target)^2
//
// The backward pass, with d for the derivative of the loss (sums are over the rows n of x):
//
//   dy  = 2 (y - target) / elements
//   dW2 = sum dy^T a
//   db2 = sum dy
//   da  = dy W2
//   du  = da (1 - a^2)
//   dW1 = sum du^T x
//   db1 = sum du
//
// Read beside it: autograd/tape.h, autograd/node.h, then ops/product/linear.cpp for the node of `linear`.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <exception>
#include <vector>

#include "autograd/tape.h"
#include "ops/core/op_spec.h"
#include "ops/pointwise/pointwise.h"
#include "ops/product/linear.h"
#include "ops/reduce/reduce.h"
#include "tensor/base/error.h"

using eddy::Tensor;

namespace {

constexpr std::size_t kRows = 4, kIn = 3, kHidden = 5, kOut = 2;
using Numbers = std::vector<double>;

struct Gradients {
  Numbers w1 = Numbers(kHidden * kIn), b1 = Numbers(kHidden), w2 = Numbers(kOut * kHidden),
          b2 = Numbers(kOut);
};

// The derivation above, row by row. Matrices are row-major: element [i, j] of W1 is w1[i * kIn + j].
Gradients gradients_by_hand(const Numbers& x, const Numbers& target, const Numbers& w1, const Numbers& b1,
                            const Numbers& w2, const Numbers& b2) {
  Gradients g;
  for (std::size_t n = 0; n < kRows; ++n) {
    Numbers a(kHidden), dy(kOut), da(kHidden);
    for (std::size_t h = 0; h < kHidden; ++h) {
      double u = b1[h];
      for (std::size_t i = 0; i < kIn; ++i) u += x[n * kIn + i] * w1[h * kIn + i];
      a[h] = std::tanh(u);
    }
    for (std::size_t o = 0; o < kOut; ++o) {
      double y = b2[o];
      for (std::size_t h = 0; h < kHidden; ++h) y += a[h] * w2[o * kHidden + h];
      dy[o] = 2 * (y - target[n * kOut + o]) / static_cast<double>(kRows * kOut);
    }
    for (std::size_t o = 0; o < kOut; ++o) {
      g.b2[o] += dy[o];
      for (std::size_t h = 0; h < kHidden; ++h) {
        g.w2[o * kHidden + h] += dy[o] * a[h];
        da[h] += dy[o] * w2[o * kHidden + h];
      }
    }
    for (std::size_t h = 0; h < kHidden; ++h) {
      const double du = da[h] * (1 - a[h] * a[h]);
      g.b1[h] += du;
      for (std::size_t i = 0; i < kIn; ++i) g.w1[h * kIn + i] += du * x[n * kIn + i];
    }
  }
  return g;
}

// f64 keeps 16 digits, and a gradient here sums some 20 terms of size 1, so 1e-13 allows a hundred roundings.
// A NaN fails.
bool close(const char* name, const Tensor& tape, const Numbers& hand, double factor = 1) {
  const Numbers found = tape.to_vector<double>();
  double worst = 0;
  for (std::size_t i = 0; i < hand.size(); ++i) {
    const double error = std::abs(found[i] - factor * hand[i]);
    if (!(error <= worst) && !std::isnan(worst)) worst = error;
  }
  const bool ok = worst <= 1e-13 && found.size() == hand.size();
  std::printf("%-6s %-4s first by tape %+.12f, largest difference to the loops %.1e\n", ok ? "ok" : "WRONG",
              name, found[0], worst);
  return ok;
}

}  // namespace

int main() try {
  const Tensor x = eddy::sample_normal({kRows, kIn}, "x"),
               target = eddy::sample_normal({kRows, kOut}, "target");
  const Tensor w1 = eddy::sample_normal({kHidden, kIn}, "w1"), b1 = eddy::sample_normal({kHidden}, "b1");
  const Tensor w2 = eddy::sample_normal({kOut, kHidden}, "w2"), b2 = eddy::sample_normal({kOut}, "b2");
  for (const Tensor& parameter : {w1, b1, w2, b2})
    eddy::require_grad(parameter);  // leaves: they keep a gradient

  // Every op below records a node on the tape: where the gradients of its inputs go, and what they are
  // computed from.
  const auto loss_of = [&] {
    const Tensor error = eddy::linear(eddy::tanh(eddy::linear(x, w1, b1)), w2, b2) - target;
    return eddy::mean(error * error);
  };
  const Tensor loss = loss_of();
  std::printf("loss %.6f, %lld nodes on the tape\n", loss.item(),
              static_cast<long long>(eddy::graph_stats().nodes));
  eddy::backward(loss);

  const auto numbers = [](const Tensor& t) { return t.to_vector<double>(); };
  const Gradients hand =
      gradients_by_hand(numbers(x), numbers(target), numbers(w1), numbers(b1), numbers(w2), numbers(b2));
  bool ok = close("dW1", eddy::grad(w1), hand.w1);
  ok = close("db1", eddy::grad(b1), hand.b1) && ok;
  ok = close("dW2", eddy::grad(w2), hand.w2) && ok;
  ok = close("db2", eddy::grad(b2), hand.b2) && ok;

  // A leaf accumulates its gradient over backward passes until zero_grad. This is how several batches make
  // one step.
  eddy::backward(loss_of());
  ok &= close("2dW1", eddy::grad(w1), hand.w1, 2);

  try {  // the backward pass has freed the tape: its nodes have no saved tensors left
    eddy::backward(loss);
    ok = false;
  } catch (const eddy::GraphError& error) {
    std::printf("ok     a second pass is refused: %s\n", error.what());
  }
  return ok && eddy::graph_stats().saved_bytes == 0 ? 0 : 1;
} catch (const std::exception& error) {
  std::fprintf(stderr, "error: %s\n", error.what());
  return 1;
}
