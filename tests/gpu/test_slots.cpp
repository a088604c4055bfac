// What the installation of the GPU's backend fills. Needs no GPU: installing sets pointers.
#include <doctest/doctest.h>

#include <string>
#include <utility>

#include "cuda/runtime/allocator.h"
#include "cuda/runtime/device.h"
#include "ops/backends.h"
#include "ops/op_list.h"
#include "tensor/base/error.h"
#include "tensor/transfer.h"
#include "tests/support/errors.h"
#include "tests/support/files.h"

using namespace eddy;
using namespace eddy::detail;

TEST_CASE("no slot is empty for a GPU in a build with CUDA") {
  install_backends();
#define EDDY_CHECK(Args, name) \
  CHECK_MESSAGE((name##_slot.function[static_cast<int>(DeviceType::cuda)] != nullptr), #name);
  EDDY_ALL_GPU_KERNELS(EDDY_CHECK)
}

TEST_CASE("a slot that is empty for a device says so instead of touching its memory") {
  struct Args {};
  const Slot<Args> nothing{"nothing"};
  const std::string text = test::error_of<DeviceError>([&] { nothing({DeviceType::cuda, 0}, Args{}); });
  CHECK(text.find("nothing: this build has no kernel for cuda:0 (it has: cpu, cuda") == 0);
}

TEST_CASE("the allocator and the transfer of the GPU are installed without touching a GPU") {
  const std::int64_t before = cuda::device_allocator().stats().live_bytes;  // what other tests left in caches
  install_backends();
  CHECK(&allocator({DeviceType::cuda, 0}) == &cuda::device_allocator());
  CHECK_NOTHROW(transfer({DeviceType::cuda, 0}));
  CHECK(cuda::device_allocator().stats().live_bytes == before);
}

TEST_CASE("the status of the GPU is one line that names what this build was made for") {
  const std::string text = cuda_status();
  CHECK(text.find("built for ") == 0);
  CHECK(text.find("cuBLASLt ") != std::string::npos);
  CHECK(text.find('\n') == std::string::npos);
}

TEST_CASE("a GPU below 8.0 is refused as too old, and another that lacks code is told how to build it") {
  const std::string old = cuda::mismatch({0, "Tesla T4", 7, 5, 0, 40});
  CHECK(old.find("Tesla T4 has compute capability 7.5, and Eddy's kernels need 8.0") == 0);
  CHECK(old.find("cmake") == std::string::npos);
  const std::string built(cuda::built_architectures());
  if (!cuda::runs_on(built, 8, 0))
    CHECK(cuda::mismatch({0, "an A100", 8, 0, 0, 108}).find("cmake --preset cuda") != std::string::npos);
}

TEST_CASE("the driver is told by its release, and where no file has it, as in WSL, by its CUDA version") {
  const test::TempFolder folder;
  const std::string file = folder.write(
      "version",
      "NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.159.04  Release Build  (x)\nGCC version:  gcc 12.2.0\n");
  CHECK(cuda::driver_text(file, 13000) == "driver 580.159.04 for CUDA 13.0");
  CHECK(cuda::driver_text(folder.path("nothing"), 12040) == "driver for CUDA 12.4");
}

TEST_CASE("code for an architecture runs on its own generation and intermediate code on all that are newer") {
  const char* const all = "80 86 89 90 100 120";
  for (const auto& [major, minor] : {std::pair{8, 0}, std::pair{8, 7}, std::pair{9, 0}, std::pair{12, 1}})
    CHECK(cuda::runs_on(all, major, minor));
  CHECK(!cuda::runs_on(all, 7, 5));
  CHECK(cuda::runs_on("80-real 90", 10, 0));
  CHECK(cuda::runs_on("80-real", 8, 6));
  CHECK(!cuda::runs_on("80-real", 9, 0));
  CHECK(cuda::runs_on("80-virtual", 9, 0));
  CHECK(cuda::runs_on("90a-real", 9, 0));
  CHECK(!cuda::runs_on("90a", 10, 0));
  CHECK(cuda::runs_on("100f", 10, 3));
  CHECK(!cuda::runs_on("100f", 12, 0));
  CHECK(!cuda::runs_on("", 9, 0));
}
