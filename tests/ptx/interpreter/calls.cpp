#include "tests/ptx/interpreter/calls.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cstring>
#include <utility>

namespace ptx {
namespace {

class Inliner : Inlined {
 public:
  Inliner(const Module& module, const Function& function) : module_(module), function_(function) {}

  Inlined run() {
    labels = function_.labels;
    registers = function_.registers;
    std::map<std::size_t, std::size_t> moved;
    for (std::size_t i = 0; i < function_.body.size(); ++i) {
      moved[i] = statements.size();
      const Statement& statement = function_.body[i];
      if (parts_of(statement.op)[0] == "call")
        call(statement);
      else
        statements.push_back(statement);
    }
    moved[function_.body.size()] = statements.size();
    for (auto& [name, at] : labels)
      if (function_.labels.contains(name)) at = moved.at(at);
    return std::move(static_cast<Inlined&>(*this));
  }

 private:
  void call(const Statement& statement) {  // call.uni (result), name, (parameter, ...)
    if (statement.operands.size() != 3)
      throw Fault("a call of a form that is not known: " + statement.text());
    const Function& callee = module_.function(statement.operands[1]);
    const std::string prefix = fmt::format("call{}:", ++calls_);
    const auto inner = [](const std::string& text) {
      return split_list(std::string_view(text).substr(1, text.size() - 2));
    };
    std::map<std::string, std::string> names;
    const std::vector<std::string> results = inner(statement.operands[0]),
                                   values = inner(statement.operands[2]);
    for (std::size_t i = 0; i < results.size(); ++i) names[callee.results.at(i)] = results[i];
    for (std::size_t i = 0; i < values.size(); ++i) names[callee.parameters.at(i).name] = values[i];
    for (const auto& [name, type] : callee.registers) registers[prefix + name] = type;
    const std::size_t first = statements.size();
    const std::string end = prefix + "end";
    for (Statement copy : callee.body) {
      if (!copy.guard.empty()) copy.guard = prefix + copy.guard;
      const std::string base = parts_of(copy.op)[0];
      if (base == "call") throw Fault("a call within a call: " + statement.text());
      if (base == "ret" || base == "exit") {
        copy.op = "bra";
        copy.operands = {end};
      } else {
        for (std::string& operand : copy.operands) operand = renamed(operand, prefix, names, callee);
      }
      statements.push_back(std::move(copy));
    }
    for (const auto& [name, at] : callee.labels) labels[prefix + name] = first + at;
    labels[end] = statements.size();
  }

  static std::string renamed(const std::string& operand, const std::string& prefix,
                             const std::map<std::string, std::string>& names, const Function& callee) {
    std::string result;
    for (std::size_t at = 0; at < operand.size();) {
      std::size_t end = at;
      while (end < operand.size() && (std::isalnum(static_cast<unsigned char>(operand[end])) != 0 ||
                                      std::strchr("_$%.", operand[end]) != nullptr))
        ++end;
      if (end == at) {
        result += operand[at++];
        continue;
      }
      const std::string word = operand.substr(at, end - at);
      const std::string stem = word.substr(0, word.find_last_not_of("0123456789") + 1);
      if (const auto name = names.find(word); name != names.end())
        result += name->second;
      else if (callee.registers.contains(word) || callee.registers.contains(stem) ||
               callee.labels.contains(word))
        result += prefix + word;
      else
        result += word;
      at = end;
    }
    return result;
  }

  const Module& module_;
  const Function& function_;
  int calls_ = 0;
};

}  // namespace

Inlined with_calls_inlined(const Module& module, const Function& function) {
  return Inliner(module, function).run();
}

std::vector<std::string> parts_of(const std::string& op) {
  std::vector<std::string> parts;
  for (std::size_t at = 0; at <= op.size();) {
    const std::size_t end = std::min(op.find('.', at), op.size());
    parts.push_back(op.substr(at, end - at));
    at = end + 1;
  }
  return parts;
}

}  // namespace ptx
