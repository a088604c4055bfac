// Python with packages of other programs, and the numbers that it prints beside those of Eddy.
#pragma once

#include <doctest/doctest.h>

#include <cmath>
#include <cstddef>
#include <sstream>
#include <string>
#include <vector>

#include "tests/support/processes.h"

namespace eddy::test {

// A Python with these packages; empty, with a message, where there is none.
inline std::string python_with(const std::string& packages) {
  for (const char* python : {"python3", "/usr/bin/python3"})
    if (output_of(std::string(python) + " -c 'import " + packages + "; print(1)'") == "1\n") return python;
  MESSAGE("skipped: there is no Python with " << packages << " (pip install them)");
  return "";
}

// The largest difference of printed numbers from as many others; NaN where one of them is.
inline double largest_difference_of(const std::string& printed, const std::vector<float>& wanted) {
  std::istringstream numbers(printed);
  double worst = 0;
  std::size_t count = 0;
  for (double value; numbers >> value; ++count) {
    REQUIRE(count < wanted.size());
    const double difference = std::abs(value - static_cast<double>(wanted[count]));
    if (difference > worst || std::isnan(difference)) worst = difference;
  }
  CHECK(count == wanted.size());
  return worst;
}

}  // namespace eddy::test
