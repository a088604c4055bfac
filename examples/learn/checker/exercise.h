// The exercises of examples/learn/, read from their files: NN_name.cpp is the one with a hole, and begins with the
// line "// Exercise 3: its title" and the task; checks/NN_name.cpp begins with what it needs and its hints; answers/
// has the same files without a hole, and their usual mistakes; wanted/NN_name.json what these answer. A student gets
// no answers/.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace eddy::app {

enum class Needs { compiler, eddy, tree };

struct Exercise {
  int number = 0;
  std::string name;   // "softplus"
  std::string file;   // "01_softplus.cpp"
  std::string title;  // "softplus and its gradient"
  std::string task;   // the lines of the comment below the title
  Needs needs = Needs::compiler;
  std::vector<std::string> hints;

  std::filesystem::path check(const std::filesystem::path& exercises) const;
  std::filesystem::path answer(const std::filesystem::path& exercises) const;
  std::filesystem::path mistakes(const std::filesystem::path& exercises) const;
  std::filesystem::path wanted(const std::filesystem::path& exercises) const;
};

// All of them, in order.
// errors: IoError; FormatError for a file that has not this form.
std::vector<Exercise> read_exercises(const std::filesystem::path& folder);

// The one with this number, name or file.
// errors: ValueError.
const Exercise& find_exercise(const std::vector<Exercise>& exercises, const std::string& which);

}  // namespace eddy::app
