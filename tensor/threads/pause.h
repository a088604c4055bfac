// A moment between two questions to something that works elsewhere: a GPU, another process.
#pragma once

#include <chrono>
#include <thread>

namespace eddy {

// For a loop that has asked for so many seconds in vain. It keeps no processor busy that others may need, as the
// waiting loops of libraries do, and answers soon where the wait is short.
inline void pause_after(double seconds) {
  constexpr double kSpin = 200e-6, kShort = 0.05;
  if (seconds < kSpin)
    std::this_thread::yield();
  else
    std::this_thread::sleep_for(std::chrono::microseconds(seconds < kShort ? 20 : 500));
}

}  // namespace eddy
