#include "tests/ptx/faults.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <set>
#include <utility>

#include "tests/ptx/compare.h"

namespace ptx {
namespace {

constexpr int kMostPlaces = 24, kPlacesOfKernel = 4;

struct PlantedFault {
  const char* name;
  const char* kernel;  // a part of the kernel's name, or ""
  // Changes a statement and returns true, or returns false.
  bool (*plant)(Statement&);
  int skipped = 0;  // places of a kernel before the first one that is tried
};

bool drop(Statement& statement, std::string_view op) {
  if (!statement.op.starts_with(op)) return false;
  statement.op = "membar.cta";  // which does nothing here
  statement.operands.clear();
  return true;
}
bool swap_operands(Statement& statement, std::string_view op, std::size_t a, std::size_t b) {
  if (statement.op != op || statement.operands[a] == statement.operands[b]) return false;
  std::swap(statement.operands[a], statement.operands[b]);
  return true;
}
bool rename(Statement& statement, std::string_view from, const char* to) {
  if (statement.op != from) return false;
  statement.op = to;
  return true;
}
bool move_address(Statement& statement, std::string_view op, std::size_t operand, int bytes) {
  if (!statement.op.starts_with(op)) return false;
  std::string& address = statement.operands[operand];
  std::int64_t offset = bytes;
  std::string base = address.substr(1, address.size() - 2);
  if (const std::size_t plus = base.rfind('+'); plus != std::string::npos) {
    offset += std::stoll(base.substr(plus + 1));
    base.resize(plus);
  }
  address = fmt::format("[{}+{}]", base, offset);
  return true;
}
bool set_operand(Statement& statement, std::string_view op, std::size_t operand, const char* from,
                 const char* to) {
  if (statement.op != op || statement.operands[operand] != from) return false;
  statement.operands[operand] = to;
  return true;
}
// Makes operand `b` the operand `a`, if that is `name`.
bool set_equal(Statement& statement, std::size_t a, std::size_t b, const std::string& name) {
  if (statement.operands[a] != name) return false;
  statement.operands[b] = name;
  return true;
}
// Swaps the first two registers of an operand in braces.
bool swap_in_braces(Statement& statement, std::string_view op, std::size_t operand) {
  if (!statement.op.starts_with(op) || statement.operands[operand].front() != '{') return false;
  std::string& list = statement.operands[operand];
  std::vector<std::string> names = split_list(std::string_view(list).substr(1, list.size() - 2));
  std::swap(names[0], names[1]);
  list = fmt::format("{{{}}}", fmt::join(names, ", "));
  return true;
}

// A wait for a phase that returns at once.
bool drop_wait(Statement& statement) {
  if (!statement.op.starts_with("mbarrier.try_wait")) return false;
  statement.op = "setp.eq.s32";
  statement.operands = {statement.operands[0], "0", "0"};
  return true;
}
bool replace_operand(Statement& statement, std::string_view op, std::size_t operand, const char* with) {
  if (!statement.op.starts_with(op)) return false;
  statement.operands[operand] = with;
  return true;
}

// Of a kernel with loads by TMA the loading warp's code comes first: three waits for `empty`, and two arrivals at
// `full` where a tile lies in two tensors.
constexpr int kLoadingWaits = 3, kLoadingArrivals = 2;
// Of a walk over windows the barrier between windows and the wait for its weights come first.
constexpr int kFirstOfWalk = 1;
// Of products with GELU it has one wait and no arrival of the second kind.
constexpr int kGeluLoadingWaits = 1;

const PlantedFault kFaults[] = {
    {"a barrier of the block is left out", "", [](Statement& s) { return drop(s, "bar.sync"); }},
    {"a barrier of the warp is left out", "", [](Statement& s) { return drop(s, "bar.warp.sync"); }},
    {"a wait for cp.async is left out", "", [](Statement& s) { return drop(s, "cp.async.wait_all"); }},
    {"the wait for the launch ahead is left out", "Prologue)1",
     [](Statement& s) { return drop(s, "griddepcontrol.wait"); }},
    {"the next launch begins ahead of the wait", "phase_kernel",
     [](Statement& s) { return rename(s, "griddepcontrol.wait", "griddepcontrol.launch_dependents"); }},
    {"fence.proxy.async is left out", "wgmma", [](Statement& s) { return drop(s, "fence.proxy.async"); }},
    {"wgmma.fence is left out", "wgmma", [](Statement& s) { return drop(s, "wgmma.fence"); }},
    {"the wait for a product is left out", "wgmma", [](Statement& s) { return drop(s, "wgmma.wait_group"); }},
    {"a commit of products is left out", "wgmma", [](Statement& s) { return drop(s, "wgmma.commit_group"); }},
    {"a wait leaves one product more", "wgmma",
     [](Statement& s) { return set_operand(s, "wgmma.wait_group.sync.aligned", 0, "0", "1"); }},
    {"a wait for a full place is left out", "tma", drop_wait, kLoadingWaits},
    {"a wait for an empty place is left out", "tma", drop_wait},
    {"a wait has the wrong parity", "tma",
     [](Statement& s) { return replace_operand(s, "mbarrier.try_wait", 2, "1"); }, kLoadingWaits},
    {"fewer bytes are announced than come", "tma",
     [](Statement& s) { return replace_operand(s, "mbarrier.arrive.expect_tx", 2, "64"); }},
    {"more bytes are announced than come", "tma",
     [](Statement& s) { return replace_operand(s, "mbarrier.arrive.expect_tx", 2, "65536"); }},
    {"an arrival at a full place is left out", "tma",
     [](Statement& s) { return drop(s, "mbarrier.arrive.shared"); }},
    {"an arrival at an empty place is left out", "tma",
     [](Statement& s) { return drop(s, "mbarrier.arrive.shared"); }, kLoadingArrivals},
    {"a barrier of the warp ahead of an arrival is left out", "tma",
     [](Statement& s) { return drop(s, "bar.warp.sync"); }},
    {"the fence of the mbarriers is left out", "tma",
     [](Statement& s) { return drop(s, "fence.mbarrier_init"); }},
    {"products with GELU: a wait for an empty place is left out", "gelu", drop_wait},
    {"products with GELU: a wait for a full place is left out", "gelu", drop_wait, kGeluLoadingWaits},
    {"products with GELU: the wait for the warps' sums is left out", "gelu", drop_wait,
     kGeluLoadingWaits + 1},
    {"products with GELU: fewer bytes are announced than come", "gelu",
     [](Statement& s) { return replace_operand(s, "mbarrier.arrive.expect_tx", 2, "1024"); }},
    {"products with GELU: the arrival at an empty place is left out", "gelu",
     [](Statement& s) { return drop(s, "mbarrier.arrive.shared"); }},
    {"products with GELU: the arrival with a warp's sums is left out", "gelu",
     [](Statement& s) { return drop(s, "mbarrier.arrive.shared"); }, 1},
    {"products with GELU: a barrier of the warp is left out", "gelu",
     [](Statement& s) { return drop(s, "bar.warp.sync"); }},
    {"products with GELU: a place is given back while products read it", "gelu",
     [](Statement& s) { return set_operand(s, "wgmma.wait_group.sync.aligned", 0, "1", "2"); }},
    {"products with GELU: wgmma.fence is left out", "gelu",
     [](Statement& s) { return drop(s, "wgmma.fence"); }},
    {"products with GELU: the weight is not read across", "gelu",
     [](Statement& s) {
       return s.op.starts_with("wgmma.mma_async") && s.operands.size() == 8 &&
              set_operand(s, s.op, 7, "1", "0");
     }},
    {"products with GELU: the derivative is taken at z of other columns", "gelu",
     [](Statement& s) { return move_address(s, "ld.global.v4", 1, 64); }},
    {"products with GELU: lanes exchange with others", "gelu",
     [](Statement& s) { return rename(s, "shfl.sync.bfly.b32", "shfl.sync.up.b32"); }},
    {"registers of a product's left operand are swapped", "wgmma",
     [](Statement& s) { return swap_in_braces(s, "wgmma.mma_async", 1); }},
    {"registers of mma's left operand are swapped", "",
     [](Statement& s) { return swap_in_braces(s, "mma.sync.aligned.m16n8k16", 1); }},
    {"registers of mma's left operand in TF32 are swapped", "",
     [](Statement& s) { return swap_in_braces(s, "mma.sync.aligned.m16n8k8", 1); }},
    {"registers of mma's right operand in TF32 are swapped", "",
     [](Statement& s) { return swap_in_braces(s, "mma.sync.aligned.m16n8k8", 2); }},
    {"an operand is not rounded to TF32", "",
     [](Statement& s) { return rename(s, "cvt.rna.tf32.f32", "mov.b32"); }},
    {"ldmatrix does not transpose", "",
     [](Statement& s) {
       return rename(s, "ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16",
                     "ldmatrix.sync.aligned.m8n8.x4.shared.b16");
     }},
    {"a load of four numbers is 4 bytes off", "",
     [](Statement& s) { return move_address(s, "ld.global.v4", 1, 4); }},
    {"a load of one number is 4 bytes off", "",
     [](Statement& s) { return move_address(s, "ld.global.f32", 1, 4); }},
    {"a store of one number is 4 bytes off", "",
     [](Statement& s) { return move_address(s, "st.global.f32", 0, 4); }},
    {"a load of shared memory is 4 bytes off", "",
     [](Statement& s) { return move_address(s, "ld.shared.f32", 1, 4); }},
    {"operands of a difference are swapped", "",
     [](Statement& s) { return swap_operands(s, "sub.f32", 1, 2); }},
    {"an addend and a factor are swapped", "",
     [](Statement& s) { return swap_operands(s, "fma.rn.f32", 2, 3); }},
    {"halves of a pair of bf16 are swapped", "",
     [](Statement& s) { return swap_operands(s, "cvt.rn.bf16x2.f32", 1, 2); }},
    {"a choice is the other way round", "", [](Statement& s) { return swap_operands(s, "selp.f32", 1, 2); }},
    {"the constant of expf, log2(e), loses bits", "",
     [](Statement& s) { return set_operand(s, "mov.f32", 1, "0f3FB8AA3B", "0f3FB80000"); }},
    {"an index is compared with <= for <", "",
     [](Statement& s) { return rename(s, "setp.ge.s64", "setp.gt.s64"); }},
    {"an address is a difference for a sum", "",
     [](Statement& s) { return rename(s, "add.s64", "sub.s64"); }},
    {"lanes exchange with others", "",
     [](Statement& s) { return rename(s, "shfl.sync.bfly.b32", "shfl.sync.up.b32"); }},
    {"a turn is passed on by a relaxed sum", "wgmma_fused",
     [](Statement& s) { return rename(s, "atom.add.release.gpu.u32", "atom.add.relaxed.gpu.u32"); }},
    {"a turn is awaited by a relaxed load", "wgmma_fused",
     [](Statement& s) { return rename(s, "ld.acquire.gpu.b32", "ld.relaxed.gpu.b32"); }},
    {"a turn is not awaited", "wgmma_fused",
     [](Statement& s) {  // what was loaded is compared with itself
       static std::string loaded;
       if (s.op == "ld.acquire.gpu.b32") loaded = s.operands[0];
       return s.op.starts_with("setp.") && set_equal(s, 1, 2, loaded);
     }},
    {"a left operand of a product is not read across", "wgmma_fused",
     [](Statement& s) {
       return s.op.starts_with("wgmma.mma_async") && s.operands.size() == 8 &&
              set_operand(s, s.op, 6, "1", "0");
     }},
    {"a barrier between windows is left out", "block_forward_kernel",
     [](Statement& s) { return drop(s, "bar.sync"); }},
    {"a barrier ahead of attention's gradients is left out", "block_backward_kernel",
     [](Statement& s) { return drop(s, "bar.sync"); }, kFirstOfWalk},
    {"queries are overwritten while the warp reads them", "block_forward_kernel",
     [](Statement& s) { return drop(s, "bar.warp.sync"); }},
    {"weights are read before they have come", "block_forward_kernel",
     [](Statement& s) { return drop(s, "cp.async.wait_all"); }},
    {"rows are read before they have come", "block_backward_kernel",
     [](Statement& s) { return drop(s, "cp.async.wait_all"); }, kFirstOfWalk},
    {"registers of mma's right operand are swapped", "block_backward_kernel",
     [](Statement& s) { return swap_in_braces(s, "mma.sync.aligned.m16n8k16", 2); }},
    {"values are not read across", "block_forward_kernel",
     [](Statement& s) {
       return rename(s, "ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16",
                     "ldmatrix.sync.aligned.m8n8.x4.shared.b16");
     }},
    {"a guard is the other way round", "",
     [](Statement& s) {
       if (s.guard.empty() || s.op != "bra") return false;
       s.negated = !s.negated;
       return true;
     }},
};

// What a launch ends with: "" if memory is right.
std::string outcome_of(const Module& module, const Function& function, const RecordedLaunch& launch,
                       std::uint64_t most, std::set<int>* lines, std::uint64_t* instructions) {
  try {
    const auto program = translate(module, function);
    GlobalMemory memory = memory_before(launch);
    Grid grid(*program, memory, launch.shape, launch.arguments);
    grid.most_instructions = most;
    grid.run();
    if (instructions != nullptr) *instructions = grid.instructions;
    if (lines != nullptr)
      for (std::size_t i = 0; i < grid.reached.size(); ++i)
        if (grid.reached[i] != 0) lines->insert(program->code[i].statement->line);
    const Difference difference = compare(launch, memory, *program);
    return difference.worst > 1 ? difference.where : "";
  } catch (const Fault& fault) {
    return fault.what();
  }
}

// A launch without a fault: the lines that it reaches, none if it is wrong by itself, which is another test's business.
struct Plain {
  std::set<int> lines;
  std::uint64_t instructions = 0;
};

Plain run_plain(const Candidate& kernel, const RecordedLaunch& launch) {
  Plain plain;
  if (!outcome_of(*kernel.module, *kernel.function, launch, ~std::uint64_t{0}, &plain.lines,
                  &plain.instructions)
           .empty())
    plain.lines.clear();
  return plain;
}

}  // namespace

int count_unseen_faults(const std::map<std::string, Candidate>& kernels) {
  int unseen = 0;
  std::map<const RecordedLaunch*, Plain> plains;
  for (const PlantedFault& fault : kFaults) {
    int places = 0;
    std::string seen, where;
    for (const auto& [name, kernel] : kernels) {
      if (name.find(fault.kernel) == std::string::npos) continue;
      const Function& function = *kernel.function;
      int of_kernel = 0, to_skip = fault.skipped;
      for (std::size_t i = 0; i < function.body.size() && seen.empty() && of_kernel < kPlacesOfKernel; ++i) {
        Statement changed = function.body[i];
        if (!fault.plant(changed) || to_skip-- > 0) continue;
        Function copy = function;
        copy.body[i] = changed;
        bool reached = false;
        // What one launch hides, zeros or numbers that need no rounding, another shows. Which is the last differs from
        // record to record: the tests' processes name their launches by turns.
        for (auto launch = kernel.launches.rbegin(); launch != kernel.launches.rend() && seen.empty();
             ++launch) {
          const auto [plain, fresh] = plains.try_emplace(&*launch);
          if (fresh) plain->second = run_plain(kernel, *launch);
          if (!plain->second.lines.contains(changed.line)) continue;
          reached = true;
          seen = outcome_of(*kernel.module, copy, *launch, 8 * plain->second.instructions + 1'000'000,
                            nullptr, nullptr);
        }
        if (!reached) continue;
        ++places, ++of_kernel;
        where = fmt::format("{} line {}", name.substr(0, 70), changed.line);
      }
      if (!seen.empty() || places >= kMostPlaces) break;
    }
    unseen += seen.empty();
    if (seen.empty())
      fmt::print("NOT SEEN in {} places: {}\n", places, fault.name);
    else
      fmt::print("seen, place {}: {}\n  {}\n  {}\n", places, fault.name, where,
                 seen.substr(seen.size() > 160 ? seen.size() - 160 : 0));
  }
  fmt::print("{} of {} planted faults seen\n", std::size(kFaults) - static_cast<std::size_t>(unseen),
             std::size(kFaults));
  return unseen;
}

}  // namespace ptx
