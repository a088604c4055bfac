// The pool of the GPU's allocator on memory that does not exist: addresses are numbers, nobody reads them.
#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "cuda/runtime/pool.h"
#include "tensor/base/error.h"
#include "tensor/random/philox.h"
#include "tests/support/errors.h"
#include "tests/support/failing_new.h"

using namespace eddy;
using namespace eddy::test;
using cuda::Pool;

namespace {

// Hands out addresses until `capacity` bytes are out.
class FakeMemory final : public cuda::RawMemory {
 public:
  explicit FakeMemory(std::size_t capacity) : capacity_(capacity) {}
  void* take(std::size_t bytes) override {
    if (used + bytes > capacity_) return nullptr;
    char* const address = reinterpret_cast<char*>(next_);
    segments[address] = bytes;
    used += bytes;
    ++calls;
    next_ += bytes;  // segments touch: the pool must not join blocks of two
    return address;
  }
  void give_back(void* memory, std::size_t bytes) noexcept override {
    used -= bytes;
    segments.erase(static_cast<char*>(memory));
  }
  std::string name() const override { return "fake:0"; }
  std::string describe() const override { return "it is made up"; }

  std::size_t used = 0;
  int calls = 0;
  std::map<char*, std::size_t> segments;

 private:
  std::size_t capacity_;
  std::uintptr_t next_ = std::uintptr_t{1} << 40;
};

constexpr std::size_t kKiB = 1024, kMiB = 1024 * 1024;

}  // namespace

TEST_CASE("the pool of a GPU gives aligned blocks and reuses what comes back") {
  FakeMemory memory(1024 * kMiB);
  Pool pool(memory);
  CHECK(pool.allocate(0) == nullptr);
  void* const a = pool.allocate(1);
  CHECK(reinterpret_cast<std::uintptr_t>(a) % Pool::kUnit == 0);
  CHECK(pool.stats().live_bytes == 512);
  CHECK(pool.stats().reserved_bytes == static_cast<std::int64_t>(Pool::kSmallSegment));
  pool.deallocate(a);
  CHECK(pool.stats().live_bytes == 0);
  CHECK(pool.allocate(100) == a);
  CHECK(memory.calls == 1);
  pool.deallocate(nullptr);
}

TEST_CASE("small and large requests come from segments of their own") {
  FakeMemory memory(1024 * kMiB);
  Pool pool(memory);
  pool.allocate(4 * kKiB);
  pool.allocate(512 * kKiB);
  CHECK(memory.used == Pool::kSmallSegment);
  pool.allocate(512 * kKiB + 1);
  CHECK(memory.used == Pool::kSmallSegment + Pool::kLargeSegment);
  pool.allocate(100 * kMiB + 1);
  CHECK(memory.used == Pool::kSmallSegment + Pool::kLargeSegment + 102 * kMiB);
}

TEST_CASE("the smallest free block that fits is split and joined again") {
  FakeMemory memory(1024 * kMiB);
  Pool pool(memory);
  void* const a = pool.allocate(10 * kMiB);
  void* const b = pool.allocate(4 * kMiB);
  void* const c = pool.allocate(10 * kMiB);
  CHECK(memory.calls == 1);
  CHECK(pool.largest_free() == 8 * kMiB);
  pool.deallocate(b);
  CHECK(pool.allocate(3 * kMiB) == b);  // into the gap of 4 and not into the 8 behind
  CHECK(pool.largest_free() == 8 * kMiB);
  pool.deallocate(b);
  pool.deallocate(a);
  CHECK(pool.largest_free() == 14 * kMiB);
  pool.deallocate(c);
  CHECK(pool.largest_free() == Pool::kLargeSegment);
  CHECK(pool.stats().live_bytes == 0);
}

TEST_CASE("blocks of two segments are never joined though their addresses touch") {
  FakeMemory memory(1024 * kMiB);
  Pool pool(memory);
  void* const a = pool.allocate(Pool::kLargeSegment);
  void* const b = pool.allocate(Pool::kLargeSegment);
  CHECK(static_cast<char*>(b) == static_cast<char*>(a) + Pool::kLargeSegment);
  pool.deallocate(a);
  pool.deallocate(b);
  CHECK(pool.largest_free() == Pool::kLargeSegment);
  pool.trim();
  CHECK(memory.used == 0);
  CHECK(pool.stats().reserved_bytes == 0);
}

TEST_CASE("the pool gives back unused segments and tries again before it fails") {
  FakeMemory memory(100 * kMiB);
  Pool pool(memory);
  void* const cached = pool.allocate(60 * kMiB);
  void* const kept = pool.allocate(4 * kKiB);
  pool.deallocate(cached);
  void* const other = pool.allocate(80 * kMiB);  // needs the 60 back
  CHECK(other != nullptr);
  CHECK(memory.used == Pool::kSmallSegment + 80 * kMiB);
  pool.deallocate(other);
  pool.deallocate(kept);
}

TEST_CASE("a segment shrinks to the request when the device has no room for a whole one") {
  FakeMemory memory(10 * kMiB);
  Pool pool(memory);
  CHECK(pool.allocate(5 * kMiB) != nullptr);
  CHECK(memory.used == 6 * kMiB);
}

