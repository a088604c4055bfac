// Each warning is given once, until it is reset.
#include "ops/core/warnings.h"

#include <doctest/doctest.h>

using namespace eddy;

TEST_CASE("a warning is taken once however often it is added until all are reset") {
  using Texts = std::vector<std::string>;
  reset_warnings();
  CHECK(take_warnings().empty());
  add_warning("first");
  add_warning("second");
  add_warning("first");
  CHECK(take_warnings() == Texts{"first", "second"});
  add_warning("second");
  CHECK(take_warnings().empty());
  add_warning("third");
  CHECK(take_warnings() == Texts{"third"});
  add_warning("fourth");
  reset_warnings();
  add_warning("first");
  CHECK(take_warnings() == Texts{"first"});
  reset_warnings();
}
