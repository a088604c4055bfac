// Checks a student's file: compiles it together with the check of its exercise, and runs that.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "examples/learn/checker/exercise.h"
#include "examples/learn/checker/installation.h"

namespace eddy::app {

// The words that call the student's compiler: those of the environment variable CXX, or the first of c++, g++ and
// clang++ that is there.
// errors: ConfigError for no compiler, or a CXX that is not to be had.
std::vector<std::string> find_compiler();

// The command that makes `program` of a student's file.
// errors: ConfigError where this Eddy lacks what the exercise needs.
std::vector<std::string> compile_command(const std::vector<std::string>& compiler,
                                         const Installation& installation, const Exercise& exercise,
                                         const std::filesystem::path& file,
                                         const std::filesystem::path& program);

struct Checked {
  bool right = false;
  std::string text;  // what to tell the student, in lines
};

// errors: as find_compiler and compile_command.
Checked check_exercise(const Installation& installation, const Exercise& exercise,
                       const std::filesystem::path& file);

}  // namespace eddy::app
