// The machine that runs a translated kernel: a grid of blocks of warps of 32 lanes.
//
// A register is an array of 32 numbers, one of each lane of a warp; a predicate is 32 bytes. Constants and
// special registers such as %tid.x are registers that are filled beforehand, so every operand is a place in
// the warp's register file. An instruction runs for all lanes of a warp that are at it. Lanes that took
// different branches form fragments of the warp; the one that is furthest behind in the code runs first, and
// fragments that meet are one again.
#pragma once

#include <map>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "tests/ptx/interpreter/memory.h"
#include "tests/ptx/interpreter/module.h"
#include "tests/ptx/interpreter/shared.h"

namespace ptx {

struct Warp;
struct Block;
struct Grid;
struct Instruction;
using Run = void (*)(Warp&, const Instruction&, Mask);

enum class Kind : std::uint8_t {
  lanes,      // runs for the lanes that are at it
  warp,       // needs all lanes of the warp
  warpgroup,  // needs all lanes of four warps
  barrier,    // needs all threads of the block
  phase,      // needs all lanes of the warp, and the end of a phase (transactions.h)
  acquire,    // as lanes, and then other warps run: what it reads may be what a loop waits for
  branch,
  exit,
  trap,
};

struct Instruction {
  Run run = nullptr;
  Kind kind = Kind::lanes;
  bool negated = false;
  int guard = -1;             // the place of a predicate, or -1
  int target = -1;            // of a branch
  std::vector<int> to, from;  // places in the register file
  Space space = Space::global;
  Type type = Type::u32;     // of what is loaded or stored
  bool wide_address = true;  // 64 bits
  std::int64_t offset = 0;   // of an address; an immediate
  int option = 0;
  const Statement* statement = nullptr;
};

// A function's code, ready to run.
struct Program {
  const Module* module = nullptr;
  const Function* function = nullptr;
  std::vector<Statement> statements;  // of the function, with the calls of others in it
  std::vector<Instruction> code;
  std::vector<unsigned char> constants;  // the start of the register file
  std::map<std::string, int> special;    // places of special registers, after the constants
  std::map<std::string, int> addresses;  // places of the addresses of the module's global variables
  std::size_t registers = 0;             // bytes of a warp's register file
  std::int64_t parameter_bytes = 0, static_shared = 0, local_bytes = 0;
  bool watches_registers = false;  // there are products of warpgroups
};

// errors: Fault for an instruction that the interpreter does not know.
std::unique_ptr<const Program> translate(const Module& module, const Function& function);

enum class State : std::uint8_t { ready, at_warp, at_warpgroup, at_barrier, at_phase };
struct Fragment {
  int pc = 0;
  Mask lanes = 0;
  State state = State::ready;
};

// An asynchronous copy of 16 bytes that was not waited for.
struct Copy {
  int lane;
  std::uint64_t to;
  unsigned char bytes[16];
};

// Products of one wgmma.commit_group, or of none so far.
struct ProductGroup {
  std::vector<int> sums, left;        // registers of the products
  std::vector<std::uint32_t> halves;  // of shared memory that they read
};

struct Warp {
  Block* block = nullptr;
  int index = 0;
  int pc = 0;  // of the instruction that runs
  std::vector<unsigned char> registers;
  std::vector<Fragment> fragments;
  std::vector<Copy> copies;
  std::uint32_t order = 1;  // how many bar.warp.sync it passed, with the block's barriers
  Mask waited = 0;          // lanes that passed griddepcontrol.wait; all, but of a dependent launch
  // Up to which `order` of each warp of the block, and to which phase of each mbarrier after them, phases have shown
  // this warp what was done.
  std::vector<std::uint64_t> seen;
  // Of programs with products of warpgroups. Ticks count instructions.
  std::uint64_t tick = 0, fenced = 0;
  std::vector<std::uint64_t> written;  // by place / 32: when a register was written
  std::vector<std::uint8_t> flying;    // by place / 32: 1 read, 2 written by a product that runs

  template <class T>
  T* at(int place) {
    return reinterpret_cast<T*>(registers.data() + place);
  }
  int thread(int lane) const { return index * kWarp + lane; }
};

struct Warpgroup {
  bool opened = false;  // a fence or a product since the last commit
  ProductGroup open;
  std::vector<ProductGroup> committed;
};

// An mbarrier. `released`: what those had seen and done that arrived up to the last phase that is over; `arrived`: in
// this phase too.
struct Phases {
  std::uint64_t address = 0;
  std::int64_t arrivals = 0, missing = 0, bytes = 0;  // bytes: announced and not yet there
  std::uint64_t over = 0;                             // phases
  int thread = 0;                                     // that prepared it
  bool published = false;
  std::vector<std::uint64_t> arrived, released;
};

// A copy of a box that is on its way.
struct BoxCopy {
  std::uint64_t to = 0;
  std::size_t barrier = 0;           // its index
  std::vector<unsigned char> bytes;  // as they come, with the swizzle
};

struct Block {
  Grid* grid = nullptr;
  int index = 0;
  std::vector<Warp> warps;
  SharedMemory shared;
  std::vector<unsigned char> local;  // [thread][local_bytes]
  std::vector<Warpgroup> warpgroups;
  std::vector<Phases> barriers;
  std::vector<BoxCopy> boxes;
  std::vector<std::uint32_t> clock;  // of every block: what this one has seen of it (memory.h)
};

struct Shape {
  int blocks = 1, threads = 32, shared_bytes = 0;
  bool resident = false;   // all blocks run at once
  bool dependent = false;  // it may begin before the launch ahead has ended
};

struct Grid {
  const Program& program;
  GlobalMemory& memory;
  Shape shape;
  std::vector<unsigned char> parameters;
  std::map<std::string, std::uint64_t> variables;       // addresses of the module's global variables
  std::vector<std::uint8_t> reached;                    // by instruction: whether any lane ran it
  std::uint64_t instructions = 0;                       // of threads
  std::uint64_t most_instructions = ~std::uint64_t{0};  // more are an error
  std::minstd_rand random{1};

  Grid(const Program& of, GlobalMemory& with, const Shape& shape, std::span<const unsigned char> arguments);
  // Runs all blocks.
  // errors: Fault at the first error, with kernel, block, thread and instruction.
  void run();
};

// Throws a Fault of an instruction, whose thread is that of the lane.
[[noreturn]] void fail(const Warp& warp, int lane, const std::string& what);

// The lanes whose predicate at this place is set.
inline Mask lanes_of(const Warp& warp, int place) {
  Mask mask = 0;
  for (int i = 0; i < 4; ++i) {
    std::uint64_t bytes;
    __builtin_memcpy(&bytes, warp.registers.data() + place + 8 * i, 8);
    mask |= static_cast<Mask>(bytes * 0x0102040810204080u >> 56) << 8 * i;
  }
  return mask;
}

// Calls f(lane) for the lanes of a mask.
template <class F>
void each_lane(Mask mask, F&& f) {
  for (; mask != 0; mask &= mask - 1) f(__builtin_ctz(mask));
}

}  // namespace ptx
