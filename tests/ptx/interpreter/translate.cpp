// Statements to instructions: places for registers and constants, and the function of each instruction.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <set>

#include "tests/ptx/interpreter/access.h"
#include "tests/ptx/interpreter/arithmetic.h"
#include "tests/ptx/interpreter/calls.h"
#include "tests/ptx/interpreter/exchange.h"
#include "tests/ptx/interpreter/machine.h"
#include "tests/ptx/interpreter/registers.h"
#include "tests/ptx/interpreter/transactions.h"

namespace ptx {
namespace {

std::vector<std::string> in_braces(const std::string& text) {
  return text.front() == '{' ? split_list(std::string_view(text).substr(1, text.size() - 2))
                             : std::vector<std::string>{text};
}

bool is_number(const std::string& text) {
  return text.find_first_of("0123456789") == (text.front() == '-' ? 1u : 0u);
}

class Translator {
 public:
  Translator(const Module& module, const Function& function)
      : inlined_(with_calls_inlined(module, function)) {
    program_.module = &module;
    program_.function = &function;
  }

  std::unique_ptr<const Program> run() {
    program_.statements = std::move(inlined_.statements);
    program_.statements.emplace_back().op = "ret";
    variables_ = place_variables(program_);
    for (const Statement& statement : program_.statements) {
      starts_.push_back(static_cast<int>(program_.code.size()));
      after_.clear();
      try {
        Instruction instruction = translate(statement);
        program_.code.push_back(std::move(instruction));
      } catch (const std::exception& error) {
        throw Fault(fmt::format("{}:{}: {}: {}", program_.module->file, statement.line, statement.text(),
                                error.what()));
      }
      program_.code.insert(program_.code.end(), after_.begin(), after_.end());
      for (std::size_t i = static_cast<std::size_t>(starts_.back()); i < program_.code.size(); ++i)
        program_.code[i].statement = &statement;
    }
    finish();
    return std::make_unique<const Program>(std::move(program_));
  }

 private:
  // ---- places

  // Until the end a register has a number, and a constant one below -1.
  int constant_place(const std::string& name, const void* lanes, std::size_t bytes) {
    const auto [found, fresh] =
        constants_.try_emplace(name, -2 - static_cast<int>(program_.constants.size()));
    if (fresh) {
      const auto* const from = static_cast<const unsigned char*>(lanes);
      program_.constants.insert(program_.constants.end(), from, from + bytes);
    }
    return found->second;
  }
  template <class T>
  int constant(T value) {
    T lanes[kWarp];
    std::fill_n(lanes, kWarp, value);
    std::uint64_t bits = 0;
    std::memcpy(&bits, &value, sizeof value);
    // At least 32 bytes apart, as predicates are.
    return constant_place(fmt::format("{} {:x}", sizeof value, bits), lanes, sizeof lanes);
  }
  int constant_of(std::uint64_t bits, Type type) {
    switch (bytes_of(type)) {
      case 1:
        return type == Type::pred ? constant<std::uint8_t>(bits != 0)
                                  : constant(static_cast<std::uint8_t>(bits));
      case 2:
        return constant(static_cast<std::uint16_t>(bits));
      case 4:
        return constant(static_cast<std::uint32_t>(bits));
      default:
        return constant(bits);
    }
  }

  std::optional<Type> type_of_register(const std::string& name) const {
    const auto& registers = inlined_.registers;
    if (const auto found = registers.find(name); found != registers.end()) return found->second;
    const std::size_t stem = name.find_last_not_of("0123456789") + 1;
    if (stem == name.size()) return std::nullopt;
    const auto found = registers.find(name.substr(0, stem));
    if (found == registers.end()) return std::nullopt;
    return found->second;
  }

  int register_number(const std::string& name) {
    const std::optional<Type> type = type_of_register(name);
    if (!type) throw Fault("no register " + name);
    const auto [found, fresh] = numbers_.try_emplace(name, static_cast<int>(bytes_.size()));
    if (fresh) temporary(*type);
    return found->second;
  }

