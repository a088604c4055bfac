// The caching allocator of the CPU: what it counts, that it hands out freed blocks again, and what it says
// when memory cannot be had.
#include "tensor/memory/allocator.h"

#include <doctest/doctest.h>

#include <cstdint>
#include <cstring>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "tensor/base/error.h"
#include "tensor/memory/recycled.h"
#include "tensor/tensor.h"
#include "tests/support/errors.h"

namespace {

using namespace eddy;
using namespace eddy::test;

Allocator& cpu() {
  return allocator(kCpu);
}

// A block that goes back at the end.
class Block {
 public:
  explicit Block(std::size_t bytes) : bytes_(bytes), data_(cpu().allocate(bytes)) {}
  ~Block() { cpu().deallocate(data_, bytes_); }
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;
  void* data() const { return data_; }

 private:
  std::size_t bytes_;
  void* data_;
};

struct Unlimited {
  ~Unlimited() { cpu().set_limit(0); }
};

std::string refusal(std::size_t bytes) {
  return error_of<OutOfMemoryError>([&] { const Block block(bytes); });
}

constexpr std::size_t kMiB = std::size_t{1} << 20;

}  // namespace

TEST_CASE("allocator: blocks of every size are aligned and wholly usable and do not overlap") {
  std::vector<std::pair<unsigned char*, std::size_t>> blocks;
  for (std::size_t bytes = 1; bytes < 8 * kMiB; bytes = bytes * 3 / 2 + 1) {
    auto* data = static_cast<unsigned char*>(cpu().allocate(bytes));
    REQUIRE(data != nullptr);
    CHECK(reinterpret_cast<std::uintptr_t>(data) % 64 == 0);
    std::memset(data, static_cast<int>(blocks.size()), bytes);
    blocks.emplace_back(data, bytes);
  }
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    const auto [data, bytes] = blocks[i];
    CHECK(data[0] == i);
    CHECK(data[bytes / 2] == i);
    CHECK(data[bytes - 1] == i);
    cpu().deallocate(data, bytes);
  }
}

TEST_CASE("allocator: live and peak bytes and calls are counted") {
  cpu().reset_peak();
  const AllocatorStats before = cpu().stats();
  CHECK(before.peak_bytes == before.live_bytes);
  {
    const Block a(1000), b(3 * kMiB);
    const AllocatorStats now = cpu().stats();
    const std::int64_t asked = 1000 + 3 * static_cast<std::int64_t>(kMiB);
    CHECK(now.live_bytes >= before.live_bytes + asked);
    CHECK(now.live_bytes <= before.live_bytes + asked + asked / 8);  // classes waste an eighth at most
    CHECK(now.peak_bytes == now.live_bytes);
    CHECK(now.reserved_bytes >= now.live_bytes - before.live_bytes);
    CHECK(now.allocations == before.allocations + 2);
  }
  const AllocatorStats after = cpu().stats();
  CHECK(after.live_bytes == before.live_bytes);
  CHECK(after.peak_bytes > before.peak_bytes);
  cpu().reset_peak();
  CHECK(cpu().stats().peak_bytes == before.live_bytes);
}

TEST_CASE("allocator: rounding up costs an eighth at most from 512 bytes on") {
  for (std::size_t bytes = 513; bytes < 4 * kMiB; bytes = bytes * 17 / 16 + 1) {
    CAPTURE(bytes);
    const std::int64_t before = cpu().stats().live_bytes;
    const Block block(bytes);
    const std::int64_t taken = cpu().stats().live_bytes - before;
    CHECK(taken >= static_cast<std::int64_t>(bytes));
    CHECK(taken <= static_cast<std::int64_t>(bytes + bytes / 8 + 64));
  }
}

