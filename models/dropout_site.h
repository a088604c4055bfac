// Dropout masks are a function of (seed, module path, call index, step). No mask is stored: a recomputed
// forward pass draws the same masks.
//
// A module of one's own calls dropout(x, p), and whoever calls the module says whether it trains, once for all its
// calls:
//
//   const DropoutScope dropping({.training = true, .seed = 1, .step = step});
//   const Tensor loss = cross_entropy(net(x), targets);
#pragma once

#include <cstdint>
#include <string>

#include "autograd/random_calls.h"
#include "autograd/scope.h"
#include "ops/pointwise/dropout.h"
#include "tensor/random/philox.h"

namespace eddy {

// The dropout of one training step; the default is evaluation, without dropout.
struct DropoutContext {
  // Whether there is dropout; then the masks follow from the seed and the step.
  bool training = false;
  std::uint64_t seed = 0;
  std::int64_t step = 0;  // another one for each batch, or all have one mask
  // A number in the memory of the model's device that is added to `step` when a mask is drawn; see RandomKey.
  const std::uint64_t* step_base = nullptr;
};

// While alive, dropout(x, p) and scaled_dot_product_attention on this thread draw masks by this context, or drop
// nothing in evaluation. NoGrad does not end a scope that trains: an evaluation inside it opens DropoutScope({}). Calls
// are numbered from 0; what a checkpoint recomputes draws the masks that it had.
class DropoutScope : detail::Setting<detail::RandomCalls> {
 public:
  // Begins the numbering of calls anew.
  explicit DropoutScope(const DropoutContext& context)
      : Setting(detail::random_calls, {true, context.training, context.seed,
                                       static_cast<std::uint64_t>(context.step), context.step_base, 0}) {}
};

// Returns x with dropout (ops/pointwise/dropout.h) where a DropoutScope trains, and x itself where one evaluates or,
// without one, nothing is recorded (NoGrad). The key is that of the scope's seed and step and of the number of the
// call.
// errors: those of dropout with a key; ValueError without a scope where the graph is recorded and p is not 0: a loop
// that forgot it would train without dropout.
Tensor dropout(const Tensor& x, double p);

// The dropout at one place in a model at one step.
struct DropoutSite {
  // The step, and the probability of dropping a value.
  DropoutContext context;
  double rate = 0;

  // Whether it changes anything.
  bool active() const { return context.training && rate > 0; }
  // The key of call `index` of the place `path`.
  RandomKey key(const std::string& path, std::uint64_t index = 0) const {
    RandomKey key = random_key(context.seed, path.c_str(), index, static_cast<std::uint64_t>(context.step));
    key.step_base = context.step_base;
    return key;
  }
  // Sets the dropout of attention probabilities; call `index` of the place `path`.
  template <class Options>
  void set_attention(Options& options, const std::string& path, std::uint64_t index = 0) const {
    if (!active()) return;
    options.dropout = rate;
    options.dropout_key = key(path, index);
  }
  // x with dropout in training, x itself in evaluation.
  Tensor operator()(const Tensor& x, const std::string& path, std::uint64_t index = 0) const {
    return active() ? dropout(x, rate, key(path, index)) : x;
  }
};

}  // namespace eddy
