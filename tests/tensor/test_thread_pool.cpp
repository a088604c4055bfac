// The thread pool: the same chunks with any number of threads, errors that come through, regions in regions,
// teams, and forked processes.
#include "tensor/threads/thread_pool.h"

#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tensor/base/error.h"
#include "tests/support/threads.h"

namespace {

using namespace eddy;
using namespace eddy::test;

using Chunk = std::pair<std::int64_t, std::int64_t>;

std::vector<Chunk> chunks_of(std::int64_t n, std::int64_t grain) {
  std::mutex mutex;
  std::vector<Chunk> chunks;
  parallel_for(n, grain, [&](std::int64_t begin, std::int64_t end) {
    const std::lock_guard lock(mutex);
    chunks.emplace_back(begin, end);
  });
  std::sort(chunks.begin(), chunks.end());
  return chunks;
}

// The sum of 0 .. n-1 by chunks of one.
std::int64_t sum_by_chunks(std::int64_t n) {
  std::atomic<std::int64_t> sum{0};
  parallel_for(n, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) sum += i;
  });
  return sum;
}

}  // namespace

TEST_CASE("parallel_for: the borders of chunks do not depend on the number of threads") {
  for (const Chunk& problem : {Chunk{1003, 17}, Chunk{16, 16}, Chunk{17, 16}, Chunk{5, 1}, Chunk{1, 100}}) {
    const auto [n, grain] = problem;
    CAPTURE(n);
    CAPTURE(grain);
    std::vector<Chunk> expected;
    for (std::int64_t begin = 0; begin < n; begin += grain)
      expected.emplace_back(begin, std::min(n, begin + grain));
    for (const int threads : {1, 2, 3, 7}) {
      CAPTURE(threads);
      const Threads set(threads);
      CHECK(chunks_of(n, grain) == expected);
    }
  }
}

TEST_CASE("parallel_for: nothing to do calls nothing") {
  const Threads set(2);
  for (const std::int64_t n : {0, -3}) CHECK(chunks_of(n, 4).empty());
}

TEST_CASE("parallel_for: a grain that is not positive counts as one") {
  const Threads set(2);
  for (const std::int64_t grain : {0, -5})
    CHECK(chunks_of(3, grain) == std::vector<Chunk>{{0, 1}, {1, 2}, {2, 3}});
}

TEST_CASE("parallel_for: an exception of a chunk comes to the caller and the pool goes on") {
  for (const int threads : {1, 2, 3}) {
    CAPTURE(threads);
    const Threads set(threads);
    for (int round = 0; round < 20; ++round) {
      std::string text;
      try {
        parallel_for(100, 1, [](std::int64_t begin, std::int64_t) {
          if (begin == 37) throw ValueError("chunk 37");
        });
      } catch (const ValueError& error) {
        text = error.what();
      }
      CHECK(text == "chunk 37");
      CHECK(!in_parallel_region());
      CHECK(sum_by_chunks(100) == 4950);
    }
  }
}

TEST_CASE("parallel_for: when all chunks throw one exception arrives") {
  const Threads set(3);
  CHECK_THROWS_AS(parallel_for(64, 1, [](std::int64_t, std::int64_t) { throw std::runtime_error("each"); }),
                  std::runtime_error);
  CHECK(sum_by_chunks(64) == 2016);
}

TEST_CASE("parallel_for: a region inside a region runs on its caller alone") {
  const Threads set(3);
  CHECK(!in_parallel_region());
  std::atomic<int> wrong{0}, inner{0};
  parallel_for(8, 1, [&](std::int64_t, std::int64_t) {
    if (!in_parallel_region()) ++wrong;
    const std::thread::id caller = std::this_thread::get_id();
    parallel_for(5, 1, [&](std::int64_t, std::int64_t) {
      ++inner;
      if (std::this_thread::get_id() != caller) ++wrong;
    });
    parallel_team(3, [&](int rank, int size, TeamBarrier& barrier) {
      barrier.arrive_and_wait();
      if (rank != 0 || size != 1) ++wrong;
    });
    if (!in_parallel_region()) ++wrong;
  });
  CHECK(wrong == 0);
  CHECK(inner == 40);
  CHECK(!in_parallel_region());
}

