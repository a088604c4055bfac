// What a run recorded in its folder.
#pragma once

#include <cstddef>
#include <filesystem>
#include <string>

#include "train/record/metrics.h"

namespace eddy::test {

using namespace training;

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

}  // namespace eddy::test
