// Runs a grid: which warp is next, what waits for whom.
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <numeric>

#include "tests/ptx/interpreter/exchange.h"
#include "tests/ptx/interpreter/machine.h"
#include "tests/ptx/interpreter/transactions.h"

namespace ptx {
namespace {

constexpr int kWarpgroupWarps = 4;
constexpr int kMostIdleRounds = 100'000;

void push(Warp& warp, const Fragment& fragment) {
  if (fragment.lanes == 0) return;
  for (Fragment& other : warp.fragments) {
    const bool meet = other.pc == fragment.pc && other.state != State::at_barrier &&
                      other.state != State::at_warpgroup && other.state != State::at_phase &&
                      fragment.state == State::ready;
    if (!meet) continue;
    other.lanes |= fragment.lanes;
    other.state = State::ready;
    return;
  }
  warp.fragments.push_back(fragment);
}

// Whether another fragment should run before the one at pc, or is to become one with it.
bool must_stop(const Warp& warp, int pc) {
  for (const Fragment& other : warp.fragments)
    if ((other.state == State::ready && other.pc <= pc) || (other.state == State::at_warp && other.pc == pc))
      return true;
  return false;
}

class Runner {
 public:
  explicit Runner(Grid& grid) : grid_(grid), program_(grid.program) {}

  void start(Block& block, int index) {
    const Shape& shape = grid_.shape;
    block.grid = &grid_;
    block.index = index;
    block.shared.start(
        static_cast<std::size_t>((program_.static_shared + 15) / 16 * 16 + shape.shared_bytes));
    block.local.assign(static_cast<std::size_t>(program_.local_bytes * shape.threads), 0xff);
    block.clock.clear();
    if (shape.resident) {
      block.clock.assign(static_cast<std::size_t>(shape.blocks), 0);
      block.clock[static_cast<std::size_t>(index)] = 1;
    }
    const int warps = (shape.threads + kWarp - 1) / kWarp;
    block.warps.resize(static_cast<std::size_t>(warps));
    block.warpgroups.assign(static_cast<std::size_t>(warps / kWarpgroupWarps), {});
    block.barriers.clear();
    block.boxes.clear();
    for (int i = 0; i < warps; ++i) start(block.warps[static_cast<std::size_t>(i)], block, i);
  }

  // Runs what can run. Returns false when nothing is left. Sets `moved` when more happened than a look at what
  // another block may write.
  bool step(Block& block, bool& moved) {
    bool ran = false;
    const auto count = static_cast<int>(block.warps.size());
    const int first = static_cast<int>(grid_.random() % static_cast<unsigned>(count));
    for (int i = 0; i < count; ++i)
      ran |= run_warp(block.warps[static_cast<std::size_t>((first + i) % count)], moved);
    for (int i = 0; i + kWarpgroupWarps <= count; i += kWarpgroupWarps)
      ran |= run_warpgroup(block.warps[static_cast<std::size_t>(i)]);
    // Copies come at any time, at the latest when nothing else can go on.
    while (grid_.random() % 4 == 0 && complete_box(block, grid_.random())) {
    }
    bool waits = false;
    ran |= wake(block, waits);
    if (ran) return true;
    if (complete_box(block, grid_.random())) return moved = true;
    if (std::all_of(block.warps.begin(), block.warps.end(),
                    [](const Warp& w) { return w.fragments.empty(); }))
      return finish(block), false;
    if (waits) fail_at_phase(block);
    release_barrier(block);
    moved = true;
    return true;
  }

 private:
  void start(Warp& warp, Block& block, int index) {
    warp.block = &block;
    warp.index = index;
    warp.registers.resize(program_.registers);
    std::copy(program_.constants.begin(), program_.constants.end(),
              warp.registers.end() - static_cast<std::ptrdiff_t>(program_.constants.size()));
    const int threads = std::min(kWarp, grid_.shape.threads - index * kWarp);
    warp.fragments.assign(1, {0, threads == kWarp ? kAllLanes : (Mask{1} << threads) - 1, State::ready});
    warp.copies.clear();
    warp.waited = grid_.shape.dependent ? 0 : kAllLanes;
    warp.order = 1;
    warp.seen.clear();
    warp.tick = warp.fenced = 0;
    if (program_.watches_registers) {
      warp.written.assign(program_.registers / 32, 0);
      warp.flying.assign(program_.registers / 32, 0);
    }
    for (const auto& [name, place] : program_.special)
      for (int lane = 0; lane < kWarp; ++lane)
        warp.at<std::uint32_t>(place)[lane] = special(name, warp, lane);
    for (const auto& [name, place] : program_.addresses)
      std::fill_n(warp.at<std::uint64_t>(place), kWarp, grid_.variables.at(name));
  }

