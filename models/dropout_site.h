// Dropout masks are a function of (seed, module path, call index, step). No mask is stored: a recomputed
// forward pass draws the same masks.
#pragma once

#include <cstdint>
#include <string>

#include "ops/pointwise/dropout.h"
#include "tensor/random/philox.h"

namespace eddy {

// The dropout of one training step; the default is evaluation, without dropout.
struct DropoutContext {
  // Whether there is dropout; then the masks follow from the seed and the step.
  bool training = false;
  std::uint64_t seed = 0;
  std::uint64_t step = 0;
  // A number in the memory of the model's device that is added to `step` when a mask is drawn; see RandomKey.
  const std::uint64_t* step_base = nullptr;
};

// The dropout at one place in a model at one step.
struct DropoutSite {
  // The step, and the probability of dropping a value.
  DropoutContext context;
  double rate = 0;

  // Whether it changes anything.
  bool active() const { return context.training && rate > 0; }
  // The key of call `index` of the place `path`.
  RandomKey key(const std::string& path, std::uint64_t index = 0) const {
    RandomKey key = random_key(context.seed, path.c_str(), index, context.step);
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