TEST_CASE("parallel_for: callers on two threads of their own both get their results") {
  const Threads set(2);
  std::atomic<int> wrong{0};
  const auto work = [&] {
    for (int i = 0; i < 200; ++i)
      if (sum_by_chunks(50) != 1225) ++wrong;
  };
  std::thread other(work);
  work();
  other.join();
  CHECK(wrong == 0);
}

TEST_CASE("parallel_for: thousands of small regions give the right sums") {
  const Threads set(2);
  std::int64_t total = 0;
  for (int i = 0; i < 3000; ++i) total += sum_by_chunks(4);
  CHECK(total == 3000 * 6);
}

TEST_CASE("parallel_for: the number of threads may change between regions") {
  const Threads set(1);
  for (int i = 0; i < 12; ++i) {
    set_thread_count(1 + i % 4);
    CHECK(thread_count() == 1 + i % 4);
    CHECK(sum_by_chunks(40) == 780);
  }
}

TEST_CASE("set_thread_count: numbers out of range and changes inside a region are refused") {
  const Threads set(2);
  for (const int wrong : {0, -1, 257}) {
    CAPTURE(wrong);
    CHECK_THROWS_AS(set_thread_count(wrong), ValueError);
  }
  CHECK(thread_count() == 2);
  std::atomic<int> refused{0};
  parallel_for(4, 1, [&](std::int64_t, std::int64_t) {
    try {
      set_thread_count(1);
    } catch (const ValueError&) {
      ++refused;
    }
  });
  CHECK(refused == 4);
  CHECK(thread_count() == 2);
}

TEST_CASE("parallel_team: every member runs once and at most as many as asked for") {
  const Threads set(3);
  for (const int wanted : {1, 2, 3, 100}) {
    CAPTURE(wanted);
    std::mutex mutex;
    std::set<int> ranks;
    std::set<int> sizes;
    std::set<std::thread::id> ids;
    int calls = 0;
    parallel_team(wanted, [&](int rank, int size, TeamBarrier& barrier) {
      barrier.arrive_and_wait();  // all run at the same time, so each has a thread of its own
      const std::lock_guard lock(mutex);
      ++calls;
      ranks.insert(rank);
      sizes.insert(size);
      ids.insert(std::this_thread::get_id());
    });
    const int size = std::min(wanted, 3);
    CHECK(calls == size);
    CHECK(sizes == std::set<int>{size});
    CHECK(ranks.size() == static_cast<std::size_t>(size));
    CHECK(*ranks.begin() == 0);
    CHECK(*ranks.rbegin() == size - 1);
    CHECK(ids.size() == static_cast<std::size_t>(size));
  }
}

TEST_CASE("parallel_team: what was written before the barrier is seen after it") {
  for (const int threads : {1, 2, 3}) {
    CAPTURE(threads);
    const Threads set(threads);
    std::vector<int> cells(3, 0);
    std::atomic<int> wrong{0};
    parallel_team(3, [&](int rank, int size, TeamBarrier& barrier) {
      for (int step = 1; step <= 300; ++step) {
        cells[static_cast<std::size_t>(rank)] = step;
        barrier.arrive_and_wait();
        for (int other = 0; other < size; ++other)
          if (cells[static_cast<std::size_t>(other)] != step) ++wrong;
        barrier.arrive_and_wait();
      }
    });
    CHECK(wrong == 0);
  }
}

TEST_CASE("thread pool: a forked process has a pool of its own") {
#if defined(__SANITIZE_THREAD__)
  MESSAGE("SKIPPED: the thread sanitizer allows no new threads in a child of a process with threads");
  return;
#endif
  const Threads set(3);
  CHECK(sum_by_chunks(100) == 4950);  // the parent's threads exist
  const pid_t pid = ::fork();
  if (pid == 0) {
    bool good = true;
    for (int i = 0; i < 10; ++i) good = good && sum_by_chunks(100) == 4950;
    set_thread_count(2);
    good = good && sum_by_chunks(100) == 4950;
    std::atomic<int> members{0};
    parallel_team(2, [&](int, int, TeamBarrier& barrier) {
      ++members;
      barrier.arrive_and_wait();
    });
    ::_exit(good && members == 2 ? 0 : 1);
  }
  REQUIRE(pid > 0);
  int status = 0;
  REQUIRE(::waitpid(pid, &status, 0) == pid);
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 0);
  CHECK(sum_by_chunks(100) == 4950);
}
