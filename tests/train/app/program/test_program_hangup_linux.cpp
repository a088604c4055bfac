// The program under nohup, also where a library took SIGHUP before main.
#include <doctest/doctest.h>

#include <csignal>
#include <filesystem>
#include <string>
#include <string_view>

#include "ops/product/blas.h"
#include "tests/support/files.h"
#include "tests/support/processes.h"
#include "tests/support/program.h"
#include "train/text/stories/stories.h"

using namespace eddy;
using namespace eddy::test;
namespace fs = std::filesystem;

TEST_CASE("program: a hang-up that was ignored at the start stays ignored, whatever a library does") {
  if (!has_program()) return;
  const TempFolder folder;
  folder.write("text.txt", training::generate_stories(3, 4000));
  for (const bool ignored : {true, false})
    for (const bool taken : {true, false}) {
      if (taken && std::string_view(blas_name()) != "OpenBLAS")
        continue;  // memory_limit_linux.cpp is not there
      CAPTURE(ignored);
      CAPTURE(taken);
      const std::string name = std::string("run") + (ignored ? "_ignored" : "") + (taken ? "_taken" : "");
      const std::string run = folder.path(name), records = run + "/metrics.jsonl";
      Start start{words_of("train " + kTinyModel +
                           "--data text.txt --train.threads 1 --train.eval_every 0 --train.log_every 1 "
                           "--train.checkpoint_every 0 --train.steps 100000000 --run " +
                           name),
                  folder.path()};
      if (taken) start.environment.emplace_back("LD_PRELOAD=" EDDY_BINARY_DIR "/tests/libtakes_hangup.so");
      const auto before = std::signal(SIGHUP, ignored ? SIG_IGN : SIG_DFL);
      Program program(start);
      std::signal(SIGHUP, before);
      REQUIRE(wait_until([&] { return fs::exists(run + "/checkpoints/latest"); }));
      program.signal(SIGHUP);
      if (ignored) {  // far more records than those of a stop
        const auto seen = fs::file_size(records);
        CHECK(wait_until([&] { return fs::file_size(records) > seen + 20'000; }));
        program.signal(SIGTERM);
      }
      CHECK(program.finish().status == 130);
    }
}
