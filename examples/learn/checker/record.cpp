// Runs an answer, plants each usual mistake in it, and writes down what both give.
#include "examples/learn/checker/record.h"

#include <algorithm>
#include <sstream>
#include <utility>

#include "examples/learn/checker/check.h"
#include "tensor/base/error.h"
#include "tensor/base/format.h"
#include "train/files/folders.h"
#include "train/files/text_file.h"

namespace eddy::app {
using namespace training;
namespace {

namespace fs = std::filesystem;

std::string edited(const fs::path& path, std::string text, const std::string& before,
                   const std::string& after) {
  const std::size_t at = text.find(before);
  if (before.empty() || at == std::string::npos || text.find(before, at + 1) != std::string::npos)
    fail<FormatError>("learn: {}: the answer has not once: {}", path.string(), before);
  return text.replace(at, before.size(), after);
}

// The answers of a program made of this text.
std::vector<Answer> answers_of(const Installation& installation, const Exercise& exercise,
                               const fs::path& folder, const std::string& text, const std::string& what) {
  const fs::path file = folder / exercise.file;
  replace_text_file(file, text);
  const Ran ran = run_exercise(installation, exercise, file);
  if (!ran.ended || !ran.answers.complete)
    fail<ValueError>("learn: exercise {}, {}: it does not run to its end\n{}", exercise.number, what,
                     ran.text);
  return ran.answers.all;
}

// The values of each part that is not as wanted.
Mistake difference(const std::string& sentence, const std::vector<Answer>& answers, const Wanted& wanted) {
  Mistake mistake{sentence, {}};
  for (std::size_t i = 0; i < std::min(answers.size(), wanted.all.size()); ++i)
    if (!are_near(answers[i].values, wanted.all[i].values, wanted.all[i].tolerance))
      mistake.parts.emplace(wanted.all[i].part, values_of(answers, wanted.all[i].part));
  return mistake;
}

}  // namespace

std::vector<PlantedMistake> read_mistakes(const fs::path& path, const std::string& answer) {
  std::istringstream stream(read_text_file(path) + "\n\n");
  std::vector<PlantedMistake> mistakes;
  std::string sentence, text = answer, before, after;
  bool has_after = false;  // which may be no lines at all
  const auto apply = [&] {
    if (!before.empty() || has_after) text = edited(path, text, before, after);
    before.clear();
    after.clear();
    has_after = false;
  };
  const auto add = [](std::string& lines, const std::string& line) {
    lines += (lines.empty() ? "" : "\n") + line.substr(std::min<std::size_t>(2, line.size()));
  };
  for (std::string line; std::getline(stream, line);) {
    if (line.starts_with('-')) {
      if (has_after) apply();
      add(before, line);
    } else if (line.starts_with('+')) {
      has_after = true;
      add(after, line);
    } else if (!line.empty()) {
      apply();
      sentence += (sentence.empty() ? "" : " ") + line;
    } else if (!sentence.empty()) {
      apply();
      if (text == answer) fail<FormatError>("learn: {}: no edit behind: {}", path.string(), sentence);
      mistakes.push_back({std::exchange(sentence, ""), std::exchange(text, answer)});
    }
  }
  return mistakes;
}

Wanted record_exercise(const Installation& installation, const Exercise& exercise, const fs::path& folder) {
  make_folders(folder);
  const auto run = [&](const std::string& text, const std::string& what) {
    return answers_of(installation, exercise, folder, text, what);
  };
  const std::string answer = read_text_file(exercise.answer(installation.exercises));
  Wanted wanted;
  wanted.all = run(answer, "its answer");
  const std::string hole = read_text_file(installation.exercises / exercise.file);
  if (difference("", run(hole, "as it is handed out"), wanted).parts.empty())
    fail<ValueError>("learn: exercise {} is right as it is handed out", exercise.number);
  for (const PlantedMistake& planted : read_mistakes(exercise.mistakes(installation.exercises), answer)) {
    Mistake mistake = difference(planted.sentence, run(planted.answer, planted.sentence), wanted);
    if (mistake.parts.empty())
      fail<ValueError>("learn: exercise {}: this mistake changes no answer: {}", exercise.number,
                       planted.sentence);
    for (const Mistake& other : wanted.mistakes)
      if (shows(mistake.parts, other, wanted) || shows(other.parts, mistake, wanted))
        fail<ValueError>("learn: exercise {}: no answer tells these apart: {} / {}", exercise.number,
                         mistake.sentence, other.sentence);
    wanted.mistakes.push_back(std::move(mistake));
  }
  return wanted;
}

}  // namespace eddy::app
