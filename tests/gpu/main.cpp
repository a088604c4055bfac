// The runner of the GPU's tests. Without a usable GPU it runs what needs none, prints SKIPPED and the reason,
// and succeeds: ctest then marks the others as skipped.
//
//   --plain    every allocation is a cudaMalloc of its own, for compute-sanitizer; the emulated GPU's way
//   --pooled   allocations are cut from larger segments, as in programs
//   --checks   every launch is waited for, so that an error names its kernel
//   --trials NAME ...   instead of tests, serves those trials of kernels (train/app/measure/kernels/prove.h)
#define DOCTEST_CONFIG_IMPLEMENT
#include <doctest/doctest.h>

#include <cstdio>
#include <string>
#include <string_view>

#include "cuda/runtime/allocator.h"
#include "cuda/runtime/context.h"
#include "ops/attention/rotary.h"
#include "ops/backends.h"
#include "tensor/base/error.h"
#include "tests/gpu/support/gpu_test.h"
#include "tests/gpu/support/planted_fault.h"
#include "tests/support/case_counter.h"
#include "train/app/measure/kernels/prove.h"

namespace {

// "" when a GPU is open, else why not.
std::string open_gpu() {
  try {
    eddy::cuda_device();
    return "";
  } catch (const eddy::DeviceError& error) {
    return error.what();
  }
}

// Every test begins with the choices of the start: programs that a test ran leave theirs. The kernels are those of the
// program's choice; a test of others asks for them.
struct ChoicesOfTheStart : CaseCounter {
  using CaseCounter::CaseCounter;
  void test_case_start(const doctest::TestCaseData&) override {
    eddy::refuse_gpu_kernels("");
    eddy::set_gpu_kernels("auto");
    eddy::set_automatic_kernels("auto");
  }
};
REGISTER_LISTENER("choices", 2, ChoicesOfTheStart);

}  // namespace

REGISTER_EXCEPTION_TRANSLATOR(eddy::Error& error) {
  return error.what();
}

int main(int argc, char** argv) {
  bool plain = eddy::gpu_test::kEmulated;
  for (int i = 1; i < argc; ++i) {
    if (std::string_view(argv[i]) == "--plain") plain = true;
    if (std::string_view(argv[i]) == "--pooled") plain = false;
    if (std::string_view(argv[i]) == "--checks") eddy::cuda::set_launch_checks(true);
  }
  eddy::cuda::set_plain_allocator(plain);
  if (argc > 1 && std::string_view(argv[1]) == "--trials") {
    eddy::cuda::set_plain_allocator(false);
    eddy::gpu_test::plant_fault();
    return eddy::app::serve_trials({argv + 2, argv + argc}, {eddy::gpu_test::kEmulated, 0});
  }
  doctest::Context context(argc, argv);
  const std::string why_none = open_gpu();
  if (!why_none.empty()) context.addFilter("test-suite-exclude", "device");
  const int result = context.run();
  if (context.shouldExit()) return result;
  if (!why_none.empty()) {
    std::printf("SKIPPED: the tests that need a GPU: %s\n", why_none.c_str());
    return result;
  }
  if (CaseCounter::cases == 0) {
    std::fputs("no test case matches the filter\n", stderr);
    return 1;
  }
  eddy::clear_rotary_cache();
  if (const std::int64_t left = eddy::cuda::device_allocator().stats().live_bytes; left != 0) {
    std::fprintf(stderr, "%lld bytes are left on the GPU\n", static_cast<long long>(left));
    return 1;
  }
  eddy::cuda::close();
  return result;
}
