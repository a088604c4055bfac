// The file with everything in it, examples/00_everything.cpp, where it has to last: its state and not its past.
#include <doctest/doctest.h>
#include <sys/resource.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <functional>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <utility>
#include <vector>

namespace everything {
#include "examples/00_everything.cpp"  // its headers are included above
}

namespace {

// The most memory that this process has had, in KiB.
long peak_of_memory() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_maxrss;
}

}  // namespace

TEST_CASE("everything: a stream of twenty times the length is written in the same memory") {
  const everything::Model model;
  std::mt19937 random{3};
  CHECK(everything::sample(model, "1", 500, random).size() == 500);
  const long before = peak_of_memory();
  CHECK(everything::sample(model, "1", 10'000, random).size() == 10'000);
  // With the past of each token, 30 KB, it would be 300 MB more.
  CHECK(peak_of_memory() - before < 4'000);
}

TEST_CASE("everything: no gradient goes through detach, and numbers do") {
  everything::Matrix x = everything::make(1, 1), loss = everything::make(1, 1);
  x->value[0] = 3;
  const everything::Matrix y = everything::detach(x);
  CHECK(y->value[0] == 3);
  loss = everything::linear(y, x);
  everything::backward(loss);
  CHECK(y->gradient[0] == 3);
  CHECK(x->gradient[0] == 3);  // as a weight alone
}

TEST_CASE("everything: pieces of a text are as long as asked, and have its letters in order") {
  std::mt19937 random{4};
  const everything::Streams streams = everything::cut_streams("abcdefgh", "hgfedcba", 5, 3, random);
  CHECK(streams.size() == 3);
  for (std::size_t row = 0; row < 5; ++row) {
    CHECK(streams[0][row] == streams[1][row] + 1);
    CHECK(streams[1][row] == streams[2][row] + 1);
  }
}
