// The peak that `eddy plan` counts against what the program has resident when it trains, for every model.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "models/eddy/registry.h"
#include "tests/support/files.h"
#include "tests/support/program.h"
#include "train/record/metrics.h"
#include "train/text/stories/stories.h"

using namespace eddy;
using namespace eddy::training;
using namespace eddy::test;

TEST_CASE("program: the planned peak of every model is within a tenth of the resident one") {
  if (!has_program()) return;
  const TempFolder folder;
  folder.write("text.txt", generate_stories(3, 80'000));
  // All of the validation split, whose last batch has fewer rows, is evaluated before the last step.
  std::vector<std::pair<std::string, int>> runs;
  for (const ModelEntry& entry : model_registry()) runs.emplace_back(entry.model, 1);
  runs.insert(runs.end(), {{"unit_forget", 4}, {"slide", 4}, {"staircase", 2}});
  for (const auto& [model, parts] : runs) {
    CAPTURE(model);
    CAPTURE(parts);
    const std::string run = fmt::format(
        "--data text.txt --model {} --model.dim 128 --model.heads 4 --model.context 256 "
        "--train.batch 16 --train.micro_batches {} --train.steps 3 --train.eval_every 2 "
        "--train.eval_batches 0 --train.log_every 1 ",
        model, parts);
    const Ended planned = run_program({words_of("plan --seconds 0 " + run), folder.path()});
    REQUIRE_MESSAGE(planned.status == 0, planned.err);
    const std::size_t at = planned.out.find("\npeak ");
    REQUIRE(at != std::string::npos);
    const double counted = std::atof(planned.out.c_str() + at + 6);
    const Ended trained =
        run_program({words_of(fmt::format("train --run {}-{} {}", model, parts, run)), folder.path()});
    REQUIRE_MESSAGE(trained.status == 0, trained.err);
    std::int64_t resident = 0;
    for (const StepRecord& step :
         read_metrics(folder.path(fmt::format("{}-{}", model, parts)) + "/metrics.jsonl").steps)
      resident = std::max(resident, step.resident_bytes);
    const double measured = static_cast<double>(resident) / (1 << 30);
    // Of block_accumulate more is counted: what an evaluation of fewer rows leaves for reuse is reused.
    const double above = model == "block_accumulate" ? 1.15 : 1.1;
    CHECK_MESSAGE(!(counted < 0.9 * measured || counted > above * measured), "counted ", counted,
                  " GiB, resident ", measured, " GiB");
  }
}
