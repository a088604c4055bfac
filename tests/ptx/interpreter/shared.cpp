#include "tests/ptx/interpreter/shared.h"

#include <fmt/format.h>

#include <algorithm>

#include "tests/ptx/interpreter/machine.h"

namespace ptx {
void SharedMemory::start(std::size_t bytes) {
  bytes_.assign(bytes, 0xff);
  halves_.assign(bytes / 2 + 1, Half{});
  reads_.clear();
  warps_ = 0;
  epoch_ = 1;
}

std::size_t SharedMemory::check(const Warp& warp, int lane, std::uint64_t address, int bytes,
                                const char* what) const {
  const std::uint64_t at = address - kStart;
  if (at >= bytes_.size() || static_cast<std::size_t>(bytes) > bytes_.size() - at)
    fail(warp, lane,
         fmt::format("{} of {} bytes at byte {} of {} bytes of shared memory: out of bounds", what, bytes,
                     static_cast<std::int64_t>(at), bytes_.size()));
  if (address % static_cast<unsigned>(bytes) != 0)
    fail(warp, lane,
         fmt::format("{} of {} bytes at address {} of shared memory: misaligned", what, bytes, address));
  return at / 2;
}

void SharedMemory::check_still(const Warp& warp, int lane, std::uint64_t address, const Half& half) const {
  if (half.copying)
    fail(warp, lane,
         fmt::format("byte {} of shared memory is touched while a copy writes it: no wait before it",
                     address - kStart));
}

void SharedMemory::read(const Warp& warp, int lane, std::uint64_t address, int bytes) {
  const std::size_t first = check(warp, lane, address, bytes, "a load");
  const auto thread = static_cast<std::uint16_t>(warp.thread(lane));
  for (std::size_t i = first; i < first + static_cast<std::size_t>((bytes + 1) / 2); ++i) {
    Half& half = halves_[i];
    if (half.written == 0 || half.copying) {
      check_still(warp, lane, address, half);
      fail(warp, lane,
           fmt::format("byte {} of shared memory is read, and nobody wrote it", address - kStart));
    }
    if (half.box != 0) {
      if (!shows(warp, half))
        fail(
            warp, lane,
            fmt::format("byte {} of shared memory is read, and no wait for the phase of its copy came before",
                        address - kStart));
    } else if (half.written == epoch_ && half.writer != thread && !shows(warp, half)) {
      const bool own_warp = half.writer / kWarp == thread / kWarp;
      if (!own_warp || half.written_order == warp.order)
        fail(warp, lane,
             fmt::format(
                 "a race: byte {} of shared memory was written by thread {}, and no barrier stands between",
                 address - kStart, half.writer));
    }
    const bool own_warp = half.reader / kWarp == thread / kWarp;
    const bool fresh =
        half.read != epoch_ || (half.readers != kSeveral && own_warp && half.read_order != warp.order);
    if (fresh)
      half.readers = kOneThread;
    else if (half.reader != thread)
      half.readers = own_warp && half.readers <= kOneWarp ? kOneWarp : kSeveral;
    half.read = epoch_;
    half.reader = thread;
    half.read_order = warp.order;
    note_reader(warp, i);
  }
}

// Whether phases of mbarriers have shown a warp what was written here.
bool SharedMemory::shows(const Warp& warp, const Half& half) const {
  const std::size_t of = half.box != 0 ? warps_ + half.box - 1 : half.writer / std::size_t{kWarp};
  const std::uint64_t needed = half.box != 0 ? half.phase : half.written_order;
  return of < warp.seen.size() && warp.seen[of] >= needed;
}

void SharedMemory::note_reader(const Warp& warp, std::size_t half) {
  if (!reads_.empty()) reads_[half * warps_ + static_cast<std::size_t>(warp.index)] = {epoch_, warp.order};
}

void SharedMemory::remember_readers(std::size_t warps) {
  if (warps_ != 0) return;
  warps_ = warps;
  reads_.assign(halves_.size() * warps, Read{});
}

void SharedMemory::mark_written(const Warp& warp, int lane, Half& half, bool atomic) {
  half.written = epoch_;
  half.written_order = warp.order;
  half.writer = static_cast<std::uint16_t>(warp.thread(lane));
  half.published = false;
  half.atomic = atomic;
  half.box = 0;
}

void SharedMemory::write(const Warp& warp, int lane, std::uint64_t address, int bytes) {
  const std::size_t first = check(warp, lane, address, bytes, "a store");
  const int thread = warp.thread(lane);
  for (std::size_t i = first; i < first + static_cast<std::size_t>((bytes + 1) / 2); ++i) {
    Half& half = halves_[i];
    check_still(warp, lane, address, half);
    if (half.products > 0)
      fail(warp, lane,
           fmt::format("byte {} of shared memory is written while a product of a warpgroup reads it",
                       address - kStart));
    const auto race = [&](int other, const char* did) {
      fail(
          warp, lane,
          fmt::format("a race: byte {} of shared memory was {} by thread {}{}, and no barrier stands between",
                      address - kStart, did, other, half.readers == kSeveral ? " and others" : ""));
    };
    if (half.box != 0 ? !shows(warp, half)
                      : half.written == epoch_ && half.writer / kWarp != thread / kWarp && !shows(warp, half))
      race(half.writer, "written");
    for (std::size_t w = 0; w < warps_; ++w) {
      const Read& read = reads_[i * warps_ + w];
      const bool shown = w < warp.seen.size() && warp.seen[w] >= read.order;
      if (w != static_cast<std::size_t>(warp.index) && read.epoch == epoch_ && !shown)
        race(static_cast<int>(w) * kWarp, "read");
    }
    // Where readers are remembered, lanes of the own warp need bar.warp.sync, whoever else read.
    if (warps_ != 0) {
      const Read& own = reads_[i * warps_ + static_cast<std::size_t>(warp.index)];
      const bool alone = half.readers == kOneThread && half.reader == thread;
      if (own.epoch == epoch_ && own.order == warp.order && !alone) race(half.reader, "read");
    } else if (half.read == epoch_) {
      const bool other_warp = half.readers == kSeveral || half.reader / kWarp != thread / kWarp;
      const bool other_lane = half.readers == kOneWarp || half.reader != thread;
      if (other_warp || (other_lane && half.read_order == warp.order)) race(half.reader, "read");
    }
    mark_written(warp, lane, half, false);
  }
}

void SharedMemory::update(const Warp& warp, int lane, std::uint64_t address, int bytes) {
  const std::size_t first = check(warp, lane, address, bytes, "an atomic operation");
  for (std::size_t i = first; i < first + static_cast<std::size_t>((bytes + 1) / 2); ++i) {
    Half& half = halves_[i];
    check_still(warp, lane, address, half);
    if (half.written == 0)
      fail(warp, lane,
           fmt::format("byte {} of shared memory is read, and nobody wrote it", address - kStart));
    if (half.written == epoch_ && !half.atomic && half.writer != warp.thread(lane) &&
        (half.writer / kWarp != warp.index || half.written_order == warp.order))
      fail(warp, lane,
           fmt::format(
               "a race: byte {} of shared memory was written by thread {}, and no barrier stands between",
               address - kStart, half.writer));
    mark_written(warp, lane, half, true);
  }
}

void SharedMemory::begin_copy(const Warp& warp, int lane, std::uint64_t address) {
  write(warp, lane, address, 16);
  const std::size_t first = (address - kStart) / 2;
  for (std::size_t i = first; i < first + 8; ++i) halves_[i].copying = true;
}

void SharedMemory::arrive(const Warp& warp, int lane, std::uint64_t address) {
  const std::size_t first = (address - kStart) / 2;
  for (std::size_t i = first; i < first + 8; ++i) {
    halves_[i].copying = false;
    mark_written(warp, lane, halves_[i], false);
  }
}

void SharedMemory::begin_box(const Warp& warp, int lane, std::uint64_t address, std::size_t bytes) {
  for (std::uint64_t at = address; at < address + bytes; at += 16) begin_copy(warp, lane, at);
}

void SharedMemory::arrive_box(std::uint64_t address, std::span<const unsigned char> bytes,
                              std::size_t barrier, std::uint64_t phase) {
  std::copy(bytes.begin(), bytes.end(), at(address));
  const std::size_t first = (address - kStart) / 2;
  for (std::size_t i = first; i < first + bytes.size() / 2; ++i) {
    Half& half = halves_[i];
    half.copying = half.atomic = false;
    half.published = true;
    half.written = epoch_;
    half.box = static_cast<std::uint16_t>(barrier + 1);
    half.phase = phase;
  }
}

void SharedMemory::publish(const Warp& warp, Mask lanes) {
  for (Half& half : halves_)
    if (half.written != 0 && half.writer / kWarp == warp.index && (lanes >> half.writer % kWarp & 1) != 0)
      half.published = true;
}

void SharedMemory::check_ready(const Warp& warp, std::uint64_t address, const Half& half) const {
  if (!half.published)
    fail(warp, 0,
         fmt::format(
             "a product reads byte {} of shared memory, which thread {} wrote without fence.proxy.async",
             address - kStart, half.writer));
  if (half.written != epoch_ && half.box == 0) return;
  for (int i = 0; i < 4; ++i)  // each warp of the warpgroup
    if (!shows((&warp)[i], half))
      fail((&warp)[i], 0,
           fmt::format("a product reads byte {} of shared memory, and no barrier followed its write by {}",
                       address - kStart, half.box != 0 ? "a copy" : fmt::format("thread {}", half.writer)));
}

std::uint32_t SharedMemory::begin_product(const Warp& warp, std::uint64_t address) {
  const std::size_t index = check(warp, 0, address, 2, "a product's read");
  Half& half = halves_[index];
  check_still(warp, 0, address, half);
  // A product may read what nobody wrote, if nobody uses its sums: they are NaN.
  if (half.written != 0) check_ready(warp, address, half);
  ++half.products;
  return static_cast<std::uint32_t>(index);
}

void SharedMemory::end_product(const Warp& warp, std::span<const std::uint32_t> halves) {
  for (const std::uint32_t index : halves) {
    Half& half = halves_[index];
    --half.products;
    half.readers = kSeveral;  // each of the four warps read it, for all that another one knows
    half.reader = static_cast<std::uint16_t>(warp.thread(0));
    half.read = epoch_;
    half.read_order = warp.order;
    for (int i = 0; i < 4; ++i) note_reader((&warp)[i], index);
  }
}

}  // namespace ptx