TEST_CASE("a request that fails says what was requested and what would help") {
  FakeMemory memory(64 * kMiB);
  Pool pool(memory);
  void* const a = pool.allocate(40 * kMiB);
  void* const b = pool.allocate(3 * kMiB);
  pool.deallocate(a);
  const void* const c = pool.allocate(30 * kMiB);
  CHECK(c != nullptr);
  pool.deallocate(b);
  const std::string text = test::error_of<OutOfMemoryError>([&] { pool.allocate(50 * kMiB); });
  for (const char* part : {"52428800 bytes", "fake:0", "live 31457280", "peak 45088768", "largest free block",
                           "limit none", "it is made up", "train.batch", "train.accumulate", "checkpointing"})
    CHECK_MESSAGE(text.find(part) != std::string::npos, text);
  CHECK_THROWS_AS(pool.allocate(std::size_t{1} << 60), OutOfMemoryError);
}

TEST_CASE("the limit of a pool counts live bytes") {
  FakeMemory memory(1024 * kMiB);
  Pool pool(memory);
  pool.set_limit(static_cast<std::int64_t>(kMiB));
  void* const a = pool.allocate(600 * kKiB);
  CHECK_THROWS_AS(pool.allocate(600 * kKiB), OutOfMemoryError);
  pool.deallocate(a);
  CHECK_NOTHROW(pool.allocate(600 * kKiB));
  pool.set_limit(0);
  CHECK_NOTHROW(pool.allocate(600 * kKiB));
}

TEST_CASE("a pool knows its own blocks and keeps its segments while that is on") {
  FakeMemory memory(std::size_t{1} << 30);
  Pool pool(memory), other(memory);
  void* const block = pool.allocate(600 * kKiB);
  CHECK(!other.deallocate(block));
  CHECK(!pool.deallocate(nullptr));
  pool.keep_segments(true);
  CHECK(pool.deallocate(block));
  CHECK(!pool.deallocate(block));
  pool.trim();
  CHECK(memory.segments.size() == 1);
  CHECK(pool.allocate(600 * kKiB) == block);
  CHECK(pool.deallocate(block));
  pool.keep_segments(false);
  pool.trim();
  CHECK(memory.segments.empty());
}

TEST_CASE("live blocks never overlap and the counts come out even over random use") {
  FakeMemory memory(std::size_t{8} << 30);
  Pool pool(memory);
  const RandomKey key = random_key(1, "pool", 0);
  std::map<char*, std::size_t> live;
  std::uint64_t draw = 0;
  for (int step = 0; step < 20000; ++step) {
    const std::uint32_t word = key.word(draw++);
    if (live.size() < 5 || (word % 100 < 52 && live.size() < 300)) {
      // Sizes from a byte to 16 MiB, evenly by their logarithm.
      const std::size_t power = key.word(draw++) % 25, extra = key.word(draw++) % 1000;
      const std::size_t bytes = (std::size_t{1} << power) + extra;
      char* const block = static_cast<char*>(pool.allocate(bytes));
      const auto after = live.lower_bound(block);
      REQUIRE((after == live.end() || block + bytes <= after->first));
      REQUIRE((after == live.begin() || std::prev(after)->first + std::prev(after)->second <= block));
      const auto segment = std::prev(memory.segments.upper_bound(block));
      REQUIRE(block + bytes <= segment->first + segment->second);
      live[block] = bytes;
    } else {
      auto chosen = live.begin();
      std::advance(chosen, key.word(draw++) % live.size());
      pool.deallocate(chosen->first);
      live.erase(chosen);
    }
    if (step % 5000 == 4999) pool.trim();
  }
  for (const auto& [block, bytes] : live) pool.deallocate(block);
  CHECK(pool.stats().live_bytes == 0);
  pool.trim();
  CHECK(memory.used == 0);
  CHECK(pool.stats().reserved_bytes == 0);
}

TEST_CASE("a pool stays whole where the host has no memory for its books") {
  FakeMemory raw(std::size_t{1} << 30);
  {
    Pool pool(raw);
    void* memory = nullptr;
    const auto nothing_is_held = [&] {
      CHECK(pool.stats().live_bytes == 0);
      pool.trim();
      CHECK(pool.segments() == 0);
      CHECK(pool.stats().reserved_bytes == 0);
      CHECK(raw.used == 0);
    };
    CHECK(fail_each_allocation([&] { memory = pool.allocate(1000); }, nothing_is_held) > 2);
    CHECK(pool.deallocate(memory));
    nothing_is_held();

    // A segment that is there: only what is left of it has to be noted.
    void* const first = pool.allocate(1000);
    const auto one_is_held = [&] {
      CHECK(pool.stats().live_bytes == 1024);
      CHECK(pool.largest_free() == Pool::kSmallSegment - 1024);
    };
    CHECK(fail_each_allocation([&] { memory = pool.allocate(2000); }, one_is_held) > 0);
    CHECK(pool.deallocate(memory));
    one_is_held();
    CHECK(pool.deallocate(first));
    nothing_is_held();
  }
  CHECK(raw.used == 0);
}
