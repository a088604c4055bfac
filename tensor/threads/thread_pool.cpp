// A small pool: one job at a time, chunks claimed by an atomic counter. The ranks in a team are fixed; which
// worker takes which chunk is not, and must not matter.
//
// On x86-64 loads are in order and so are stores; ARM64 may exchange all of them. So each atomic below orders what
// needs an order, and nothing relies on more:
//
//   caller to worker   what a caller wrote, the job and the inputs of its chunks, comes before generation_ rises, a
//                      release; a worker acquires generation_ before it reads any of that
//   worker to caller   results, and error_, come before the worker's subtraction from running_, a release. Those of the
//                      other workers go on with the release sequence, as read-modify-writes do, so that the caller, who
//                      acquires the 0, sees what all of them wrote
//   region to region   from worker to caller to worker, by the two above
//   sleep and wake     who sleeps tests its condition with the mutex held, and who wakes has held it after changing the
//                      condition: no wake-up falls between the test and the sleep
//   who may go         a worker that has subtracted reads nothing of the job any more, so the caller may free it
#include "tensor/threads/thread_pool.h"

#include <pthread.h>

#include <algorithm>
#include <condition_variable>
#include <cstdlib>
#include <exception>
#include <memory>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "tensor/base/format.h"
#include "tensor/system/cpu_quota.h"
#include "tensor/system/processors.h"

namespace eddy {
namespace {

thread_local bool inside = false;

// On ARM64 `yield` does nothing on most processors; a barrier for instructions waits for those before it, some tens of
// cycles as PAUSE does.
inline void pause_briefly() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("isb" ::: "memory");
#endif
}

// About 20 us of pauses on current processors of x86-64, not measured on others; see thread_pool.h for why no longer.
constexpr int kSpins = 600;

constexpr int kMostThreads = 256;

// The number in a variable of the environment, of which OMP_NUM_THREADS may list several; 0 without one.
int threads_by(const char* variable) {
  const char* const text = std::getenv(variable);
  const int wanted = text == nullptr ? 0 : std::atoi(text);
  return wanted >= 1 && wanted <= kMostThreads ? wanted : 0;
}

// The processors that this process may use, for as much of the time as its quota allows.
int processors() {
  int count = allowed_processors().count();
  if (const int quota = cpu_quota_threads(); quota > 0) count = std::min(count, quota);
  return std::clamp(count, 1, kMostThreads);
}

int default_threads() {
  if (const int wanted = threads_by("EDDY_NUM_THREADS"); wanted > 0) return wanted;
  const int wanted = threads_by("OMP_NUM_THREADS");
  return wanted > 0 ? std::min(wanted, processors()) : processors();
}

class Pool {
 public:
  explicit Pool(int threads) : threads_(threads) {
    try {
      for (int rank = 1; rank < threads; ++rank) workers_.emplace_back([this, rank] { work(rank); });
    } catch (const std::system_error& refused) {
      const std::size_t started = workers_.size() + 1;
      stop();
      fail<IoError>("threads: the system starts {} of {}: {} (--threads {})", started, threads,
                    refused.code().message(), started);
    } catch (...) {
      stop();
      throw;
    }
  }
  ~Pool() { stop(); }
  int threads() const { return threads_; }

  // Runs job(rank) on every thread; returns when all have finished. The first exception is rethrown.
  template <class Job>
  void run(Job&& job) {
    job_ = [](void* context, int rank) { (*static_cast<Job*>(context))(rank); };
    context_ = const_cast<void*>(static_cast<const void*>(&job));
    error_ = nullptr;
    // No worker touches it before it has acquired the new generation, and all have left the job before: the last of
    // them brought it to 0, which the caller acquired.
    running_.store(threads_ - 1, std::memory_order_relaxed);
    {
      std::lock_guard lock(mutex_);
      generation_.fetch_add(1, std::memory_order_release);
    }
    wake_.notify_all();
    call(0);
    for (int spin = 0; running_.load(std::memory_order_acquire) != 0; ++spin) {
      if (spin < kSpins) {
        pause_briefly();
      } else {
        std::unique_lock lock(mutex_);
        done_.wait(lock, [this] { return running_.load(std::memory_order_acquire) == 0; });
      }
    }
    if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
  }

 private:
  void stop() {
    {
      std::lock_guard lock(mutex_);
      stopping_ = true;
      generation_.fetch_add(1, std::memory_order_release);
    }
    wake_.notify_all();
    for (std::thread& worker : workers_) worker.join();
  }

  void call(int rank) {
    inside = true;
    try {
      job_(context_, rank);
    } catch (...) {
      std::lock_guard lock(mutex_);
      if (!error_) error_ = std::current_exception();
    }
    inside = false;
  }

