// Calls within PTX, such as pow's, replaced by the statements of what is called.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "tests/ptx/interpreter/module.h"

namespace ptx {

struct Inlined {
  std::vector<Statement> statements;
  std::map<std::string, std::size_t> labels;  // of the statement that follows
  std::map<std::string, Type> registers;
};

// The registers and labels of what is called get a prefix, its parameters become registers.
// errors: Fault for a call within a call.
Inlined with_calls_inlined(const Module& module, const Function& function);

// "add.s32" as "add" and "s32".
std::vector<std::string> parts_of(const std::string& op);

}  // namespace ptx