  std::uint32_t special(const std::string& name, const Warp& warp, int lane) const {
    const auto bit = std::uint32_t{1} << lane;
    if (name == "%tid.x") return static_cast<std::uint32_t>(warp.thread(lane));
    if (name == "%ntid.x") return static_cast<std::uint32_t>(grid_.shape.threads);
    if (name == "%ctaid.x") return static_cast<std::uint32_t>(warp.block->index);
    if (name == "%nctaid.x") return static_cast<std::uint32_t>(grid_.shape.blocks);
    if (name == "%laneid") return static_cast<std::uint32_t>(lane);
    if (name == "%warpid") return static_cast<std::uint32_t>(warp.index);
    if (name == "%lanemask_eq") return bit;
    if (name == "%lanemask_lt") return bit - 1;
    if (name == "%lanemask_le") return (bit - 1) | bit;
    if (name == "%lanemask_gt") return ~((bit - 1) | bit);
    if (name == "%lanemask_ge") return ~(bit - 1);
    return name.starts_with("%n") ? 1 : 0;  // the other two dimensions
  }

  // Returns whether anything ran.
  bool run_warp(Warp& warp, bool& moved) {
    bool ran = false;
    for (;;) {
      int next = -1;
      for (std::size_t i = 0; i < warp.fragments.size(); ++i) {
        const Fragment& fragment = warp.fragments[i];
        if (fragment.state != State::ready) continue;
        if (next < 0 || fragment.pc < warp.fragments[static_cast<std::size_t>(next)].pc)
          next = static_cast<int>(i);
      }
      if (next < 0) return ran;
      const Fragment fragment = warp.fragments[static_cast<std::size_t>(next)];
      warp.fragments.erase(warp.fragments.begin() + next);
      ran = true;
      if (!run_fragment(warp, fragment)) return true;
      moved = true;
    }
  }

  // Runs until the lanes part, wait or end. Returns false where other warps should run next.
  bool run_fragment(Warp& warp, Fragment now) {
    for (;;) {
      if (!warp.fragments.empty() && must_stop(warp, now.pc)) return push(warp, now), true;
      const Instruction& instruction = program_.code[static_cast<std::size_t>(now.pc)];
      warp.pc = now.pc;
      Mask mask = now.lanes;
      if (instruction.guard >= 0) {
        const Mask set = lanes_of(warp, instruction.guard);
        mask &= instruction.negated ? ~set : set;
      }
      grid_.instructions += static_cast<unsigned>(std::popcount(now.lanes));
      grid_.reached[static_cast<std::size_t>(now.pc)] |= mask != 0;
      if (program_.watches_registers) watch_registers(warp, instruction);
      switch (instruction.kind) {
        case Kind::lanes:
          if (mask != 0) instruction.run(warp, instruction, mask);
          ++now.pc;
          break;
        case Kind::branch: {
          if (grid_.instructions > grid_.most_instructions) fail(warp, 0, "the launch does not end");
          const Mask rest = now.lanes & ~mask;
          if (rest != 0 && mask != 0) {
            push(warp, {instruction.target, mask, State::ready});
            push(warp, {now.pc + 1, rest, State::ready});
            return true;
          }
          now.pc = mask != 0 ? instruction.target : now.pc + 1;
          break;
        }
        case Kind::warp:
          if (now.lanes != kAllLanes || mask != kAllLanes) {
            now.state = State::at_warp;
            return push(warp, now), true;
          }
          instruction.run(warp, instruction, mask);
          ++now.pc;
          break;
        case Kind::phase:
          if (mask != kAllLanes) fail(warp, 0, "a wait for a phase that only some lanes of a warp take");
          if (!phase_is_over(warp, instruction)) {
            now.state = State::at_phase;
            return push(warp, now), true;
          }
          instruction.run(warp, instruction, mask);
          ++now.pc;
          break;
        case Kind::acquire:
          if (mask != 0) instruction.run(warp, instruction, mask);
          ++now.pc;
          return push(warp, now), false;
        case Kind::barrier:
        case Kind::warpgroup:
          if (mask != now.lanes) fail(warp, 0, "lanes skip an instruction that all must reach");
          now.state = instruction.kind == Kind::barrier ? State::at_barrier : State::at_warpgroup;
          return push(warp, now), true;
        case Kind::exit:
          if (const Mask early = mask & ~warp.waited; early != 0)
            fail(warp, std::countr_zero(early),
                 "a thread of a dependent launch ends without griddepcontrol.wait");
          now.lanes &= ~mask;
          if (now.lanes == 0) return true;
          ++now.pc;
          break;
        case Kind::trap:
          if (mask != 0) fail(warp, std::countr_zero(mask), "a trap");
          ++now.pc;
          break;
      }
    }
  }