  // The place of an operand of a type: a register, a constant, a special register or an address.
  int source(const std::string& text, Type type) {
    if (text.starts_with("0f") || text.starts_with("0F") || text.starts_with("0d") || text.starts_with("0D"))
      return constant_of(std::strtoull(text.c_str() + 2, nullptr, 16), type);
    if (is_number(text)) {
      if (is_float(type)) throw Fault("an integer as a float");
      const std::uint64_t bits = text.front() == '-'
                                     ? std::uint64_t{0} - std::strtoull(text.c_str() + 1, nullptr, 0)
                                     : std::strtoull(text.c_str(), nullptr, 0);
      return constant_of(bits, type);
    }
    if (const std::optional<Type> own = type_of_register(text)) {
      if (bytes_of(*own) != bytes_of(type))
        throw Fault("a register of another size than the operand: " + text);
      return register_number(text);
    }
    if (text.front() == '%') {
      static const std::set<std::string> known = {
          "%tid.x",       "%tid.y",       "%tid.z",       "%ntid.x",     "%ntid.y",
          "%ntid.z",      "%ctaid.x",     "%ctaid.y",     "%ctaid.z",    "%nctaid.x",
          "%nctaid.y",    "%nctaid.z",    "%laneid",      "%warpid",     "%lanemask_eq",
          "%lanemask_lt", "%lanemask_le", "%lanemask_gt", "%lanemask_ge"};
      if (!known.contains(text) || bytes_of(type) != 4) throw Fault("an unknown special register: " + text);
      const std::uint32_t zeros[kWarp] = {};
      return program_.special[text] = constant_place(text, zeros, sizeof zeros);
    }
    const auto variable = variables_.find(text);
    if (variable == variables_.end()) throw Fault("an unknown name: " + text);
    const auto& [space, offset] = variable->second;
    if (space == Space::global) {
      const std::uint64_t zeros[kWarp] = {};
      return program_.addresses[text] = constant_place(text, zeros, sizeof zeros);
    }
    const auto start = static_cast<std::int64_t>(space == Space::shared ? SharedMemory::kStart : 0);
    return constant_of(static_cast<std::uint64_t>(start + offset), type);
  }

  // "[%rd1+8]" or "[name]"
  void address(Instruction& instruction, const std::string& operand) {
    std::string inner = operand.substr(1, operand.size() - 2);
    if (const std::size_t plus = inner.rfind('+'); plus != std::string::npos) {
      instruction.offset = std::strtoll(inner.c_str() + plus + 1, nullptr, 0);
      inner.resize(plus);
    }
    const std::optional<Type> own = type_of_register(inner);
    instruction.wide_address = !own || bytes_of(*own) == 8;
    instruction.from.push_back(source(inner, instruction.wide_address ? Type::u64 : Type::u32));
  }

  // ---- instructions

