// Checks a student's file: compiles it together with the check of its exercise, runs that, and judges the answers that
// come back. The program that holds the student's code knows nothing of what is right.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "examples/learn/checker/exercise.h"
#include "examples/learn/checker/judge.h"
#include "train/process/installation.h"

namespace eddy::app {

// The words that call the student's compiler: those of the environment variable CXX, or the first of c++, g++ and
// clang++ that is there.
// errors: ConfigError for no compiler, or a CXX that is not to be had.
std::vector<std::string> find_compiler();

// The command that makes `program` of a student's file, and PROGRAM.d, which lists what that includes.
// errors: ConfigError where this Eddy lacks what the exercise needs.
std::vector<std::string> compile_command(const std::vector<std::string>& compiler,
                                         const training::Installation& installation, const Exercise& exercise,
                                         const std::filesystem::path& file,
                                         const std::filesystem::path& program);

// A program made of a student's file and its check, after its end.
struct Ran {
  Answers answers;
  bool ended = false;  // it compiled, and exited with status 0
  std::string text;    // what the compiler and it said, and why it did not end well, in lines
};
// Compiles and runs a file, in `built` beside it.
// errors: as find_compiler and compile_command; ValueError for one that includes an answer.
Ran run_exercise(const training::Installation& installation, const Exercise& exercise,
                 const std::filesystem::path& file);

struct Checked {
  Verdict verdict;
  std::string text;  // what to tell the student, in lines
};
// errors: as run_exercise; FormatError as judge().
Checked check_exercise(const training::Installation& installation, const Exercise& exercise,
                       const std::filesystem::path& file);

}  // namespace eddy::app
