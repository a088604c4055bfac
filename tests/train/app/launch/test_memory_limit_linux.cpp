// The program under a limit on memory, which is asked for before `main` (tensor/system/memory_limit_linux.cpp).
#include <doctest/doctest.h>

#include <cstdlib>
#include <filesystem>
#include <string>
#include <string_view>

#include "ops/product/blas.h"
#include "tests/support/errors.h"
#include "tests/support/files.h"
#include "tests/support/program.h"
#include "tests/train/app/program/limited_shell.h"

using namespace eddy;
using namespace eddy::test;
namespace fs = std::filesystem;

TEST_CASE("program: a limit on memory that is too low is refused with one that does") {
  if (!has_program()) return;
  if (std::string_view(blas_name()) != "OpenBLAS") {
    MESSAGE("not checked: the limit is asked for OpenBLAS, which this build does without");
    return;
  }
  const TempFolder folder;
  write_text(folder);
  for (const int limit : {120'000, 150'000, 250'000}) {
    CAPTURE(limit);
    const std::string under = "ulimit -v " + std::to_string(limit) + "; ";
    const Ended refused = shell(folder, under + kTrain + "--run run");
    CHECK_MESSAGE(refused.status == 1, refused.err);
    CHECK_MESSAGE(contains(refused.err, "the limit is " + std::to_string(limit) + " KiB"), refused.err);
    CHECK_FALSE(fs::exists(folder.path("run")));
    // Computes nothing; but some versions of OpenBLAS take 128 MiB when they are loaded.
    CHECK(shell(folder, under + "$EDDY models").status == (limit < 200'000 ? 1 : 0));

    const std::string before = "ulimit -v ";
    const std::size_t at = refused.err.find(before);
    REQUIRE_MESSAGE(at != std::string::npos, refused.err);
    const std::string enough = std::to_string(std::atoll(refused.err.c_str() + at + before.size()));
    const std::string name = "run-" + std::to_string(limit);
    const Ended trained = shell(folder, "ulimit -v " + enough + "; " + kTrain + "--run " + name);
    CHECK_MESSAGE(trained.status == 0, trained.err);
  }
}