  Instruction translate(const Statement& statement) {
    const std::vector<std::string> parts = parts_of(statement.op);
    Instruction instruction;
    if (!statement.guard.empty()) {
      instruction.guard = source(statement.guard, Type::pred);
      instruction.negated = statement.negated;
    }
    const std::string& base = parts[0];
    const std::vector<std::string>& operands = statement.operands;
    if (base == "bra") {
      instruction.kind = Kind::branch;
      instruction.target = static_cast<int>(inlined_.labels.at(operands[0]));
    } else if (base == "ret" || base == "exit") {
      instruction.kind = Kind::exit;
    } else if (base == "trap") {
      instruction.kind = Kind::trap;
    } else if (base == "ld" || base == "st") {
      access(instruction, parts, operands);
    } else if (base == "atom" || base == "red") {
      atomic(instruction, parts, operands);
    } else if (base == "mbarrier" || statement.op.starts_with("cp.async.bulk")) {
      transaction(instruction, statement);
    } else if (base == "cp") {
      copy(instruction, statement);
    } else if (base == "bar" || base == "barrier") {
      barrier(instruction, parts, operands);
    } else if (base == "membar" || base == "fence") {
      // Order of this thread's accesses: they happen in the order of the code here.
      const bool proxy = parts[1] == "proxy";
      if (proxy && parts[2] != "async") throw Fault("an unknown proxy");
      instruction.run = proxy                         ? &publish_shared
                        : parts[1] == "mbarrier_init" ? &publish_phases
                                                      : [](Warp&, const Instruction&, Mask) {};
    } else if (base == "griddepcontrol") {
      instruction.run = parts[1] == "wait" ? &wait_for_launch_ahead : &begin_next_launch;
      if (parts[1] != "wait" && parts[1] != "launch_dependents")
        throw Fault("an unknown form of griddepcontrol");
    } else if (base == "shfl" || base == "vote") {
      exchange(instruction, parts, operands);
    } else if (base == "ldmatrix" || base == "mma") {
      matrices(instruction, statement);
    } else if (base == "setmaxnreg") {
      instruction.kind = Kind::warpgroup;
      instruction.run = [](Warp&, const Instruction&, Mask) {};
    } else if (base == "wgmma") {
      warpgroup(instruction, parts, operands);
    } else if (base == "cvta") {
      generic_address(instruction, parts, operands);
    } else if (base == "mov" && (operands[0].front() == '{' || operands[1].front() == '{')) {
      pack(instruction, parts, operands);
    } else {
      arithmetic(instruction, statement);
    }
    return instruction;
  }

  int target(const std::string& name, Type type) {
    const std::optional<Type> own = type_of_register(name);
    if (!own) throw Fault("no register " + name);
    if (bytes_of(*own) != bytes_of(type)) throw Fault("a register of another size than the result: " + name);
    return register_number(name);
  }

  void arithmetic(Instruction& instruction, const Statement& statement) {
    const auto found = operations().find(statement.op);
    if (found == operations().end()) throw Fault("an instruction that the interpreter does not know");
    const Operation& operation = found->second;
    if (static_cast<int>(statement.operands.size()) != operation.sources + 1)
      throw Fault("a wrong number of operands");
    instruction.run = operation.run;
    instruction.to.push_back(result(instruction, statement.operands[0], operation.to));
    for (int i = 0; i < operation.sources; ++i)
      instruction.from.push_back(operand(instruction, statement.operands[static_cast<std::size_t>(i) + 1],
                                         operation.from[static_cast<std::size_t>(i)]));
  }

  int temporary(Type type) {
    bytes_.push_back(std::max(1, bytes_of(type)) * kWarp);
    return static_cast<int>(bytes_.size()) - 1;
  }
  Instruction conversion(const Instruction& of, Type to, Type from) {
    const auto name = [](Type type) {
      return fmt::format("{}{}", is_signed(type) ? 's' : 'u', 8 * bytes_of(type));
    };
    Instruction made;
    made.guard = of.guard;
    made.negated = of.negated;
    made.run = operations().at(fmt::format("cvt.{}.{}", name(to), name(from))).run;
    return made;
  }
  // A register that is wider than the operand gives its low part.
  int operand(const Instruction& instruction, const std::string& text, Type type) {
    const std::optional<Type> own = type_of_register(text);
    if (!own || bytes_of(*own) <= bytes_of(type)) return source(text, type);
    Instruction low = conversion(instruction, type, *own);
    low.from.push_back(register_number(text));
    low.to.push_back(temporary(type));
    const int place = low.to[0];
    program_.code.push_back(std::move(low));
    return place;
  }
  // One that is wider than the result gets it extended.
  int result(const Instruction& instruction, const std::string& text, Type type) {
    const std::optional<Type> own = type_of_register(text);
    if (!own || bytes_of(*own) <= bytes_of(type)) return target(text, type);
    const Type wide = bytes_of(*own) == 2   ? (is_signed(type) ? Type::s16 : Type::u16)
                      : bytes_of(*own) == 4 ? (is_signed(type) ? Type::s32 : Type::u32)
                                            : (is_signed(type) ? Type::s64 : Type::u64);
    Instruction extension = conversion(instruction, wide, type);
    extension.from.push_back(temporary(type));
    extension.to.push_back(register_number(text));
    const int place = extension.from[0];
    after_.push_back(std::move(extension));
    return place;
  }

