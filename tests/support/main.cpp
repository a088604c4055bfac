// The runner of every test program: doctest, and an error when a filter selects no case at all.
#define DOCTEST_CONFIG_IMPLEMENT
#include <doctest/doctest.h>

#include <cstdio>

#include "tensor/base/error.h"
#include "tests/support/case_counter.h"

REGISTER_EXCEPTION_TRANSLATOR(eddy::Error& error) {
  return error.what();
}

int main(int argc, char** argv) {
  doctest::Context context(argc, argv);
  const int result = context.run();
  if (context.shouldExit()) return result;
  if (CaseCounter::cases == 0) {
    std::fputs("no test case matches the filter\n", stderr);
    return 1;
  }
  return result;
}