TEST_CASE("allocator: a freed block is handed out again and takes nothing new from the system") {
  for (const std::size_t bytes : {std::size_t{100}, std::size_t{100'000}, 5 * kMiB}) {
    CAPTURE(bytes);
    void* first = nullptr;
    {
      const Block block(bytes);
      first = block.data();
    }
    const std::int64_t reserved = cpu().stats().reserved_bytes;
    const Block again(bytes - 1);  // of the same class
    CHECK(again.data() == first);
    CHECK(cpu().stats().reserved_bytes == reserved);
  }
}

TEST_CASE("allocator: no bytes need no memory") {
  const std::int64_t live = cpu().stats().live_bytes;
  CHECK(cpu().allocate(0) == nullptr);
  cpu().deallocate(nullptr, 0);
  CHECK(cpu().stats().live_bytes == live);
}

TEST_CASE("allocator: trim gives large cached blocks back to the system") {
  cpu().trim();
  const std::int64_t reserved = cpu().stats().reserved_bytes;
  { const Block block(40 * kMiB); }
  CHECK(cpu().stats().reserved_bytes >= reserved + 40 * static_cast<std::int64_t>(kMiB));
  cpu().trim();
  CHECK(cpu().stats().reserved_bytes == reserved);
  const Block again(40 * kMiB);
  std::memset(again.data(), 1, 40 * kMiB);  // mapped anew
}

TEST_CASE("allocator: a request over the limit says what was asked and what there is and what would help") {
  const Unlimited guard;
  { const Block cached(3 * kMiB); }
  const std::int64_t live = cpu().stats().live_bytes;
  cpu().set_limit(live + 1'000'000);
  const std::string text = refusal(2'000'000);
  for (const std::string& part :
       {std::string("2000000 bytes could not be had on cpu"), "live " + std::to_string(live),
        std::string("peak "), std::string("reserved "), std::string("largest free block "),
        "limit " + std::to_string(live + 1'000'000), std::string("train.batch")})
    CHECK_MESSAGE(contains(text, part), part << " in: " << text);
  CHECK(cpu().stats().live_bytes == live);
  CHECK(refusal(500'000).empty());  // what fits is still served
  cpu().set_limit(0);
  CHECK(refusal(2'000'000).empty());
}

TEST_CASE("allocator: requests beyond any machine are errors and leave everything as it was") {
  const AllocatorStats before = cpu().stats();
  for (const std::size_t bytes : {std::size_t{1} << 47, std::size_t{1} << 62, ~std::size_t{0}}) {
    CAPTURE(bytes);
    CHECK(contains(refusal(bytes), std::to_string(bytes) + " bytes could not be had"));
  }
  CHECK(cpu().stats().live_bytes == before.live_bytes);
  CHECK(cpu().stats().allocations == before.allocations);
  CHECK_THROWS_AS(Tensor::empty({std::int64_t{1} << 50}), OutOfMemoryError);
  CHECK_THROWS_AS(Tensor::empty({std::int64_t{1} << 40, std::int64_t{1} << 40}), OutOfMemoryError);
  CHECK(cpu().stats().live_bytes == before.live_bytes);
}

TEST_CASE("allocator: tensors give their memory back with the last handle") {
  const std::int64_t before = cpu().stats().live_bytes;
  {
    const Tensor x = Tensor::zeros({100, 100});
    const Tensor view = raw::narrow(x, 0, 10, 5);
    CHECK(cpu().stats().live_bytes >= before + 40'000);
  }
  CHECK(cpu().stats().live_bytes == before);
}

namespace {
struct Object {
  virtual ~Object() = default;
  std::int64_t value = 7;
};
}  // namespace

TEST_CASE("recycled: a new object begins anew in the memory of the last one") {
  Object* const first = new detail::Recycled<Object>;
  first->value = 8;
  [[maybe_unused]] const auto memory = reinterpret_cast<std::uintptr_t>(first);
  delete first;
  Object* const second = new detail::Recycled<Object>;
#if !defined(__SANITIZE_ADDRESS__)
  CHECK(reinterpret_cast<std::uintptr_t>(second) == memory);
#endif
  CHECK(second->value == 7);
  delete second;
}

TEST_CASE("recycled: objects of one thread can end on another, more of them than a thread keeps") {
  std::vector<Object*> objects;
  std::set<const Object*> places;
  for (int i = 0; i < 1000; ++i) {
    objects.push_back(new detail::Recycled<Object>);
    places.insert(objects.back());
  }
  CHECK(places.size() == 1000);
  std::thread([&] {
    for (const Object* object : objects) delete object;
  }).join();
  Object* const next = new detail::Recycled<Object>;
  CHECK(next->value == 7);
  delete next;
}

TEST_CASE("allocator: a device this build does not have is an error") {
  CHECK_THROWS_AS(allocator(Device{DeviceType::cuda, 0}), DeviceError);
}
