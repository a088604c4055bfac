// What `eddy info` says of the libraries of a process, which the loader of Linux tells.
#include <doctest/doctest.h>

#include "tests/support/errors.h"
#include "tests/support/files.h"
#include "tests/support/program.h"

using namespace eddy::test;

TEST_CASE("program: info names the libraries that it loads with their versions") {
  if (!has_program()) return;
  const TempFolder folder;
  const Ended info = run_program({{"info"}, folder.path()});
  CHECK(info.status == 0);
  CHECK_MESSAGE(contains(info.out, "libraries: lib"), info.out);
  CHECK_MESSAGE(contains(info.out, "libstdc++.so."), info.out);
  CHECK(contains(info.out, "line editing: libedit\n") == contains(info.out, "libedit.so."));
}