  // {a, b} = c and c = {a, b}: lanes' bytes in order. `_` is nothing.
  void pack(Instruction& instruction, const std::vector<std::string>& parts,
            const std::vector<std::string>& operands) {
    const Type whole = type_of(parts.back());
    const bool takes_apart = operands[0].front() == '{';
    const std::vector<std::string> pieces = in_braces(operands[takes_apart ? 0 : 1]);
    const int bytes = bytes_of(whole) / static_cast<int>(pieces.size());
    const Type piece = bytes == 1 ? Type::u8 : bytes == 2 ? Type::u16 : Type::u32;
    for (const std::string& name : pieces)
      if (takes_apart)
        instruction.to.push_back(name == "_" ? -1 : target(name, piece));
      else
        instruction.from.push_back(source(name, piece));
    if (takes_apart)
      instruction.from.push_back(source(operands[1], whole));
    else
      instruction.to.push_back(target(operands[0], whole));
    instruction.option = bytes;
    instruction.offset = bytes_of(whole);
    instruction.run = takes_apart ? &take_apart : &put_together;
  }

  static Space space_of(const std::vector<std::string>& parts) {
    for (const std::string& part : parts) {
      if (part == "global") return Space::global;
      if (part == "shared" || part == "shared::cta") return Space::shared;
      if (part == "local") return Space::local;
      if (part == "param") return Space::param;
    }
    return Space::generic;
  }
  static bool has(const std::vector<std::string>& parts, const char* part) {
    return std::find(parts.begin(), parts.end(), part) != parts.end();
  }

  void access(Instruction& instruction, const std::vector<std::string>& parts,
              const std::vector<std::string>& operands) {
    static const std::set<std::string> known = {"ld",    "st",    "global",   "shared", "shared::cta",
                                                "local", "param", "v2",       "v4",     "acquire",
                                                "gpu",   "nc",    "volatile", "relaxed"};
    for (std::size_t i = 0; i + 1 < parts.size(); ++i)
      if (!known.contains(parts[i])) throw Fault("an unknown modifier: " + parts[i]);
    const bool loads = parts[0] == "ld";
    const std::string& place = operands[loads ? 1 : 0];
    const std::vector<std::string> values = in_braces(operands[loads ? 0 : 1]);
    const Type type = type_of(parts.back());
    instruction.space = space_of(parts);
    instruction.type = type;
    if (instruction.space == Space::param && parameter_of_call(instruction, place, values[0], loads, type))
      return;
    address(instruction, place);
    Type in_register = type;
    for (const std::string& value : values) {
      const std::optional<Type> own = type_of_register(value);
      if (own) in_register = *own;
      if (loads)
        instruction.to.push_back(value == "_" ? -1 : register_number(value));
      else
        instruction.from.push_back(own ? register_number(value) : source(value, in_register));
    }
    if (bytes_of(in_register) == 1) in_register = Type::u16;
    instruction.run = loads ? run_of_load(type, in_register) : run_of_store(type, in_register);
    if (has(parts, "acquire")) {
      instruction.kind = Kind::acquire;
      instruction.option = kAcquires;
    } else if (has(parts, "volatile") || has(parts, "relaxed")) {
      instruction.kind = Kind::acquire;
    }
  }

