// Training in bf16 follows training in f32: 200 steps of a model of every name on the same batches.
#include <doctest/doctest.h>

#include "tests/models/bf16_models.h"
#include "tests/support/isa_levels.h"

using namespace eddy;
using namespace eddy::test;

// The means of 20 steps, since the loss of one batch says little.
TEST_CASE("bf16: the loss of every model stays within 1 percent of that of f32 for 200 steps") {
  for (const ModelConfig& config : bf16_configs()) {
    CAPTURE(config.model);
    CAPTURE(config.gate);
    const std::vector<double> want = train_in(config, Dtype::f32, 200);
    const double worst = loss_difference(train_in(config, Dtype::bf16, 200), want, 20);
    MESSAGE(config.model << ": " << want.front() << " to " << want.back() << " nats, largest difference "
                         << 100 * worst << " %");
    CHECK(want.back() < want.front());
    CHECK(worst <= 0.01);
    const RoundedProducts rounded;
    if (!rounded.on()) continue;
    const double rounding = loss_difference(train_in(config, Dtype::f32, 200), want, 20);
    MESSAGE(config.model << ": f32 with rounded products, largest difference " << 100 * rounding << " %");
    CHECK(rounding <= 0.01);
  }
}
