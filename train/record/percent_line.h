// The progress of a measurement: a line on the terminal that is updated at most ten times a second. Nothing
// is shown where standard error is no terminal, or one that does not redraw lines.
#pragma once

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <string>
#include <utility>

#include "train/record/progress.h"

namespace eddy::training {

class PercentLine {
 public:
  explicit PercentLine(std::string name) : name_(std::move(name)), shown_(redraws(stderr)) {}
  ~PercentLine() {
    if (shown_) std::fputs("\r\x1b[K", stderr);
  }
  PercentLine(const PercentLine&) = delete;
  PercentLine& operator=(const PercentLine&) = delete;

  // Shows how much is done; returns that the measurement goes on, as its callback.
  bool operator()(std::int64_t done, std::int64_t total) {
    const auto now = std::chrono::steady_clock::now();
    if (!shown_ || now - last_ < std::chrono::milliseconds(100)) return true;
    last_ = now;
    std::fprintf(stderr, "\r%s: %.0f %%", name_.c_str(),
                 100.0 * static_cast<double>(done) / static_cast<double>(total));
    std::fflush(stderr);
    return true;
  }

 private:
  std::string name_;
  bool shown_;
  std::chrono::steady_clock::time_point last_;
};

}  // namespace eddy::training
