// A measured training step of a model of 16 numbers.
#pragma once

#include "train/app/measure/step.h"

namespace eddy::test {

using namespace training;
using namespace app;

// Of few tokens, beside ceilings of small sizes.
inline StepBenchOptions tiny_step() {
  StepBenchOptions options;
  options.model.model = "regular";
  options.model.vocab = 11;
  options.model.context = 8;
  options.model.dim = 16;
  options.model.heads = 2;
  options.model.positions = true;
  options.batch = 2;
  options.steps = 3;
  options.product_size = 32;
  options.memory_bytes = 1 << 16;
  return options;
}

}  // namespace eddy::test
