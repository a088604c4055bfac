// Resident memory, and the budget where nothing limits it.
#include <doctest/doctest.h>

#include <cstdint>
#include <vector>

#include "tests/support/files.h"
#include "train/plan/machine_memory.h"

using namespace eddy;
using namespace eddy::training;
using namespace eddy::test;

namespace {

constexpr std::int64_t kMiB = std::int64_t{1} << 20;

}  // namespace

TEST_CASE("memory budget: a system that tells nothing has no limit") {
  const TempFolder system;
  CHECK(memory_budget(system.path()).limit.empty());
  CHECK(memory_budget(system.path()).with_swap() == 0);
}

TEST_CASE("resident memory: a peak is that of the call and the highest is kept") {
  if (resident_bytes() == 0) return;  // the system does not tell
  const auto touch = [](std::int64_t bytes) {
    const std::vector<char> pages(static_cast<std::size_t>(bytes), 1);
    CHECK(pages.back() == 1);
  };
  touch(64 * kMiB);
  const std::int64_t highest = resident_peak_bytes();
  CHECK(highest >= 64 * kMiB);
  const std::int64_t peak = resident_peak_of([&] { touch(16 * kMiB); });
  CHECK(peak >= 16 * kMiB);
  CHECK(resident_peak_bytes() >= highest);
}
