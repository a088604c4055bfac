// The handler only notes the time: hardly anything else is safe inside a signal handler.
#include "train/process/stop_signal.h"

#include <time.h>

#include <atomic>
#include <cstdint>

namespace eddy::training {
namespace {

constexpr std::int64_t kPatienceMs = 2000;

std::atomic<std::int64_t> requested_ms{0};  // when the first signal came; 0: none did
static_assert(std::atomic<std::int64_t>::is_always_lock_free);
int living = 0;

std::int64_t now_ms() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return std::int64_t{now.tv_sec} * 1000 + now.tv_nsec / 1'000'000 + 1;
}

void on_signal(int number) {
  const std::int64_t now = now_ms();
  std::int64_t first = 0;
  if (requested_ms.compare_exchange_strong(first, now)) return;
  if (number != SIGINT || now - first < kPatienceMs) return;
  std::signal(number, SIG_DFL);
  std::raise(number);
}

}  // namespace

StopOnSignal::StopOnSignal() {
  if (living++ == 0) requested_ms = 0;
  struct sigaction action {};
  action.sa_handler = on_signal;
  for (std::size_t i = 0; i < kSignals.size(); ++i) {
    sigaction(kSignals[i], nullptr, &before_[i]);
    if (before_[i].sa_handler != SIG_IGN) sigaction(kSignals[i], &action, nullptr);
  }
}

StopOnSignal::~StopOnSignal() {
  for (std::size_t i = 0; i < kSignals.size(); ++i) sigaction(kSignals[i], &before_[i], nullptr);
  --living;
}

bool stop_requested() {
  return requested_ms != 0;
}

}  // namespace eddy::training