  bool run_warpgroup(Warp& first) {
    for (int i = 0; i < kWarpgroupWarps; ++i) {
      const Warp& warp = (&first)[i];
      if (warp.fragments.size() != 1) return false;
      const Fragment& fragment = warp.fragments[0];
      if (fragment.state != State::at_warpgroup || fragment.lanes != kAllLanes ||
          fragment.pc != first.fragments[0].pc)
        return false;
    }
    first.pc = first.fragments[0].pc;
    const Instruction& instruction = program_.code[static_cast<std::size_t>(first.pc)];
    instruction.run(first, instruction, kAllLanes);
    for (int i = 0; i < kWarpgroupWarps; ++i) {
      (&first)[i].fragments[0].state = State::ready;
      ++(&first)[i].fragments[0].pc;
    }
    return true;
  }

  // Lets warps go on whose phase is over. Returns whether there are some; `waits`: whether others wait on.
  bool wake(Block& block, bool& waits) {
    bool woke = false;
    if (block.barriers.empty()) return woke;
    for (Warp& warp : block.warps)
      for (Fragment& fragment : warp.fragments) {
        if (fragment.state != State::at_phase) continue;
        if (phase_is_over(warp, program_.code[static_cast<std::size_t>(fragment.pc)])) {
          fragment.state = State::ready;
          woke = true;
        } else {
          waits = true;
        }
      }
    return woke;
  }

  [[noreturn]] void fail_at_phase(Block& block) {
    for (Warp& warp : block.warps)
      for (const Fragment& fragment : warp.fragments) {
        if (fragment.state != State::at_phase) continue;
        warp.pc = fragment.pc;
        fail(warp, std::countr_zero(fragment.lanes), "the phase does not end: arrivals or bytes do not come");
      }
    throw Fault("nobody waits for a phase");
  }

  void release_barrier(Block& block) {
    int waiting = 0;
    Mask any = 0;
    const Instruction* at = nullptr;
    for (Warp& warp : block.warps)
      for (const Fragment& fragment : warp.fragments) {
        warp.pc = fragment.pc;
        const int lane = std::countr_zero(fragment.lanes);
        if (fragment.state == State::at_warp)
          fail(warp, lane, "divergence: an instruction of the whole warp, which other lanes do not reach");
        if (fragment.state == State::at_warpgroup)
          fail(warp, lane, "divergence: an instruction of a warpgroup, which other lanes do not reach");
        waiting += std::popcount(fragment.lanes);
        const Instruction& instruction = program_.code[static_cast<std::size_t>(fragment.pc)];
        if (instruction.to.empty()) continue;
        if (at != nullptr && at != &instruction)
          fail(warp, lane, "threads wait at different reducing barriers");
        at = &instruction;
        any |= lanes_of(warp, instruction.from[0]) & fragment.lanes;
      }
    for (Warp& warp : block.warps)
      if (waiting < grid_.shape.threads && !warp.fragments.empty()) {
        warp.pc = warp.fragments[0].pc;
        fail(warp, std::countr_zero(warp.fragments[0].lanes),
             fmt::format("{} of {} threads wait at a barrier, and the others have ended", waiting,
                         grid_.shape.threads));
      }
    for (Warp& warp : block.warps) {
      ++warp.order;
      for (Fragment& fragment : warp.fragments) {
        const Instruction& instruction = program_.code[static_cast<std::size_t>(fragment.pc)];
        for (const int place : instruction.to)
          each_lane(fragment.lanes, [&](int lane) { warp.at<bool>(place)[lane] = any != 0; });
        fragment.state = State::ready;
        ++fragment.pc;
      }
      // Lanes that waited at different places meet again where they can.
      std::vector<Fragment> released;
      released.swap(warp.fragments);
      for (const Fragment& fragment : released) push(warp, fragment);
    }
    block.shared.pass_barrier();
    share_what_is_seen(block);
  }