  void work(int rank) {
    std::uint64_t seen = 0;
    for (;;) {
      for (int spin = 0; spin < kSpins && generation_.load(std::memory_order_acquire) == seen; ++spin)
        pause_briefly();
      if (generation_.load(std::memory_order_acquire) == seen) {
        std::unique_lock lock(mutex_);
        wake_.wait(lock, [&] { return generation_.load(std::memory_order_acquire) != seen; });
      }
      // At most one more than before: the next region begins when this worker too has subtracted from running_.
      seen = generation_.load(std::memory_order_acquire);
      if (stopping_) return;  // written before generation_ rose
      call(rank);
      // Need not acquire: only the caller reads what others wrote.
      if (running_.fetch_sub(1, std::memory_order_release) == 1) {
        std::lock_guard lock(mutex_);
        done_.notify_one();
      }
    }
  }

  int threads_;
  std::vector<std::thread> workers_;
  std::mutex mutex_;
  std::condition_variable wake_, done_;
  std::atomic<std::uint64_t> generation_{0};
  std::atomic<int> running_{0};
  bool stopping_ = false;
  void (*job_)(void*, int) = nullptr;
  void* context_ = nullptr;
  std::exception_ptr error_;
};

std::mutex pool_mutex;  // one parallel region at a time; a second caller runs its work alone
std::unique_ptr<Pool> pool;
std::atomic<int> wanted_threads{0};

Pool& current_pool() {
  const int threads = thread_count();
  if (!pool || pool->threads() != threads) {
    pool.reset();
    pool = std::make_unique<Pool>(threads);
  }
  return *pool;
}

// A forked child has none of its parent's threads: it starts its own pool at the first use.
[[maybe_unused]] const int fork_handler =
    pthread_atfork([] { pool_mutex.lock(); }, [] { pool_mutex.unlock(); },
                   [] {
                     static_cast<void>(pool.release());
                     pool_mutex.unlock();
                   });

}  // namespace

int thread_count() {
  const int threads = wanted_threads.load(std::memory_order_relaxed);  // nothing else depends on it
  if (threads > 0) return threads;
  const int chosen = default_threads();
  wanted_threads.store(chosen, std::memory_order_relaxed);
  return chosen;
}

void set_thread_count(int threads) {
  if (threads < 1 || threads > kMostThreads)
    fail<ValueError>("threads: {} (from 1 to {})", threads, kMostThreads);
  if (inside) fail<ValueError>("threads: the number was changed inside a parallel region");
  wanted_threads.store(threads, std::memory_order_relaxed);
}

bool in_parallel_region() {
  return inside;
}

void TeamBarrier::arrive_and_wait() {
  if (threads_ == 1) return;
  // Acquire, lest it be read after this thread has arrived: then it could be the next phase already, and the thread
  // would wait for one more.
  const int phase = phase_.load(std::memory_order_acquire);
  // Each arrival releases what its thread wrote, and the last one acquires all of it.
  if (arrived_.fetch_add(1, std::memory_order_acq_rel) == threads_ - 1) {
    // Comes before the new phase, a release, and so before the arrivals of threads that have acquired that.
    arrived_.store(0, std::memory_order_relaxed);
    phase_.store(phase + 1, std::memory_order_release);  // and with it what all threads wrote before
    phase_.notify_all();
    return;
  }
  // Team members wait for each other thousands of times a second: spin longer than idle workers do.
  for (int spin = 0; spin < 20 * kSpins; ++spin) {
    if (phase_.load(std::memory_order_acquire) != phase) return;
    pause_briefly();
  }
  while (phase_.load(std::memory_order_acquire) == phase) phase_.wait(phase, std::memory_order_acquire);
}

namespace detail {

void parallel_chunks(std::int64_t n, std::int64_t grain, ChunkFunction function, void* context) {
  if (grain < 1) grain = 1;
  const std::int64_t chunks = (n + grain - 1) / grain;
  const auto alone = [&] {
    for (std::int64_t begin = 0; begin < n; begin += grain)
      function(context, begin, begin + grain < n ? begin + grain : n);
  };
  if (inside || chunks == 1 || thread_count() == 1) return alone();
  std::unique_lock lock(pool_mutex, std::try_to_lock);
  if (!lock) return alone();
  std::atomic<std::int64_t> next{0};
  current_pool().run([&](int) {
    for (;;) {
      const std::int64_t chunk = next.fetch_add(1, std::memory_order_relaxed);  // each number once, no more
      if (chunk >= chunks) return;
      const std::int64_t begin = chunk * grain;
      function(context, begin, begin + grain < n ? begin + grain : n);
    }
  });
}

void parallel_team(int max_threads, TeamFunction function, void* context) {
  std::unique_lock<std::mutex> lock(pool_mutex, std::defer_lock);
  const int size = max_threads < thread_count() ? max_threads : thread_count();
  if (inside || size <= 1 || !lock.try_lock()) {
    TeamBarrier barrier(1);
    function(context, 0, 1, barrier);
    return;
  }
  TeamBarrier barrier(size);
  current_pool().run([&](int rank) {
    if (rank < size) function(context, rank, size, barrier);
  });
}

}  // namespace detail
}  // namespace eddy