  // A parameter of a function that was inlined is a register: "[param0+0]".
  bool parameter_of_call(Instruction& instruction, const std::string& place, const std::string& value,
                         bool loads, Type type) {
    const std::string name = place.substr(1, place.find_first_of("+]") - 1);
    if (name.front() == '%' || !type_of_register(name)) return false;
    instruction.run = operations().at(bytes_of(type) == 8 ? "mov.b64" : "mov.b32").run;
    instruction.to.push_back(target(loads ? value : name, type));
    instruction.from.push_back(source(loads ? name : value, type));
    return true;
  }

  void atomic(Instruction& instruction, const std::vector<std::string>& parts,
              const std::vector<std::string>& operands) {
    if (!has(parts, "add")) throw Fault("an atomic operation other than a sum");
    const bool returns = parts[0] == "atom";
    instruction.space = space_of(parts);
    instruction.type = type_of(parts.back());
    address(instruction, operands[returns ? 1 : 0]);
    instruction.from.push_back(source(operands[returns ? 2 : 1], instruction.type));
    if (returns) instruction.to.push_back(target(operands[0], instruction.type));
    if (has(parts, "release") || has(parts, "acq_rel")) instruction.option = kReleases;
    instruction.run = run_of_atomic_add(instruction.type);
  }

  void copy(Instruction& instruction, const Statement& statement) {
    if (statement.op == "cp.async.wait_all") {
      instruction.run = &wait_for_copies;
      return;
    }
    if (statement.op != "cp.async.cg.shared.global" || statement.operands.at(2) != "16")
      throw Fault("an unknown form of cp.async");
    Instruction global;
    address(instruction, statement.operands[0]);
    address(global, statement.operands[1]);
    if (instruction.wide_address || !global.wide_address) throw Fault("an unknown form of cp.async");
    instruction.from.push_back(global.from[0]);
    instruction.from.push_back(statement.operands.size() > 3 ? source(statement.operands[3], Type::u32)
                                                             : constant<std::uint32_t>(16));
    instruction.option = static_cast<int>(global.offset);
    instruction.run = &copy_async;
  }

  // mbarrier's instructions and cp.async.bulk.tensor: the barrier's address is the first operand, with the offset.
  void transaction(Instruction& instruction, const Statement& statement) {
    const std::vector<std::string>& operands = statement.operands;
    const auto also = [&](std::size_t i) { instruction.from.push_back(source(operands.at(i), Type::u32)); };
    if (statement.op == "mbarrier.init.shared::cta.b64") {
      address(instruction, operands.at(0));
      also(1);
      instruction.run = &init_phases;
    } else if (statement.op == "mbarrier.arrive.shared::cta.b64" ||
               statement.op == "mbarrier.arrive.expect_tx.shared::cta.b64") {
      if (operands.at(0) != "_") throw Fault("an arrival with a result");
      address(instruction, operands.at(1));
      if (operands.size() > 2) also(2);
      instruction.run = &arrive_at_phase;
    } else if (statement.op == "mbarrier.try_wait.parity.shared::cta.b64") {
      instruction.kind = Kind::phase;
      instruction.to.push_back(target(operands.at(0), Type::pred));
      address(instruction, operands.at(1));
      also(2);
      instruction.run = &see_phase;
    } else if (statement.op ==
               "cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes") {
      box(instruction, operands);
    } else {
      throw Fault("an unknown form of mbarrier or cp.async.bulk");
    }
    if (instruction.wide_address) throw Fault("an mbarrier at an address of 64 bits");
  }

