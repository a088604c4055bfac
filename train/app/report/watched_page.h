// The page that `eddy watch` shows of a folder.
#pragma once

#include <filesystem>
#include <utility>

#include "tensor/files/descriptor.h"
#include "train/run/run_view.h"

namespace eddy::app {

// The report of a run; of a folder without one, the page of `eddy report` over its runs, also while they train.
class WatchedPage {
 public:
  explicit WatchedPage(std::filesystem::path folder) : folder_(std::move(folder)) {}

  // The page as it is now, a file to be read from its beginning. That of several runs is made again when someone asks,
  // and not sooner than ShowTimer allows, so that requests cost little.
  // errors: those of runs_in and read_reported_runs.
  Descriptor open();

 private:
  std::filesystem::path folder_;
  Descriptor made_;  // of several runs
  training::ShowTimer timer_;
};

// Refuses what holds no page and will hold none.
// errors: IoError for a folder that is no run and holds none, and for what is no folder.
void require_watchable(const std::filesystem::path& folder);

}  // namespace eddy::app
