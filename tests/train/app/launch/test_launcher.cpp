// Exchanges over MPI that fail when they begin. The test starts itself under mpirun,
// and its MPI_Isend stands before MPI's.
#include <doctest/doctest.h>

#include "train/app/launch/launcher.h"

#ifdef EDDY_MPI
#define OMPI_SKIP_MPICXX 1
#include <mpi.h>
#include <sys/wait.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <span>
#include <string>

#include "tensor/base/error.h"
#include "tensor/system/process.h"
#include "tests/support/errors.h"
#include "tests/support/files.h"
#include "tests/support/processes.h"
#include "train/ranks/ranks.h"

namespace {
bool next_send_fails = false;
}

extern "C" int MPI_Isend(const void* bytes, int count, MPI_Datatype type, int to, int tag, MPI_Comm group,
                         MPI_Request* request) {
  if (!next_send_fails) return PMPI_Isend(bytes, count, type, to, tag, group, request);
  next_send_fails = false;
  return MPI_ERR_OTHER;
}

namespace {

using namespace eddy;
using namespace eddy::training;
using namespace eddy::app;
using namespace eddy::test;

constexpr int kTag = 3;
using Bytes = std::array<std::byte, 64>;

Bytes filled(int value) {
  Bytes bytes{};
  bytes.fill(static_cast<std::byte>(value));
  return bytes;
}

}  // namespace

TEST_CASE("launcher: one of two ranks, whose send fails" * doctest::skip()) {
  const std::unique_ptr<Ranks> ranks = ranks_of_launcher(false);
  REQUIRE(ranks != nullptr);
  ranks->set_timeout(20);
  Bytes go = filled(1);
  if (ranks->rank() == 1) {
    ranks->receive(0, go);
    const Bytes late = filled(7);
    ranks->begin(0, late, {}, kTag)->wait(Patience::limited);
    return;
  }
  Bytes in = filled(0), fresh = filled(0);
  next_send_fails = true;
  CHECK(contains(error_of<IoError>([&] { static_cast<void>(ranks->begin(1, go, in, kTag)); }),
                 "does not get on with rank 1"));
  // What the other rank sends now belongs to the exchange that begins now.
  ranks->send(1, go);
  ranks->begin(1, {}, fresh, kTag)->wait(Patience::limited);
  CHECK(fresh == filled(7));
  CHECK(in == filled(0));
}

TEST_CASE("launcher: an exchange whose send fails takes back its receive before the error leaves") {
  if (output_of("command -v mpirun").empty()) {
    MESSAGE("skipped: no mpirun (install openmpi-bin)");
    return;
  }
  const TempFolder folder;
  const std::string log = folder.path("log");
  const int status = std::system(("mpirun --allow-run-as-root --oversubscribe --bind-to none -n 2 " +
                                  std::filesystem::canonical(own_program()).string() +
                                  " --no-skip --test-case='launcher: one of two ranks*' > " + log + " 2>&1")
                                     .c_str());
  CHECK_MESSAGE((WIFEXITED(status) && WEXITSTATUS(status) == 0), read_bytes(log));
}

#else

TEST_CASE("launcher: without MPI one process has no ranks") {
  CHECK(eddy::app::ranks_of_launcher(false) == nullptr);
}

#endif