  void finish(Block& block) {
    check_no_transactions(block);
    for (Warp& warp : block.warps)
      if (!warp.copies.empty())
        fail(warp, warp.copies[0].lane, "ends with copies of cp.async that nobody waited for");
    for (std::size_t i = 0; i < block.warpgroups.size(); ++i)
      if (!block.warpgroups[i].committed.empty() || !block.warpgroups[i].open.sums.empty())
        fail(block.warps[i * kWarpgroupWarps], 0, "ends with products of a warpgroup that nobody waited for");
  }

  Grid& grid_;
  const Program& program_;
};

}  // namespace

Grid::Grid(const Program& of, GlobalMemory& with, const Shape& of_launch,
           std::span<const unsigned char> arguments)
    : program(of),
      memory(with),
      shape(of_launch),
      parameters(arguments.begin(), arguments.end()),
      reached(of.code.size()) {
  if (static_cast<std::int64_t>(parameters.size()) < program.parameter_bytes)
    throw Fault(fmt::format("{}: {} bytes of arguments, where compiled code reads {}", program.function->name,
                            parameters.size(), program.parameter_bytes));
  parameters.resize(static_cast<std::size_t>(program.parameter_bytes));
  std::uint64_t next = std::uint64_t{1} << 52;  // beyond every recorded address
  for (const Variable& variable : program.module->variables) {
    if (variable.space != Space::global || !program.addresses.contains(variable.name)) continue;
    std::vector<unsigned char> bytes = variable.values;
    bytes.resize(static_cast<std::size_t>(variable.bytes));
    memory.add(next, std::move(bytes));
    variables[variable.name] = next;
    next += static_cast<std::uint64_t>(variable.bytes + 4096) / 256 * 256;
  }
}

void Grid::run() {
  Runner runner(*this);
  bool moved = false;
  if (!shape.resident) {
    std::vector<int> order(static_cast<std::size_t>(shape.blocks));
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), random);
    Block block;
    for (const int index : order) {
      runner.start(block, index);
      while (runner.step(block, moved)) {
      }
    }
    return;
  }
  std::vector<Block> blocks(static_cast<std::size_t>(shape.blocks));
  std::vector<Block*> running;
  for (int i = 0; i < shape.blocks; ++i) {
    runner.start(blocks[static_cast<std::size_t>(i)], i);
    running.push_back(&blocks[static_cast<std::size_t>(i)]);
  }
  for (int idle = 0; !running.empty();) {
    moved = false;
    std::shuffle(running.begin(), running.end(), random);
    std::erase_if(running, [&](Block* block) { return !runner.step(*block, moved); });
    idle = moved ? 0 : idle + 1;
    if (idle == kMostIdleRounds)
      throw Fault(fmt::format("{}: {} blocks wait for each other, and none comes on", program.function->name,
                              running.size()));
  }
}

void fail(const Warp& warp, int lane, const std::string& what) {
  const Program& program = warp.block->grid->program;
  const Statement& statement = *program.code[static_cast<std::size_t>(warp.pc)].statement;
  throw Fault(fmt::format("{}: block {}, thread {}, line {}: {}: {}", program.function->name,
                          warp.block->index, warp.thread(lane), statement.line,
                          statement.text().substr(0, 100), what));
}

}  // namespace ptx
