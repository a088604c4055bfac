// Sets of processors.
#include "tensor/system/processors.h"

#include <doctest/doctest.h>

using namespace eddy;

TEST_CASE("processors: a set counts each number once and takes none beyond its size") {
  ProcessorSet set;
  CHECK(set.count() == 0);
  for (const int number : {0, 63, 64, 1023, 64, -1, ProcessorSet::kMost}) set.add(number);
  CHECK(set.count() == 4);
}

TEST_CASE("processors: two sets meet where one processor is in both") {
  ProcessorSet one, other;
  CHECK_FALSE(one.meets(other));
  one.add(3);
  one.add(70);
  other.add(6);
  CHECK_FALSE(one.meets(other));
  other.add(70);
  CHECK(one.meets(other));
  CHECK(other.meets(one));
}

TEST_CASE("processors: this process may run somewhere") {
  CHECK(allowed_processors().count() >= 1);
  CHECK_FALSE(processor_name().empty());
}
