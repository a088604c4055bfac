#include "tests/ptx/interpreter/transactions.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "tests/emulation/tensor_map.h"
#include "tests/ptx/interpreter/access.h"

namespace ptx {
namespace {

using Seen = std::vector<std::uint64_t>;

void join(Seen& to, const Seen& from) {
  to.resize(std::max(to.size(), from.size()));
  for (std::size_t i = 0; i < from.size(); ++i) to[i] = std::max(to[i], from[i]);
}
void raise(Seen& to, std::size_t index, std::uint64_t value) {
  to.resize(std::max(to.size(), index + 1));
  to[index] = std::max(to[index], value);
}

std::uint64_t address_of(Warp& warp, const Instruction& instruction, int lane) {
  return static_cast<std::uint32_t>(warp.at<std::uint32_t>(instruction.from[0])[lane] + instruction.offset);
}

// The index of the mbarrier that a lane names, or as many as there are.
std::size_t index_at(Warp& warp, const Instruction& instruction, int lane) {
  const std::vector<Phases>& all = warp.block->barriers;
  const std::uint64_t address = address_of(warp, instruction, lane);
  return static_cast<std::size_t>(
      std::find_if(all.begin(), all.end(), [&](const Phases& one) { return one.address == address; }) -
      all.begin());
}

std::size_t checked_index(Warp& warp, const Instruction& instruction, int lane) {
  const std::size_t index = index_at(warp, instruction, lane);
  if (index == warp.block->barriers.size()) fail(warp, lane, "an mbarrier that nobody prepared");
  warp.block->shared.update(warp, lane, warp.block->barriers[index].address, 8);
  return index;
}

void end_phase(Phases& phases) {
  if (phases.missing > 0 || phases.bytes != 0) return;
  ++phases.over;
  phases.missing = phases.arrivals;
  phases.released = phases.arrived;
}

}  // namespace

void init_phases(Warp& warp, const Instruction& instruction, Mask mask) {
  Block& block = *warp.block;
  each_lane(mask, [&](int lane) {
    const std::int64_t arrivals = warp.at<std::uint32_t>(instruction.from[1])[lane];
    if (arrivals < 1 || arrivals >= 1 << 20) fail(warp, lane, "an mbarrier for no arrivals, or too many");
    const std::size_t index = index_at(warp, instruction, lane);
    if (index == block.barriers.size()) block.barriers.emplace_back();
    Phases& phases = block.barriers[index];
    phases = {};
    phases.address = address_of(warp, instruction, lane);
    phases.arrivals = phases.missing = arrivals;
    phases.thread = warp.thread(lane);
    block.shared.remember_readers(block.warps.size());
    block.shared.write(warp, lane, phases.address, 8);
  });
}

void publish_phases(Warp& warp, const Instruction&, Mask mask) {
  each_lane(mask, [&](int lane) {
    for (Phases& phases : warp.block->barriers) phases.published |= phases.thread == warp.thread(lane);
  });
}

void arrive_at_phase(Warp& warp, const Instruction& instruction, Mask mask) {
  each_lane(mask, [&](int lane) {
    Phases& phases = warp.block->barriers[checked_index(warp, instruction, lane)];
    if (phases.missing == 0) fail(warp, lane, "more arrivals at a phase than its mbarrier waits for");
    if (instruction.from.size() > 1) phases.bytes += warp.at<std::uint32_t>(instruction.from[1])[lane];
    join(phases.arrived, warp.seen);
    raise(phases.arrived, static_cast<std::size_t>(warp.index), warp.order - 1);
    --phases.missing;
    end_phase(phases);
  });
}

bool phase_is_over(Warp& warp, const Instruction& instruction) {
  const std::size_t index = index_at(warp, instruction, 0);
  for (int lane = 1; lane < kWarp; ++lane)
    if (index_at(warp, instruction, lane) != index) fail(warp, lane, "lanes wait for different mbarriers");
  if (index == warp.block->barriers.size()) fail(warp, 0, "an mbarrier that nobody prepared");
  return (warp.block->barriers[index].over & 1) != (warp.at<std::uint32_t>(instruction.from[1])[0] & 1);
}

void see_phase(Warp& warp, const Instruction& instruction, Mask mask) {
  const std::size_t index = checked_index(warp, instruction, 0);
  const Phases& phases = warp.block->barriers[index];
  join(warp.seen, phases.released);
  raise(warp.seen, warp.block->warps.size() + index, phases.over);
  each_lane(mask, [&](int lane) { warp.at<bool>(instruction.to[0])[lane] = true; });
}

void start_box(Warp& warp, const Instruction& instruction, Mask mask) {
  Block& block = *warp.block;
  each_lane(mask, [&](int lane) {
    BoxCopy copy;
    copy.barrier = checked_index(warp, instruction, lane);
    if (!block.barriers[copy.barrier].published)
      fail(warp, lane, "a copy counts at an mbarrier without fence.mbarrier_init");
    copy.to = warp.at<std::uint32_t>(instruction.from[1])[lane];
    emulation::EncodedMap map;
    const std::uint64_t place = warp.at<std::uint64_t>(instruction.from[2])[lane] & ~kWindowMask;
    const std::vector<unsigned char>& arguments = block.grid->parameters;
    if ((warp.at<std::uint64_t>(instruction.from[2])[lane] & kWindowMask) != kParamWindow ||
        place % 64 != 0 || place + sizeof map > arguments.size())
      fail(warp, lane, "a map of a tensor that is not 64 aligned bytes among the kernel's arguments");
    std::memcpy(&map, arguments.data() + place, sizeof map);
    if (map.magic != emulation::EncodedMap::kMagic) fail(warp, lane, "no map of a tensor");
    std::int32_t at[4];
    for (std::size_t i = 0; i < 4; ++i) at[i] = warp.at<std::int32_t>(instruction.from[3 + i])[lane];
    if (copy.to % 1024 != 0) fail(warp, lane, "a box that does not go to a multiple of 1,024 bytes");
    copy.bytes.resize(map.box_bytes());
    block.shared.begin_box(warp, lane, copy.to, copy.bytes.size());
    emulation::each_of_box(map, at, [&](std::uint32_t from_start, std::uint64_t address) {
      if (address == 0) return;
      std::memcpy(copy.bytes.data() + (emulation::swizzled(copy.to + from_start) - copy.to),
                  read_global(warp, lane, address, 2), 2);
    });
    block.boxes.push_back(std::move(copy));
  });
}

bool complete_box(Block& block, std::uint64_t which) {
  if (block.boxes.empty()) return false;
  const auto chosen = block.boxes.begin() + static_cast<std::ptrdiff_t>(which % block.boxes.size());
  const BoxCopy copy = std::move(*chosen);
  block.boxes.erase(chosen);
  Phases& phases = block.barriers[copy.barrier];
  block.shared.arrive_box(copy.to, copy.bytes, copy.barrier, phases.over + 1);
  phases.bytes -= static_cast<std::int64_t>(copy.bytes.size());
  end_phase(phases);
  return true;
}

void share_what_is_seen(Block& block) {
  Seen all;
  for (const Warp& warp : block.warps) join(all, warp.seen);
  for (Warp& warp : block.warps) warp.seen = all;
}

void check_no_transactions(Block& block) {
  Warp& first = block.warps[0];
  if (!block.boxes.empty()) fail(first, 0, "the block ends while copies of boxes are on their way");
  for (const Phases& phases : block.barriers)
    if (phases.bytes != 0)
      fail(first, 0,
           fmt::format("the block ends, and an mbarrier waits for {} bytes that no copy brings",
                       phases.bytes));
}

}  // namespace ptx
