// The text of a PTX module, taken apart: functions, their registers, statements and labels, and variables.
// source: PTX ISA 9.0, "Syntax" and "State Spaces, Types, and Variables".
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "tests/ptx/interpreter/types.h"

namespace ptx {

// `@%p1 add.s32 %r1, %r2, 4;`
struct Statement {
  std::string guard;  // the predicate's name, or ""
  bool negated = false;
  std::string op;                     // "add.s32"
  std::vector<std::string> operands;  // a list in braces is one operand
  int line = 0;                       // of the module's text

  std::string text() const;
};

struct Variable {
  std::string name;
  Space space = Space::global;
  int align = 1;
  std::int64_t bytes = 0;  // 0: the dynamic shared memory
  std::vector<unsigned char> values;
};

struct Function {
  std::string name;
  bool entry = false;
  std::vector<Variable> parameters;       // of an entry; `offset` by order and alignment
  std::vector<std::string> results;       // of a function: the names of its results
  std::map<std::string, Type> registers;  // by name; of `%r<5>` the prefix "%r"
  std::vector<Variable> variables;        // shared and local ones
  std::vector<Statement> body;
  std::map<std::string, std::size_t> labels;  // of the statement that follows
};

struct Module {
  std::string file;
  std::vector<Variable> variables;  // shared and global ones
  std::vector<Function> functions;

  // Returns a function with a body.
  // errors: Fault where there is none.
  const Function& function(std::string_view name) const;
};

// errors: Fault with the line for text that this parser does not know.
Module parse_module(const std::string& file, std::string_view text);
// Returns the parts of "a, {b, c}, d" at commas outside of braces, without blanks around them.
std::vector<std::string> split_list(std::string_view text);

}  // namespace ptx
