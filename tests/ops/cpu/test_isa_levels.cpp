// Which levels of CPU kernels a build has, and which of them a choice may name.
#include <doctest/doctest.h>

#include <algorithm>
#include <string>

#include "ops/cpu/isa.h"
#include "tensor/base/error.h"
#include "tests/support/errors.h"
#include "tests/support/isa_levels.h"

using namespace eddy;
using namespace eddy::test;

namespace {

bool is_here(IsaLevel level) {
  return std::find(isa_levels().begin(), isa_levels().end(), level) != isa_levels().end();
}

}  // namespace

TEST_CASE("cpu levels: the best and the one in use are levels of this build, and rise") {
  CHECK(is_here(best_isa_level()));
  CHECK(is_here(best_exact_isa_level()));
  CHECK(!rounds_factors(best_exact_isa_level()));
  CHECK(std::is_sorted(isa_levels().begin(), isa_levels().end()));
  const KeepIsaLevel keep;
  for (const IsaLevel level : isa_levels()) {
    if (level > best_isa_level()) break;
    set_isa_level(level);
    CHECK(isa_level() == level);
    CHECK(rounds_to_bf16(MatmulPrecision::bf16) == rounds_factors(level));
    CHECK(!rounds_to_bf16(MatmulPrecision::f32));
  }
}

TEST_CASE("cpu levels: one of another architecture is refused with those that are there") {
  const IsaLevel other = is_here(IsaLevel::neon) ? IsaLevel::avx2 : IsaLevel::neon, before = isa_level();
  const std::string refusal = error_of<ValueError>([&] { set_isa_level(other); });
  CHECK(contains(refusal, std::string("cpu level: ") + isa_name(other) + " is one of another architecture"));
  for (const IsaLevel level : isa_levels()) CHECK(contains(refusal, isa_name(level)));
  CHECK(isa_level() == before);
}

TEST_CASE("cpu levels: one above the processor's is refused with the best") {
  if (best_isa_level() == isa_levels().back()) return;
  const std::string refusal = error_of<ValueError>([] { set_isa_level(isa_levels().back()); });
  CHECK(contains(refusal, std::string("the best is ") + isa_name(best_isa_level())));
}