  // [to], [map, {coordinates}], [barrier]
  void box(Instruction& instruction, const std::vector<std::string>& operands) {
    address(instruction, operands.at(2));
    Instruction to;
    address(to, operands.at(0));
    const std::vector<std::string> inner =
        split_list(std::string_view(operands.at(1)).substr(1, operands.at(1).size() - 2));
    Instruction map;
    address(map, "[" + inner.at(0) + "]");
    if (to.wide_address || !map.wide_address || to.offset != 0 || map.offset != 0)
      throw Fault("an unknown form of cp.async.bulk");
    instruction.from.push_back(to.from[0]);
    instruction.from.push_back(map.from[0]);
    for (const std::string& at : in_braces(inner.at(1))) instruction.from.push_back(source(at, Type::u32));
    instruction.run = &start_box;
  }

  void barrier(Instruction& instruction, const std::vector<std::string>& parts,
               const std::vector<std::string>& operands) {
    if (parts[1] == "warp") {
      instruction.kind = Kind::warp;
      instruction.run = &order_warp;
      instruction.from.push_back(source(operands[0], Type::u32));
      return;
    }
    instruction.kind = Kind::barrier;
    const bool reduces = parts[1] == "red";
    if (operands[reduces ? 1 : 0] != "0" || (reduces ? parts[2] != "or" : operands.size() > 1))
      throw Fault("an unknown form of barrier");
    if (!reduces) return;
    instruction.to.push_back(target(operands[0], Type::pred));
    instruction.from.push_back(source(operands[2], Type::pred));
  }

  void exchange(Instruction& instruction, const std::vector<std::string>& parts,
                const std::vector<std::string>& operands) {
    instruction.kind = Kind::warp;
    if (parts[0] == "vote") {
      instruction.option = has(parts, "all") ? kAll : has(parts, "any") ? kAny : kBallot;
      if (instruction.option == kBallot && !has(parts, "ballot")) throw Fault("an unknown vote");
      instruction.run = &vote;
      instruction.to.push_back(target(operands[0], instruction.option == kBallot ? Type::u32 : Type::pred));
      instruction.from = {source(operands[1], Type::pred), source(operands[2], Type::u32)};
      return;
    }
    static const std::map<std::string, int> modes = {
        {"up", kUp}, {"down", kDown}, {"bfly", kButterfly}, {"idx", kIndex}};
    instruction.option = modes.at(parts.at(2));
    instruction.run = &exchange_lanes;
    const std::size_t bar = operands[0].find('|');
    instruction.to.push_back(target(operands[0].substr(0, bar), Type::u32));
    if (bar != std::string::npos) instruction.to.push_back(target(operands[0].substr(bar + 1), Type::pred));
    for (std::size_t i = 1; i < 5; ++i) instruction.from.push_back(source(operands.at(i), Type::u32));
  }

  void matrices(Instruction& instruction, const Statement& statement) {
    instruction.kind = Kind::warp;
    const bool loads = statement.op.starts_with("ldmatrix");
    for (const std::string& name : in_braces(statement.operands[0]))
      instruction.to.push_back(target(name, Type::u32));
    if (loads) {
      instruction.option = statement.op.find(".trans") != std::string::npos ? 1 : 0;
      if (statement.op !=
          fmt::format("ldmatrix.sync.aligned.m8n8.x4{}.shared.b16", instruction.option == 1 ? ".trans" : ""))
        throw Fault("an unknown form of ldmatrix");
      address(instruction, statement.operands[1]);
      instruction.run = &load_matrices;
      return;
    }
    const bool tf32 = statement.op == "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32";
    if (!tf32 && statement.op != "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32")
      throw Fault("an unknown form of mma");
    for (std::size_t i = 1; i < 4; ++i)
      for (const std::string& name : in_braces(statement.operands.at(i)))
        instruction.from.push_back(source(name, i == 3 ? Type::f32 : Type::u32));
    instruction.run = tf32 ? &multiply_tf32 : &multiply;
  }

  void warpgroup(Instruction& instruction, const std::vector<std::string>& parts,
                 const std::vector<std::string>& operands) {
    instruction.kind = Kind::warpgroup;
    program_.watches_registers = true;
    if (parts[1] == "fence") {
      instruction.run = &order_registers;
    } else if (parts[1] == "commit_group") {
      instruction.run = &commit_products;
    } else if (parts[1] == "wait_group") {
      instruction.run = &wait_for_products;
      instruction.offset = std::strtoll(operands.at(0).c_str(), nullptr, 0);
    } else {
      product(instruction, parts, operands);
    }
  }

