// What a verdict on a GPU's kernels takes and refuses, and its file.
#include <doctest/doctest.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "ops/backends.h"
#include "tensor/base/error.h"
#include "tests/support/errors.h"
#include "tests/support/files.h"
#include "train/app/measure/kernels/kernel_verdict.h"
#include "train/app/measure/kernels/prove.h"
#include "train/app/measure/kernels/run_kernels.h"

namespace {

using namespace eddy;
using namespace eddy::training;
using namespace eddy::app;
using namespace eddy::test;

KernelVerdict verdict_of(std::vector<KernelTrial> trials) {
  return {"a GPU", "a build", "2026-11-26", std::move(trials)};
}

// A list of kernels without those of choices behind the ones here.
std::string known(const std::string& kernels) {
  return kernels.substr(0, kernels.find(',', kernels.find("products=")));
}

}  // namespace

TEST_CASE("verdict: of the kernels that passed the one with the smallest part of the plain time is taken") {
  const KernelVerdict verdict =
      verdict_of({{"op/add", "", ""},
                  {"attention=mma", "", "", {{"attention", 2, 10}, {"short_attention", 1, 4}}},
                  {"attention=wgmma", "", "", {{"attention", 1, 10}, {"short_attention", 3, 4}}},
                  {"recurrence=fused", "", "", {{"a model", 1, 2}, {"another", 3, 2}}},
                  {"products=fused", "", "", {{"linear", 9, 10}}}});
  CHECK(known(verdict.kernels()) == "attention=wgmma,short_attention=mma,recurrence=plain,products=fused");
  CHECK(verdict.refused() == "");
  CHECK_NOTHROW(set_automatic_kernels(verdict.kernels()));
  set_automatic_kernels("auto");
}

TEST_CASE("verdict: of the kernels that passed a run takes those with which its own steps are the fastest") {
  const KernelVerdict verdict =
      verdict_of({{"attention=mma", "", "", {{"attention", 2, 10}, {"short_attention", 1, 4}}},
                  {"attention=wgmma", "", "", {{"attention", 1, 10}, {"short_attention", 3, 4}}},
                  {"recurrence=fused", "", "", {{"a model", 3, 2}}},
                  {"products=fused", "wrong", ""}});
  const std::string own = "attention=wgmma,short_attention=mma,recurrence=plain,products=plain";
  std::vector<std::string> tried;
  const auto seconds_of = [&](const std::string& kernels) -> std::optional<double> {
    tried.push_back(known(kernels));
    if (contains(kernels, "short_attention=wgmma")) return {};  // no such step can be run
    return 1 - (contains(kernels, "recurrence=fused") ? 0.5 : 0) - (contains(kernels, "=mma,s") ? 0.01 : 0);
  };
  CHECK(known(fastest_kernels(verdict, seconds_of)) ==
        "attention=wgmma,short_attention=mma,recurrence=fused,products=plain");
  CHECK(tried ==
        std::vector<std::string>{own, "attention=mma,short_attention=mma,recurrence=plain,products=plain",
                                 "attention=wgmma,short_attention=wgmma,recurrence=plain,products=plain",
                                 "attention=wgmma,short_attention=mma,recurrence=fused,products=plain"});
  set_gpu_kernels("recurrence=plain,attention=mma");
  tried.clear();
  CHECK(known(fastest_kernels(verdict, seconds_of)) == own);
  CHECK(tried.empty());
  set_gpu_kernels("auto");
}

TEST_CASE(
    "verdict: algorithms that were timed are taken by a run whose steps gain, and by no other program") {
  const KernelVerdict verdict = verdict_of({{"algorithms=timed", "", ""}});
  CHECK(contains(verdict.kernels(), "algorithms=plain"));
  const auto taken = [&](double part) {
    return fastest_kernels(verdict, [&](const std::string& kernels) -> std::optional<double> {
      return contains(kernels, "algorithms=timed") ? part : 1;
    });
  };
  CHECK(contains(taken(0.97), "algorithms=timed"));
  CHECK(contains(taken(0.99), "algorithms=plain"));
}

TEST_CASE("verdict: what failed is refused, what is left out is not, and neither is taken") {
  const KernelVerdict verdict =
      verdict_of({{"op/add", "add/odd result 0: wrong", ""},
                  {"attention=mma", "y of ...", "", {{"attention", 1, 10}, {"short_attention", 1, 10}}},
                  {"attention=wgmma", "", "for GPUs of 9.0 alone"},
                  {"products=fused", "it did not end in 20 s", ""}});
  CHECK(known(verdict.kernels()) == "attention=plain,short_attention=plain,recurrence=plain,products=plain");
  CHECK(verdict.refused() == "attention=mma,products=fused");
  CHECK(verdict.refused_choices().size() == 2);
  CHECK(verdict.refused_ops() == std::vector<std::string>{"op/add: add/odd result 0: wrong"});
  CHECK(contains(error_of<DeviceError>([&] { use_verdict(verdict); }), "EDDY_KERNELS=plain"));
}

TEST_CASE("verdict: its file gives it back to the same build on the same GPU, and damage makes it none") {
  const TempFolder folder;
  const KernelVerdict verdict = verdict_of({{"products=fused", "wrong", "", {{"linear", 0.123456789, 1.5}}}});
  CHECK_FALSE(read_verdict(folder.path(), "a GPU", "a build"));
  std::filesystem::create_directories(verdict_file(folder.path(), "a GPU", "a build").parent_path());
  write_verdict(folder.path(), verdict);
  const auto read = read_verdict(folder.path(), "a GPU", "a build");
  REQUIRE(read);
  CHECK(read->kernels() == verdict.kernels());
  CHECK(read->trials.at(0).problem == "wrong");
  CHECK(read->trials.at(0).times.at(0).ms == 0.123456789);
  CHECK_FALSE(read_verdict(folder.path(), "a GPU", "another build"));
  for (const char* damage : {"", "{", "{}", "[]"}) {
    write_bytes(verdict_file(folder.path(), "a GPU", "a build"), damage);
    CHECK_FALSE(read_verdict(folder.path(), "a GPU", "a build"));
  }
}
