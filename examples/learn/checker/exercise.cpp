// Reads the head comments of exercises and of their checks.
#include "examples/learn/checker/exercise.h"

#include <algorithm>
#include <charconv>
#include <sstream>
#include <string_view>

#include "tensor/base/error.h"
#include "tensor/base/format.h"
#include "train/files/text_file.h"
#include "train/words/program_name.h"
#include "train/words/suggest.h"

namespace eddy::app {
using namespace training;
namespace {

namespace fs = std::filesystem;

// The lines of the comment at the top of a file, without "// " or "//".
std::vector<std::string> first_comment(const fs::path& path) {
  std::istringstream text(read_text_file(path));
  std::vector<std::string> lines;
  for (std::string line; std::getline(text, line) && line.starts_with("//");)
    lines.push_back(line.substr(line.starts_with("// ") ? 3 : 2));
  return lines;
}

void read_check(Exercise& exercise, const fs::path& path) {
  constexpr std::string_view kNeeds = "needs: ", kHint = "hint: ";
  for (const std::string& line : first_comment(path)) {
    if (line.starts_with(kNeeds)) {
      const std::string what = line.substr(kNeeds.size());
      if (what != "eddy" && what != "tree")
        fail<FormatError>("learn: {}: 'needs: {}' (eddy or tree)", path.string(), what);
      exercise.needs = what == "eddy" ? Needs::eddy : Needs::tree;
    } else if (line.starts_with(kHint)) {
      exercise.hints.push_back(line.substr(kHint.size()));
    } else if (exercise.hints.empty()) {
      fail<FormatError>("learn: {}: a line above the first hint that is none", path.string());
    } else {
      exercise.hints.back() += '\n' + line.substr(std::min(kHint.size(), line.size()));
    }
  }
  if (exercise.hints.empty()) fail<FormatError>("learn: {} has no hint", path.string());
}

Exercise read_exercise(const fs::path& path) {
  Exercise exercise;
  exercise.file = path.filename().string();
  const std::string stem = path.stem().string();
  const auto [end, error] = std::from_chars(stem.data(), stem.data() + stem.size(), exercise.number);
  if (error != std::errc() || *end != '_')
    fail<FormatError>("learn: {} is no exercise (its name begins with a number, as 01_softplus.cpp)",
                      path.string());
  exercise.name = end + 1;
  const std::vector<std::string> comment = first_comment(path);
  const std::string before = fmt::format("Exercise {}: ", exercise.number);
  if (comment.empty() || !comment.front().starts_with(before))
    fail<FormatError>("learn: {} does not begin with '// {}' and its title", path.string(), before);
  exercise.title = comment.front().substr(before.size());
  for (std::size_t i = 2; i < comment.size(); ++i) exercise.task += comment[i] + '\n';
  return exercise;
}

}  // namespace

fs::path Exercise::check(const fs::path& exercises) const {
  return exercises / "checks" / fs::path(file).replace_extension(".cpp");
}

fs::path Exercise::answer(const fs::path& exercises) const {
  return exercises / "answers" / file;
}

fs::path Exercise::mistakes(const fs::path& exercises) const {
  return answer(exercises).replace_extension(".mistakes");
}

fs::path Exercise::wanted(const fs::path& exercises) const {
  return exercises / "wanted" / fs::path(file).replace_extension(".json");
}

std::vector<Exercise> read_exercises(const fs::path& folder) {
  std::vector<Exercise> exercises;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
    if (entry.path().extension() != ".cpp" && entry.path().extension() != ".cu") continue;
    exercises.push_back(read_exercise(entry.path()));
    read_check(exercises.back(), exercises.back().check(folder));
  }
  std::sort(exercises.begin(), exercises.end(),
            [](const Exercise& a, const Exercise& b) { return a.number < b.number; });
  for (std::size_t i = 0; i < exercises.size(); ++i)
    if (exercises[i].number != static_cast<int>(i) + 1)
      fail<FormatError>("learn: {} has no exercise {}", folder.string(), i + 1);
  return exercises;
}

const Exercise& find_exercise(const std::vector<Exercise>& exercises, const std::string& which) {
  std::vector<std::string> names{"check", "hint", "answer",
                                 "record"};  // commands, should one of these be misspelt
  for (const Exercise& exercise : exercises) {
    const std::string number = std::to_string(exercise.number),
                      stem = fs::path(exercise.file).stem().string();
    if (which == exercise.name || which == number || which == "0" + number || which == stem ||
        fs::path(which).filename() == exercise.file)
      return exercise;
    names.push_back(exercise.name);
  }
  const std::string likely = suggest_name(which, names);
  fail<ValueError>("learn: there is no exercise {} ({}1 to {}; {} learn lists them)", which,
                   likely.empty() ? "" : "nearest: " + likely + "; ", exercises.size(), program_name());
}

}  // namespace eddy::app
