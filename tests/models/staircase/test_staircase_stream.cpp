// What a stream of the staircase family refuses.
#include <doctest/doctest.h>

#include "tensor/base/error.h"
#include "tests/models/staircase/staircase_case.h"

namespace {

using namespace eddy;
using namespace eddy::test;

}  // namespace

TEST_CASE("staircase stream: an official segment that is too short is refused") {
  ModelConfig config = staircase_config("staircase");
  config.carry = "official";
  const auto model = random_model(config);
  State early;
  model->stream(random_ids(2, 3, 13, 27), early);
  CHECK(contains(error_of<ValueError>([&] { forward_of(*model, random_ids(2, 6, 13, 29), early); }),
                 "official"));
}
