// The records of the choices among a GPU's kernels, and the lists of kernels that they make.
#include <doctest/doctest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "ops/backends.h"
#include "tensor/base/error.h"
#include "tests/support/errors.h"

namespace {

using namespace eddy;
using namespace eddy::detail;
using namespace eddy::test;

bool has(const std::vector<std::string>& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

}  // namespace

TEST_CASE("kernel choices: the names in a record are those of kernels, and a part is one of another record") {
  for (const KernelRecord& record : kKernelRecords) {
    CAPTURE(record.name);
    const std::vector<std::string> kernels = kernels_in(record.kernels);
    for (const std::string& kernel : kernels)
      CHECK(std::find(std::begin(kKernelNames), std::end(kKernelNames), kernel) != std::end(kKernelNames));
    CHECK(has(kernels, "plain"));
    CHECK(has(kernels, kernel_name(record.measured)));
    for (const std::string& kernel : kernels_in(record.timed)) CHECK(has(kernels, kernel));
    CHECK(std::any_of(std::begin(kKernelRecords), std::end(kKernelRecords), [&](const KernelRecord& whole) {
      return whole.name == record.part_of && !whole.is_part() && whole.kernels == record.kernels;
    }));
  }
}

TEST_CASE("kernel choices: an item sets a choice and its parts, and a later one overrides it") {
  set_gpu_kernels("plain,attention=mma,short_attention=wgmma,products=fused");
  CHECK(describe(chosen_kernels())
            .starts_with("attention=mma,short_attention=wgmma,recurrence=plain,products=fused"));
  CHECK_FALSE(has_automatic_kernels());
  set_gpu_kernels("products=fused,attention=wgmma,auto,recurrence=fused,attention=mma");
  CHECK(has_automatic_kernels());
  CHECK(chosen_kernels().of("short_attention") == "mma");
  CHECK(chosen_kernels().of("recurrence") == "fused");
  CHECK(kernel_choice(KernelOp::recurrence).asked);
  CHECK_FALSE(kernel_choice(KernelOp::products).asked);
  CHECK(contains(error_of<ValueError>([] { static_cast<void>(chosen_kernels().of("unit")); }), "'unit'"));
  set_gpu_kernels("auto");
}

TEST_CASE(
    "kernel choices: without a call attention runs on tensor cores on every GPU, and all else as it was measured") {
  set_gpu_kernels("auto");
  set_automatic_kernels("auto");
  for (const bool measured : {true, false}) {
    CAPTURE(measured);
    expect_gpu(measured);
    const GpuKernels kernels = chosen_kernels();
    for (const KernelRecord& record : kKernelRecords) {
      const std::string kernel = kernels.of(record.name);
      if (measured)
        CHECK(kernel == kernel_name(record.measured));
      else
        CHECK_MESSAGE(kernel == (record.part_of == "attention" ? "mma" : "plain"), record.name);
    }
  }
  expect_gpu(true);
}

TEST_CASE("kernel choices: what is not in a record is answered with all that is") {
  for (const char* text : {"fast", "", "recurrence=wgmma", "attention=gmma", "attention=",
                           "unit_recurrence=fused", "block_forget=fused", "recurrence=plain|fused"}) {
    CAPTURE(text);
    CHECK(contains(
        error_of<ValueError>([&] { set_gpu_kernels(text); }),
        "(a list with commas of auto, plain, attention=auto|plain|mma|wgmma, "
        "short_attention=auto|plain|mma|wgmma, recurrence=auto|plain|fused, products=auto|plain|fused"));
  }
}
