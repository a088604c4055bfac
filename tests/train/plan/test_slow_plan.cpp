// The peak that `eddy plan` counts against what the program has resident when it trains, for every model.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <string>

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
  folder.write("text.txt", generate_stories(3, 200'000));
  for (const ModelEntry& entry : model_registry()) {
    CAPTURE(entry.model);
    const std::string run =
        std::string("--data text.txt --model ") + entry.model +
        " --model.dim 128 --model.heads 4 --model.context 256 --train.batch 16 "
        "--train.steps 3 --train.eval_every 2 --train.eval_batches 1 --train.log_every 1 ";
    const Ended planned = run_program({words_of("plan --seconds 0 " + run), folder.path()});
    REQUIRE_MESSAGE(planned.status == 0, planned.err);
    const std::size_t at = planned.out.find("\npeak ");
    REQUIRE(at != std::string::npos);
    const double counted = std::atof(planned.out.c_str() + at + 6);
    const Ended trained =
        run_program({words_of("train --run " + std::string(entry.model) + " " + run), folder.path()});
    REQUIRE_MESSAGE(trained.status == 0, trained.err);
    std::int64_t resident = 0;
    for (const StepRecord& step : read_metrics(folder.path(entry.model) + "/metrics.jsonl").steps)
      resident = std::max(resident, step.resident_bytes);
    const double measured = static_cast<double>(resident) / (1 << 30);
    CHECK_MESSAGE(!(std::abs(counted - measured) > 0.1 * measured), "counted ", counted, " GiB, resident ",
                  measured, " GiB");
  }
}
