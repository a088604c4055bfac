// The search in a memory: its errors, and what neither time nor other rows may change.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "ops/core/op_spec.h"
#include "ops/memory/memory_search.h"
#include "tensor/base/error.h"
#include "tests/support/spec_check.h"

using namespace eddy;
using namespace eddy::spec_check;

TEST_CASE("memory_search refuses shapes and sizes that do not fit by name") {
  const Tensor q = normal({2, 3, 4, 5}, "q"), keys = normal({2, 7, 4, 5}, "k");
  CHECK_THROWS_WITH_AS(memory_search(q, keys, keys, 0, MemorySearch::bucket),
                       doctest::Contains("topk is 0 (from 1 to the memory's size, 7)"), ValueError);
  CHECK_THROWS_AS(memory_search(q, keys, keys, 8, MemorySearch::exact), ValueError);
  CHECK_THROWS_WITH_AS(memory_search(q, normal({2, 7, 3, 5}, "k"), keys, 2, MemorySearch::exact),
                       doctest::Contains("[batch, time, heads, head_dim]"), ShapeError);
  CHECK_THROWS_AS(memory_search(q, raw::cast(keys, Dtype::f32), keys, 2, MemorySearch::exact), DtypeError);
}

TEST_CASE("memory_search takes for each query what it takes alone") {
  const Tensor q = normal({2, 9, 3, 8}, "q"), keys = normal({2, 50, 3, 8}, "k"),
               values = normal({2, 50, 3, 8}, "v");
  for (const MemorySearch search : {MemorySearch::bucket, MemorySearch::exact}) {
    const Tensor all = memory_search(q, keys, values, 6, search).values;
    for (const std::int64_t t : {0, 4, 8}) {
      const Tensor one = memory_search(raw::narrow(q, 1, t, 1), keys, values, 6, search).values;
      expect_none(difference("one query", one, raw::narrow(all, 1, t, 1), 16, epsilon(Dtype::f64)));
    }
  }
}

TEST_CASE("the exact search gives the entries in the order of the memory") {
  // Scores 1 .. 5 in a mixed order: the three best are entries 0, 3 and 4.
  const Tensor keys = Tensor::from(std::vector<double>{4, 2, 1, 5, 3}, {1, 5, 1, 1});
  const Tensor q = Tensor::from(std::vector<double>{1}, {1, 1, 1, 1});
  const MemoryMatches taken = memory_search(q, keys, keys, 3, MemorySearch::exact);
  CHECK(taken.keys.to_vector<double>() == std::vector<double>{4, 5, 3});
}

TEST_CASE("a score that is NaN is above all others in the search of a memory") {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const Tensor q = Tensor::from(std::vector<double>{1}, {1, 1, 1, 1});
  for (const std::size_t place : {0u, 2u, 4u}) {
    std::vector<double> scores{4, 2, 1, 5, 3};
    scores[place] = nan;
    const Tensor keys = Tensor::from(scores, {1, 5, 1, 1});
    const std::vector<double> exact =
        memory_search(q, keys, keys, 2, MemorySearch::exact).keys.to_vector<double>();
    CHECK(std::count_if(exact.begin(), exact.end(), [](double x) { return std::isnan(x); }) == 1);
    CHECK(std::count(exact.begin(), exact.end(), 5) == 1);
    const std::vector<double> bucket =
        memory_search(q, keys, keys, 2, MemorySearch::bucket).keys.to_vector<double>();
    CHECK(std::isnan(bucket[0]));  // places 0, 2 and 4 are in the first
    CHECK(bucket[1] == 5);
  }
}