  // wgmma.mma_async.sync.aligned.m64n32k16.f32.bf16.bf16 {sums}, A, B, add, scale-a, scale-b [, tr-a], tr-b
  void product(Instruction& instruction, const std::vector<std::string>& parts,
               const std::vector<std::string>& operands) {
    const std::string& shape = parts.at(4);
    const bool in_registers = operands.at(1).front() == '{';
    const std::size_t immediates = in_registers ? 3 : 4;
    if (parts[1] != "mma_async" || parts.size() != 8 || parts[5] != "f32" || parts[6] != "bf16" ||
        parts[7] != "bf16" || !shape.starts_with("m64n") || !shape.ends_with("k16") ||
        operands.size() != 4 + immediates || operands[4] != "1" || operands[5] != "1" ||
        (!in_registers && operands[6] != "0" && operands[6] != "1"))
      throw Fault("an unknown form of wgmma");
    for (const std::string& name : in_braces(operands[0])) instruction.to.push_back(target(name, Type::f32));
    if (2 * static_cast<long>(instruction.to.size()) != std::strtol(shape.c_str() + 4, nullptr, 10))
      throw Fault("a wrong number of sums");
    for (const std::string& name : in_braces(operands[1]))
      instruction.from.push_back(source(name, in_registers ? Type::u32 : Type::u64));
    instruction.from.push_back(source(operands[2], Type::u64));
    instruction.from.push_back(source(operands[3], Type::pred));
    instruction.option = (in_registers ? 1 : 0) + (operands.back() == "1" ? 2 : 0) +
                         (!in_registers && operands[6] == "1" ? 4 : 0);
    instruction.run = &start_product;
  }

  void generic_address(Instruction& instruction, const std::vector<std::string>& parts,
                       const std::vector<std::string>& operands) {
    const bool from_generic = parts[1] == "to";
    const Space space = space_of(parts);
    const std::uint64_t window = space == Space::shared  ? kSharedWindow
                                 : space == Space::local ? kLocalWindow
                                 : space == Space::param ? kParamWindow
                                                         : 0;
    instruction.run = operations().at(from_generic ? "sub.u64" : "add.u64").run;
    instruction.to.push_back(target(operands[0], Type::u64));
    instruction.from = {source(operands[1], Type::u64), constant(window)};
  }

  void finish() {
    for (Instruction& instruction : program_.code)
      if (instruction.target >= 0) instruction.target = starts_[static_cast<std::size_t>(instruction.target)];
    const std::vector<int> places = places_of_registers(program_.code, bytes_, program_.registers);
    const auto shift = static_cast<int>(program_.registers);
    const auto move = [&](int& place) {
      if (place != -1) place = place < 0 ? shift + (-2 - place) : places[static_cast<std::size_t>(place)];
    };
    for (Instruction& instruction : program_.code) {
      move(instruction.guard);
      for (int& place : instruction.to) move(place);
      for (int& place : instruction.from) move(place);
    }
    for (auto& [name, place] : program_.special) move(place);
    for (auto& [name, place] : program_.addresses) move(place);
    program_.registers += program_.constants.size();
  }

  Program program_;
  Inlined inlined_;
  Variables variables_;
  std::map<std::string, int> constants_, numbers_;
  std::vector<int> bytes_;          // of a warp's register, by its number
  std::vector<int> starts_;         // of each statement's instructions
  std::vector<Instruction> after_;  // of the statement that is translated
};

}  // namespace

std::unique_ptr<const Program> translate(const Module& module, const Function& function) {
  return Translator(module, function).run();
}

}  // namespace ptx
