// Runs of these tests, and what a run recorded in its folder.
#pragma once

#include <doctest/doctest.h>

#include <cstddef>
#include <filesystem>
#include <string>
#include <vector>

#include "tests/support/files.h"
#include "tests/support/tiny_run.h"
#include "train/record/metrics.h"
#include "train/tasks/copy_data.h"

namespace eddy::test {

using namespace training;

// A copy task that validates its curriculum after every second step, with 8 tokens of noise up to `noise_max`.
inline TrainRequest curriculum_run(const TempFolder& folder, const std::string& name,
                                   std::int64_t noise_max) {
  TrainRequest request = tiny_run(folder, name);
  RunConfig& config = request.config;
  config.model.model = "block_accumulate";
  config.model.context = 64;
  config.model.block = 4;
  config.model.readout = "tail";
  config.data.name = "copy";
  config.data.path.clear();
  config.data.noise = 8;
  auto& keys = config.data.extensions.get<CopyKeys>();
  keys.symbols = 4;
  keys.noise_max = noise_max;
  keys.curriculum_every = 2;
  keys.curriculum_batches = 1;
  return request;
}

inline Metrics metrics_of(const std::string& run) {
  return read_metrics(run + "/metrics.jsonl");
}

// The text of every event, one a line.
inline std::string events_of(const std::string& run) {
  std::string text;
  for (const EventRecord& event : metrics_of(run).events) text += event.text + "\n";
  return text;
}

// Whether a run, which may be training, has recorded more than `steps` steps.
inline bool has_steps(const std::string& run, std::size_t steps) {
  return std::filesystem::exists(run + "/metrics.jsonl") && metrics_of(run).steps.size() > steps;
}

inline void check_same_evaluations(const std::vector<EvalRecord>& mine,
                                   const std::vector<EvalRecord>& theirs) {
  REQUIRE(mine.size() == theirs.size());
  for (std::size_t i = 0; i < mine.size(); ++i) {
    CHECK(mine[i].step == theirs[i].step);
    CHECK(mine[i].loss == theirs[i].loss);
    CHECK(mine[i].tokens == theirs[i].tokens);
  }
}

}  // namespace eddy::test
