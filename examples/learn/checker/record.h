// Records what is wanted of an exercise: its answer is run, and once more with each usual mistake in it. A student's
// program is later compared with what these gave, without an answer near it.
//
// A file of mistakes has for each a sentence, and edits of the answer, which stand in it once:
//
//   A number that was used twice keeps only the last gradient: write += in place of =.
//   - gradient += tape[i].gradient * input.slope
//   + gradient = tape[i].gradient * input.slope
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "examples/learn/checker/exercise.h"
#include "examples/learn/checker/judge.h"
#include "train/process/installation.h"

namespace eddy::app {

struct PlantedMistake {
  std::string sentence;
  std::string answer;  // with the mistake in it
};
// errors: IoError; FormatError for a file that has not this form, or an edit whose lines the answer has not once.
std::vector<PlantedMistake> read_mistakes(const std::filesystem::path& path, const std::string& answer);

// Compiles and runs all of them in a folder.
// errors: ValueError for an answer that does not run, an exercise that is right as it is handed out, a mistake that
// does not run or changes no answer, and two that no answer tells apart.
Wanted record_exercise(const training::Installation& installation, const Exercise& exercise,
                       const std::filesystem::path& folder);

}  // namespace eddy::app
