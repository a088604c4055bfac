#include "tests/ptx/interpreter/access.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

namespace ptx {
namespace {

enum class Access { load, store, atomic };
constexpr const char* kNames[] = {"a load", "a store", "an atomic operation"};

struct Place {
  unsigned char* bytes;
  GlobalMemory::Range* range = nullptr;  // of global memory
  std::size_t at = 0;                    // in the range
};

std::uint64_t address_of(Warp& warp, const Instruction& instruction, int lane, std::size_t operand = 0) {
  const auto offset = static_cast<std::uint64_t>(instruction.offset);
  if (!instruction.wide_address)
    return static_cast<std::uint32_t>(warp.at<std::uint32_t>(instruction.from[operand])[lane] + offset);
  return warp.at<std::uint64_t>(instruction.from[operand])[lane] + offset;
}

[[noreturn]] void out_of_bounds(const Warp& warp, int lane, Access access, int bytes,
                                const std::string& where) {
  fail(warp, lane,
       fmt::format("{} of {} bytes at {}: out of bounds", kNames[static_cast<int>(access)], bytes, where));
}

// Another block's write is visible once its release was acquired.
void check_published(const Warp& warp, int lane, const GlobalMemory::Stamp& stamp, std::uint64_t address) {
  if (stamp.writer == 0) return;
  const std::uint32_t writer = stamp.writer - 1;
  const Block& block = *warp.block;
  if (writer == static_cast<std::uint32_t>(block.index) ||
      (block.clock.size() > writer && block.clock[writer] >= stamp.release))
    return;
  fail(warp, lane,
       fmt::format("{} is touched after block {} wrote it, and no barrier of the grid stands between",
                   block.grid->memory.describe(address), writer));
}

Place global_place(Warp& warp, int lane, std::uint64_t address, int bytes, Access access, Type type) {
  GlobalMemory& memory = warp.block->grid->memory;
  GlobalMemory::Range* const range = memory.find(address, static_cast<std::size_t>(bytes));
  if (range == nullptr) out_of_bounds(warp, lane, access, bytes, memory.describe(address));
  if ((warp.waited >> lane & 1) == 0) {
    if (access != Access::load)
      fail(warp, lane, fmt::format("{} before griddepcontrol.wait", kNames[static_cast<int>(access)]));
    if (memory.written_ahead(address, static_cast<std::size_t>(bytes)))
      fail(warp, lane,
           fmt::format("{} is read before griddepcontrol.wait, and the launch ahead wrote it",
                       memory.describe(address)));
  }
  const std::size_t at = address - range->start;
  if (access != Access::atomic && bytes > 1) {
    const std::size_t last = (at + static_cast<std::size_t>(bytes) - 1) / 2;
    check_published(warp, lane, range->stamps[at / 2], address);
    check_published(warp, lane, range->stamps[last], address);
    if (access == Access::store) {
      const Block& block = *warp.block;
      const std::uint32_t release =
          block.clock.empty() ? 1 : block.clock[static_cast<std::size_t>(block.index)];
      const GlobalMemory::Stamp stamp{static_cast<std::uint32_t>(block.index) + 1, release & 0xffffff,
                                      static_cast<std::uint32_t>(type)};
      std::fill(range->stamps.begin() + static_cast<std::ptrdiff_t>(at / 2),
                range->stamps.begin() + static_cast<std::ptrdiff_t>(last) + 1, stamp);
    }
  }
  return {range->bytes.data() + at, range, at};
}

// Checks an access of one lane, and returns where its bytes are.
Place place_of(Warp& warp, int lane, Space space, std::uint64_t address, int bytes, Access access,
               Type type) {
  Block& block = *warp.block;
  if (space == Space::generic) {
    const std::uint64_t window = address & kWindowMask;
    space = window == kSharedWindow  ? Space::shared
            : window == kLocalWindow ? Space::local
            : window == kParamWindow ? Space::param
                                     : Space::global;
    if (space != Space::global) address &= ~kWindowMask;
  }
  if (address % static_cast<unsigned>(bytes) != 0)
    fail(warp, lane,
         fmt::format("{} of {} bytes at {:x}: misaligned", kNames[static_cast<int>(access)], bytes, address));
  switch (space) {
    case Space::shared:
      if (access == Access::load)
        block.shared.read(warp, lane, address, bytes);
      else if (access == Access::store)
        block.shared.write(warp, lane, address, bytes);
      else
        block.shared.update(warp, lane, address, bytes);
      return {block.shared.at(address)};
    case Space::local: {
      const auto size = static_cast<std::uint64_t>(block.grid->program.local_bytes);
      if (address > size || static_cast<std::uint64_t>(bytes) > size - address)
        out_of_bounds(warp, lane, access, bytes, fmt::format("byte {} of {} of local memory", address, size));
      return {block.local.data() + static_cast<std::uint64_t>(warp.thread(lane)) * size + address};
    }
    case Space::param: {
      const std::uint64_t size = block.grid->parameters.size();
      if (access != Access::load || address > size || static_cast<std::uint64_t>(bytes) > size - address)
        out_of_bounds(warp, lane, access, bytes,
                      fmt::format("byte {} of {} of the arguments", address, size));
      return {block.grid->parameters.data() + address};
    }
    default:
      return global_place(warp, lane, address, bytes, access, type);
  }
}

template <class Memory, class Register>
void load(Warp& warp, const Instruction& instruction, Mask mask) {
  const std::size_t count = instruction.to.size();
  each_lane(mask, [&](int lane) {
    const std::uint64_t address = address_of(warp, instruction, lane);
    const Place place = place_of(warp, lane, instruction.space, address,
                                 static_cast<int>(count * sizeof(Memory)), Access::load, instruction.type);
    if (instruction.option == kAcquires) {
      std::vector<std::uint32_t>& seen = warp.block->clock;
      const auto released = warp.block->grid->memory.released.find(address);
      if (released != warp.block->grid->memory.released.end())
        for (std::size_t i = 0; i < seen.size(); ++i) seen[i] = std::max(seen[i], released->second[i]);
    }
    for (std::size_t i = 0; i < count; ++i) {
      Memory value;
      std::memcpy(&value, place.bytes + i * sizeof(Memory), sizeof value);
      if (instruction.to[i] >= 0) warp.at<Register>(instruction.to[i])[lane] = static_cast<Register>(value);
    }
  });
}

template <class Memory, class Register>
void store(Warp& warp, const Instruction& instruction, Mask mask) {
  const std::size_t count = instruction.from.size() - 1;
  each_lane(mask, [&](int lane) {
    const Place place = place_of(warp, lane, instruction.space, address_of(warp, instruction, lane),
                                 static_cast<int>(count * sizeof(Memory)), Access::store, instruction.type);
    for (std::size_t i = 0; i < count; ++i) {
      const auto value = static_cast<Memory>(warp.at<Register>(instruction.from[i + 1])[lane]);
      std::memcpy(place.bytes + i * sizeof(Memory), &value, sizeof value);
    }
  });
}

template <class T>
void atomic_add(Warp& warp, const Instruction& instruction, Mask mask) {
  each_lane(mask, [&](int lane) {
    const std::uint64_t address = address_of(warp, instruction, lane);
    const Place place =
        place_of(warp, lane, instruction.space, address, sizeof(T), Access::atomic, instruction.type);
    T value;
    std::memcpy(&value, place.bytes, sizeof value);
    const T sum = value + warp.at<T>(instruction.from[1])[lane];
    std::memcpy(place.bytes, &sum, sizeof sum);
    if (!instruction.to.empty()) warp.at<T>(instruction.to[0])[lane] = value;
    Block& block = *warp.block;
    if (instruction.option == kReleases && !block.clock.empty()) {
      std::vector<std::uint32_t>& left = block.grid->memory.released[address];
      left.resize(block.clock.size());
      for (std::size_t i = 0; i < left.size(); ++i) left[i] = std::max(left[i], block.clock[i]);
      ++block.clock[static_cast<std::size_t>(block.index)];
    }
  });
}

// f(Memory{}, Register{}) for the types of memory and register.
template <class F>
Run with_types(Type memory, Type in_register, F&& f) {
  const auto with_register = [&](auto value) -> Run {
    switch (bytes_of(in_register)) {
      case 2:
        return f(value, std::uint16_t{});
      case 4:
        return f(value, std::uint32_t{});
      default:
        return f(value, std::uint64_t{});
    }
  };
  switch (memory) {
    case Type::u8:
      return with_register(std::uint8_t{});
    case Type::s8:
      return with_register(std::int8_t{});
    case Type::u16:
      return with_register(std::uint16_t{});
    case Type::s16:
      return with_register(std::int16_t{});
    case Type::s32:
      return with_register(std::int32_t{});
    case Type::u32:
    case Type::f32:
      return with_register(std::uint32_t{});
    case Type::pred:
      throw Fault("predicates have no place in memory");
    default:
      return with_register(std::uint64_t{});
  }
}

}  // namespace

Run run_of_load(Type memory, Type in_register) {
  return with_types(memory, in_register, [](auto of_memory, auto of_register) -> Run {
    return &load<decltype(of_memory), decltype(of_register)>;
  });
}

Run run_of_store(Type memory, Type in_register) {
  return with_types(memory, in_register, [](auto of_memory, auto of_register) -> Run {
    return &store<decltype(of_memory), decltype(of_register)>;
  });
}

Run run_of_atomic_add(Type type) {
  if (type == Type::u32 || type == Type::s32) return &atomic_add<std::uint32_t>;
  if (type == Type::u64) return &atomic_add<std::uint64_t>;
  throw Fault("atomic operations other than sums of integers are unknown");
}

void copy_async(Warp& warp, const Instruction& instruction, Mask mask) {
  const std::uint32_t* const to = warp.at<std::uint32_t>(instruction.from[0]);
  const std::uint64_t* const source = warp.at<std::uint64_t>(instruction.from[1]);
  const std::uint32_t* const size = warp.at<std::uint32_t>(instruction.from[2]);
  each_lane(mask, [&](int lane) {
    Copy copy{lane, to[lane] + static_cast<std::uint64_t>(instruction.offset), {}};
    if (size[lane] > 16) fail(warp, lane, "cp.async of more than 16 bytes");
    const std::uint64_t address = source[lane] + static_cast<std::uint64_t>(instruction.option);
    if (address % 16 != 0 && size[lane] > 0)
      fail(warp, lane, fmt::format("cp.async from {:x}: misaligned", address));
    for (std::uint32_t i = 0; i + 2 <= size[lane]; i += 2) {
      const Place place = place_of(warp, lane, Space::global, address + i, 2, Access::load, Type::u16);
      std::memcpy(copy.bytes + i, place.bytes, 2);
    }
    warp.block->shared.begin_copy(warp, lane, copy.to);
    warp.copies.push_back(copy);
  });
}

const unsigned char* read_global(Warp& warp, int lane, std::uint64_t address, int bytes) {
  return global_place(warp, lane, address, bytes, Access::load, Type::u16).bytes;
}

void wait_for_launch_ahead(Warp& warp, const Instruction&, Mask mask) {
  warp.waited |= mask;
}

void begin_next_launch(Warp& warp, const Instruction&, Mask mask) {
  each_lane(mask & ~warp.waited, [&](int lane) {
    fail(warp, lane,
         "the next launch may begin before griddepcontrol.wait, when the launch ahead has not ended");
  });
}

void wait_for_copies(Warp& warp, const Instruction&, Mask mask) {
  std::erase_if(warp.copies, [&](const Copy& copy) {
    if ((mask >> copy.lane & 1) == 0) return false;
    std::memcpy(warp.block->shared.at(copy.to), copy.bytes, sizeof copy.bytes);
    warp.block->shared.arrive(warp, copy.lane, copy.to);
    return true;
  });
}

}  // namespace ptx
