// What is told of once, and taken by whoever shows it.
#include "ops/core/warnings.h"

#include <doctest/doctest.h>

using namespace eddy;

TEST_CASE("a notice is taken once however often it is given until all are forgotten") {
  using Texts = std::vector<std::string>;
  forget_notices();
  CHECK(take_notices().empty());
  give_notice("first");
  give_notice("second");
  give_notice("first");
  CHECK(take_notices() == Texts{"first", "second"});
  give_notice("second");
  CHECK(take_notices().empty());
  give_notice("third");
  CHECK(take_notices() == Texts{"third"});
  give_notice("fourth");
  forget_notices();
  give_notice("first");
  CHECK(take_notices() == Texts{"first"});
  forget_notices();
}
