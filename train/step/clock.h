// The time that work takes.
#pragma once

#include <chrono>

namespace eddy::training {

using Clock = std::chrono::steady_clock;

inline double seconds_between(Clock::time_point from, Clock::time_point to = Clock::now()) {
  return std::chrono::duration<double>(to - from).count();
}

}  // namespace eddy::training
