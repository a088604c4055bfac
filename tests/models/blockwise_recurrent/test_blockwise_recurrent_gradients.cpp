// Gradients of the block-wise recurrent models: under dropout.
#include <doctest/doctest.h>

#include "tests/models/blockwise_recurrent/blockwise_recurrent_case.h"

namespace {

using namespace eddy;
using namespace eddy::test;

}  // namespace

TEST_CASE("memory_llama gradients: every parameter agrees with central differences under dropout") {
  for (const bool literal : {false, true}) {
    CAPTURE(literal);
    ModelConfig config = blockwise_config("memory_llama");
    config.dropout = 0.3;
    const auto model = blockwise_model(config);
    ForwardInput input;
    input.tokens = random_ids(2, 12, 11, 1);
    input.dropout = {true, 5, 17};
    input.literal = literal;
    check_directions(*model, input, random_ids(2, 12, 11, 2));
    const Tensor once = model->forward(input).logits;
    CHECK(same_bits(once, model->forward(input).logits));
    ++input.dropout.step;
    CHECK(distance(once, model->forward(input).logits).error > 1e-3);
    input.dropout.training = false;
    CHECK(same_bits(model->forward(input).logits, model->forward(input).logits));
  }
}
