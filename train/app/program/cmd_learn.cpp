// `eddy learn`: exercises for a student, which check themselves.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "examples/learn/checker/check.h"
#include "examples/learn/checker/exercise.h"
#include "examples/learn/checker/installation.h"
#include "examples/learn/checker/student_folder.h"
#include "tensor/base/format.h"
#include "train/app/program/commands.h"
#include "train/files/text_file.h"
#include "train/words/human_text.h"
#include "train/words/program_name.h"

namespace eddy::app {
using namespace training;
namespace {

constexpr const char* kFolder = "learn";

struct LearnFlags {
  std::string folder = kFolder, which;
};

// What every one of these commands begins with.
struct Lessons {
  explicit Lessons(const LearnFlags& flags)
      : installation(find_installation()),
        exercises(read_exercises(installation.exercises)),
        student(folder_of(flags)) {
    command = program_name() + " learn";
    if (flags.folder != kFolder) command += " --folder " + shell_quoted(flags.folder);
  }
  // Who works in the folder itself means this one.
  static std::string folder_of(const LearnFlags& flags) {
    return flags.folder == kFolder && !std::filesystem::exists(kFolder) && StudentFolder::is_one(".")
               ? "."
               : flags.folder;
  }

  bool is_done(const Exercise& exercise) const { return student.is_right(exercise.name); }
  // The first one that is not right yet; null when all are.
  const Exercise* next() const {
    const auto found =
        std::find_if(exercises.begin(), exercises.end(), [&](const auto& e) { return !is_done(e); });
    return found == exercises.end() ? nullptr : &*found;
  }
  // The one that was asked for, or the next one.
  const Exercise& chosen(const std::string& which) const {
    const Exercise* const open = next();
    if (!which.empty()) return find_exercise(exercises, which);
    return open != nullptr ? *open : exercises.back();
  }
  std::string file(const Exercise& exercise) const { return student.file(exercise.file).string(); }

  Installation installation;
  std::vector<Exercise> exercises;
  StudentFolder student;
  std::string command;  // as the student calls it
};

int list_exercises(const LearnFlags& flags) {
  const Lessons lessons(flags);
  const auto done = std::count_if(lessons.exercises.begin(), lessons.exercises.end(),
                                  [&](const auto& e) { return lessons.is_done(e); });
  const Exercise* const next = lessons.next();
  for (const Exercise& exercise : lessons.exercises)
    print_line("{} {:2}  {:<28} {}{}",
               lessons.is_done(exercise) ? "  right"
               : &exercise == next       ? "   next"
                                         : "       ",
               exercise.number, exercise.name, exercise.title,
               exercise.needs == Needs::eddy   ? " (with Eddy)"
               : exercise.needs == Needs::tree ? " (in Eddy's tree)"
                                               : "");
  print_line("\n{} of {} are right, in {}.", done, lessons.exercises.size(),
             lessons.student.folder().string());
  if (next != nullptr) print_line("Next: {} {}", lessons.command, next->number);
  return 0;
}

int show_exercise(const LearnFlags& flags) {
  Lessons lessons(flags);
  const Exercise& exercise = lessons.chosen(flags.which);
  const bool copied = lessons.student.take(lessons.installation.exercises / exercise.file);
  print_line("Exercise {}: {}\n\n{}", exercise.number, exercise.title, exercise.task);
  print_line("{} {}. Complete it, then:\n", lessons.file(exercise),
             copied ? "is there for you" : "is there already");
  print_line("    {} check {}", lessons.command, exercise.number);
  print_line("    {} hint {}       ({} in all)", lessons.command, exercise.number, exercise.hints.size());
  return 0;
}

int check_one(const LearnFlags& flags) {
  Lessons lessons(flags);
  const Exercise& exercise = lessons.chosen(flags.which);
  std::error_code error;
  if (!std::filesystem::is_regular_file(lessons.file(exercise), error))
    fail<IoError>("learn: there is no {} ({} {} writes it)", lessons.file(exercise), lessons.command,
                  exercise.number);
  const Checked checked = check_exercise(lessons.installation, exercise, lessons.file(exercise));
  print(checked.text);
  if (!checked.right) {
    print_line("exercise {} is not right yet ({} hint {})", exercise.number, lessons.command,
               exercise.number);
    return 1;
  }
  lessons.student.note_right(exercise.name);
  const Exercise* const next = lessons.next();
  print_line("exercise {} is right{}", exercise.number,
             next == nullptr ? ", and so are all others"
                             : fmt::format("; next: {} {}", lessons.command, next->number));
  return 0;
}

int give_hint(const LearnFlags& flags) {
  Lessons lessons(flags);
  const Exercise& exercise = lessons.chosen(flags.which);
  const int hints = static_cast<int>(exercise.hints.size());
  const int given = lessons.student.next_hint(exercise.name, hints);
  for (int i = 0; i < given; ++i)
    print_line("hint {} of {}: {}", i + 1, hints, exercise.hints[static_cast<std::size_t>(i)]);
  if (given == hints) print_line("({} answer {} prints an answer)", lessons.command, exercise.number);
  return 0;
}

int print_answer(const LearnFlags& flags) {
  const Lessons lessons(flags);
  print(read_text_file(lessons.chosen(flags.which).answer(lessons.installation.exercises)));
  return 0;
}

// A command below that works on one exercise.
Command command_on_exercise(const char* name, const char* what, const std::string& help,
                            const std::shared_ptr<LearnFlags>& flags, int (*run)(const LearnFlags&)) {
  return {name, what, Computes::nothing, Results::printed, [=](CLI::App& command) -> Described {
            command
                .add_option("EXERCISE", flags->which, help + " (a number or a name; default: the next one)")
                ->check(not_empty());
            return {[flags, run] { return run(*flags); }};
          }};
}

Described describe_learn(CLI::App& command) {
  command.require_subcommand(0, 1);
  const auto flags = std::make_shared<LearnFlags>();
  add_option(command, "--folder", flags->folder,
             "Your folder: the files that you complete, and what is right so far", not_empty());
  command
      .add_option("EXERCISE", flags->which,
                  "Show an exercise, a number or a name, and copy its file to your folder")
      ->check(not_empty());
  command.footer("Without an exercise it lists all of them. docs/tour/ leads through Eddy along them.");
  return {[flags] { return flags->which.empty() ? list_exercises(*flags) : show_exercise(*flags); },
          {command_on_exercise("check", "Compile your file and check it", "The exercise to check", flags,
                               check_one),
           command_on_exercise("hint", "Give one more hint", "The exercise to help with", flags, give_hint),
           command_on_exercise("answer", "Print an answer", "The exercise to give up", flags, print_answer)}};
}

}  // namespace

Command commands::learn() {
  return {"learn", "Exercises from softplus to a CUDA kernel, which check themselves", Computes::nothing,
          Results::printed, describe_learn};
}

}  // namespace eddy::app
