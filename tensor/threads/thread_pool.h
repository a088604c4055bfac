// The thread pool. Work is cut into chunks whose borders depend only on the problem, never on the number of
// threads, so results are bit-identical with one thread or many. Workers spin for some 20 us after the last
// chunk, then sleep: with longer spinning, work is 8-22 times slower when another process occupies a core.
#pragma once

#include <atomic>
#include <cstdint>

#include "tensor/base/host_device.h"

namespace eddy {

// Returns the number of threads of a parallel region, the caller included. Default: EDDY_NUM_THREADS, or the
// processors that this process may use.
int thread_count();
// Sets that number.
// errors: ValueError unless 1 <= threads <= 256, and inside a parallel region.
void set_thread_count(int threads);
// True on a thread that is running a chunk; a nested parallel_for then runs on the caller alone.
bool in_parallel_region();

// A barrier for the threads of one team: arrive_and_wait returns once all `threads` have arrived. It spins
// briefly, then sleeps.
class TeamBarrier {
 public:
  // For so many threads.
  explicit TeamBarrier(int threads) : threads_(threads) {}
  // Returns when all of them have called it.
  void arrive_and_wait();

 private:
  int threads_;
  std::atomic<int> arrived_{0};
  std::atomic<int> phase_{0};
};

namespace detail {
using ChunkFunction = void (*)(void* context, std::int64_t begin, std::int64_t end);
void parallel_chunks(std::int64_t n, std::int64_t grain, ChunkFunction function, void* context);
using TeamFunction = void (*)(void* context, int rank, int size, TeamBarrier& barrier);
void parallel_team(int max_threads, TeamFunction function, void* context);
}  // namespace detail

// Runs body(begin, end) over [0, n) in chunks of `grain`. The first exception of a chunk is rethrown here.
template <class Body>
EDDY_INLINE void parallel_for(std::int64_t n, std::int64_t grain, Body&& body) {
  if (n <= 0) return;
  if (n <= grain) {
    body(std::int64_t{0}, n);
    return;
  }
  detail::parallel_chunks(
      n, grain, [](void* c, std::int64_t b, std::int64_t e) { (*static_cast<Body*>(c))(b, e); },
      const_cast<void*>(static_cast<const void*>(&body)));
}

// Runs body(rank, size, barrier) once on each of up to `max_threads` threads at the same time, for loops over
// time whose steps are too short for a parallel region of their own. Ranks must write disjoint results. They
// must not throw: the other ranks would wait at the barrier forever.
template <class Body>
EDDY_INLINE void parallel_team(int max_threads, Body&& body) {
  detail::parallel_team(
      max_threads,
      [](void* c, int rank, int size, TeamBarrier& barrier) {
        (*static_cast<Body*>(c))(rank, size, barrier);
      },
      const_cast<void*>(static_cast<const void*>(&body)));
}

}  // namespace eddy
