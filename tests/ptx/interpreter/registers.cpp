// A register's life is the stretch of the code from its first to its last mention, and around loops that it may
// live across: longer than needed, and never too short.
#include "tests/ptx/interpreter/registers.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <set>

namespace ptx {
namespace {

struct Life {
  int first = -1, last = -1;
  bool read_first = false;  // or written for some lanes only
};

std::vector<Life> lives_of(const std::vector<Instruction>& code, std::size_t registers) {
  std::vector<Life> lives(registers);
  const auto mention = [&](int number, int at, bool reads) {
    if (number < 0) return;
    Life& life = lives[static_cast<std::size_t>(number)];
    if (life.first < 0) life = {at, at, reads};
    life.last = at;
  };
  for (int at = 0; at < static_cast<int>(code.size()); ++at) {
    const Instruction& instruction = code[static_cast<std::size_t>(at)];
    mention(instruction.guard, at, true);
    for (const int number : instruction.from) mention(number, at, true);
    for (const int number : instruction.to) mention(number, at, instruction.guard != -1);
  }
  // A loop is what lies between a branch and an earlier target. Its registers live in all of it if their values
  // may pass from one turn to the next, or into it or out of it.
  for (bool changed = true; changed;) {
    changed = false;
    for (int at = 0; at < static_cast<int>(code.size()); ++at) {
      const int begin = code[static_cast<std::size_t>(at)].target;
      if (begin < 0 || begin > at) continue;
      for (Life& life : lives) {
        if (life.first < 0 || life.last < begin || life.first > at) continue;
        if (life.first >= begin && life.last <= at && !life.read_first) continue;
        const Life longer{std::min(life.first, begin), std::max(life.last, at), life.read_first};
        changed = changed || longer.first != life.first || longer.last != life.last;
        life = longer;
      }
    }
  }
  return lives;
}

}  // namespace

std::vector<int> places_of_registers(const std::vector<Instruction>& code, const std::vector<int>& bytes,
                                     std::size_t& size) {
  const std::vector<Life> lives = lives_of(code, bytes.size());
  const bool share = std::none_of(code.begin(), code.end(), [](const Instruction& instruction) {
    return instruction.kind == Kind::warpgroup;  // whose products use registers after their last mention
  });
  std::vector<std::size_t> order(bytes.size());
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(),
            [&](std::size_t a, std::size_t b) { return lives[a].first < lives[b].first; });
  std::vector<int> places(bytes.size(), -1);
  std::map<int, std::multimap<int, int>> used;  // by size: the end of a life and its place
  for (const std::size_t number : order) {
    std::multimap<int, int>& ends = used[bytes[number]];
    const auto ended = ends.begin();
    if (share && ended != ends.end() && ended->first < lives[number].first) {
      places[number] = ended->second;
      ends.erase(ended);
    } else {
      places[number] = static_cast<int>(size);
      size += static_cast<std::size_t>(bytes[number]);
    }
    ends.emplace(lives[number].last, places[number]);
  }
  return places;
}

Variables place_variables(Program& program) {
  Variables variables;
  const Function& function = *program.function;
  std::int64_t at = 0;
  for (const Variable& parameter : function.parameters) {
    at = (at + parameter.align - 1) / parameter.align * parameter.align;
    variables[parameter.name] = {Space::param, at};
    at += parameter.bytes;
  }
  program.parameter_bytes = at;
  std::set<std::string> used;
  for (const Statement& statement : program.statements)
    for (const std::string& operand : statement.operands)
      for (const Variable& variable : program.module->variables)
        if (operand.find(variable.name) != std::string::npos) used.insert(variable.name);
  std::vector<const Variable*> dynamic;
  const auto place = [&](const Variable& variable) {
    std::int64_t& end = variable.space == Space::shared ? program.static_shared : program.local_bytes;
    end = (end + variable.align - 1) / variable.align * variable.align;
    variables[variable.name] = {variable.space, end};
    end += variable.bytes;
    if (variable.space == Space::shared && variable.bytes == 0) dynamic.push_back(&variable);
  };
  for (const Variable& variable : function.variables) place(variable);
  for (const Variable& variable : program.module->variables) {
    if (!used.contains(variable.name)) continue;
    if (variable.space == Space::shared)
      place(variable);
    else
      variables[variable.name] = {Space::global, 0};
  }
  program.local_bytes = (program.local_bytes + 15) / 16 * 16;
  for (const Variable* variable : dynamic)
    variables[variable->name].second = (program.static_shared + 15) / 16 * 16;
  return variables;
}

}  // namespace ptx
