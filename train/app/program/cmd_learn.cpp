// `eddy learn`: exercises for a student, which check themselves.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "examples/learn/checker/check.h"
#include "examples/learn/checker/exercise.h"
#include "examples/learn/checker/record.h"
#include "examples/learn/checker/student_folder.h"
#include "tensor/base/error.h"
#include "tensor/base/format.h"
#include "train/app/program/commands.h"
#include "train/app/views/table.h"
#include "train/files/folders.h"
#include "train/files/text_file.h"
#include "train/process/installation.h"
#include "train/words/human_text.h"
#include "train/words/program_name.h"

namespace eddy::app {
using namespace training;
namespace {

constexpr const char* kFolder = "learn";

struct LearnFlags {
  std::string folder = kFolder, which, exercises;
  bool all = false, json = false;
};

// What every one of these commands begins with.
struct Lessons {
  explicit Lessons(const LearnFlags& flags)
      : installation(find_installation(flags.exercises)),
        exercises(read_exercises(installation.exercises)),
        student(folder_of(flags)) {
    command = program_name() + " learn";
    if (!flags.exercises.empty()) command += " --exercises " + shell_quoted(flags.exercises);
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
  Table table{{}, {}, "rrl"};
  for (const Exercise& exercise : lessons.exercises)
    table.rows.push_back({lessons.is_done(exercise) ? "right"
                          : &exercise == next       ? "next"
                                                    : "",
                          std::to_string(exercise.number), exercise.name,
                          exercise.title + (exercise.needs == Needs::eddy   ? " (with Eddy)"
                                            : exercise.needs == Needs::tree ? " (in Eddy's tree)"
                                                                            : "")});
  print(to_text(table, 2));
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

bool is_handed_in(const Lessons& lessons, const Exercise& exercise) {
  std::error_code error;
  return std::filesystem::is_regular_file(lessons.file(exercise), error);
}

// Checks an exercise, and notes it where it is right. What this Eddy cannot check is not right.
Checked checked_of(Lessons& lessons, const Exercise& exercise) try {
  if (!is_handed_in(lessons, exercise))
    fail<IoError>("learn: there is no {} ({} {} writes it)", lessons.file(exercise), lessons.command,
                  exercise.number);
  Checked checked = check_exercise(lessons.installation, exercise, lessons.file(exercise));
  if (checked.verdict.right) lessons.student.note_right(exercise.name);
  return checked;
} catch (const Error& error) {
  return {{}, std::string(error.what()) + '\n'};
}

nlohmann::ordered_json json_of(const Lessons& lessons, const Exercise& exercise, const Checked& checked) {
  return {{"exercise", exercise.number},
          {"name", exercise.name},
          {"file", lessons.file(exercise)},
          {"handed_in", is_handed_in(lessons, exercise)},
          {"right", checked.verdict.right},
          {"answers", checked.verdict.answers},
          {"right_answers", checked.verdict.right_answers},
          {"mistakes", checked.verdict.mistakes},
          {"text", checked.text}};
}

// A line for each exercise, or an array of objects. Returns 0 where all are right.
int check_all(const LearnFlags& flags) {
  Lessons lessons(flags);
  if (!flags.which.empty())
    fail<ConfigError>("learn: --all checks every exercise (leave out {})", flags.which);
  nlohmann::ordered_json results = nlohmann::ordered_json::array();
  std::size_t right = 0;
  for (const Exercise& exercise : lessons.exercises) {
    const Checked checked = checked_of(lessons, exercise);
    right += checked.verdict.right ? 1 : 0;
    results.push_back(json_of(lessons, exercise, checked));
    if (flags.json) continue;
    print_line("{} {:2}  {}",
               checked.verdict.right             ? "  right"
               : is_handed_in(lessons, exercise) ? "  wrong"
                                                 : "missing",
               exercise.number, exercise.name);
    for (const std::string& mistake : checked.verdict.mistakes) print_line("             {}", mistake);
  }
  if (flags.json)
    print_line("{}", results.dump(1, ' ', false, nlohmann::json::error_handler_t::replace));
  else
    print_line("{} of {} are right", right, lessons.exercises.size());
  return right == lessons.exercises.size() ? 0 : 1;
}

int check_one(const LearnFlags& flags) {
  if (flags.all) return check_all(flags);
  Lessons lessons(flags);
  const Exercise& exercise = lessons.chosen(flags.which);
  if (flags.json) {
    const Checked checked = checked_of(lessons, exercise);
    print_line(
        "{}",
        json_of(lessons, exercise, checked).dump(1, ' ', false, nlohmann::json::error_handler_t::replace));
    return checked.verdict.right ? 0 : 1;
  }
  if (!is_handed_in(lessons, exercise))
    fail<IoError>("learn: there is no {} ({} {} writes it)", lessons.file(exercise), lessons.command,
                  exercise.number);
  const Checked checked = check_exercise(lessons.installation, exercise, lessons.file(exercise));
  print(checked.text);
  if (!checked.verdict.right) {
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

// A folder for programs that no one needs later.
struct Scratch {
  ~Scratch() {
    std::error_code error;
    std::filesystem::remove_all(folder, error);
  }
  std::filesystem::path folder =
      std::filesystem::temp_directory_path() / fmt::format("eddy-learn-{}", ::getpid());
};

// For who writes exercises: runs the answers, with and without their usual mistakes.
int record_answers(const LearnFlags& flags) {
  const Lessons lessons(flags);
  const Scratch scratch;
  const std::filesystem::path exercises = lessons.installation.exercises;
  for (const Exercise& exercise : lessons.exercises) {
    if (!flags.which.empty() && &exercise != &find_exercise(lessons.exercises, flags.which)) continue;
    const std::filesystem::path file = exercise.wanted(exercises);
    const Wanted wanted = record_exercise(lessons.installation, exercise, scratch.folder);
    make_folders(file.parent_path());
    replace_text_file(file, wanted_text(wanted));
    print_line("{}: {} answers, {} mistakes", file.string(), wanted.all.size(), wanted.mistakes.size());
  }
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
  const Exercise& exercise = lessons.chosen(flags.which);
  const std::filesystem::path answer = exercise.answer(lessons.installation.exercises);
  std::error_code error;
  if (!std::filesystem::exists(answer, error))
    fail<IoError>("learn: no answer to exercise {} lies beside these exercises", exercise.number);
  print(read_text_file(answer));
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

Command check_command(const std::shared_ptr<LearnFlags>& flags) {
  Command check = command_on_exercise("check", "Compile your file and check it", "The exercise to check",
                                      flags, check_one);
  check.describe = [flags, describe = check.describe](CLI::App& command) {
    command.add_flag("--all", flags->all, "Check every exercise, one after another");
    command.add_flag("--json", flags->json, "Print the results as JSON");
    return describe(command);
  };
  return check;
}

Command record_command(const std::shared_ptr<LearnFlags>& flags) {
  return {"record", "Run the answers of exercises of your own, and record what is wanted", Computes::nothing,
          Results::printed, [flags](CLI::App& command) -> Described {
            command.add_option("EXERCISE", flags->which, "The exercise to record (default: all)")
                ->check(not_empty());
            return {[flags] { return record_answers(*flags); }};
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
  add_option(command, "--exercises", flags->exercises,
             "A folder of other exercises, a class's own (examples/learn/own/README.md)", not_empty());
  command.footer("Without an exercise it lists all of them. docs/tour/ leads through Eddy along them.");
  return {[flags] { return flags->which.empty() ? list_exercises(*flags) : show_exercise(*flags); },
          {check_command(flags),
           command_on_exercise("hint", "Give one more hint", "The exercise to help with", flags, give_hint),
           command_on_exercise("answer", "Print an answer", "The exercise to give up", flags, print_answer),
           record_command(flags)}};
}

}  // namespace

Command commands::learn() {
  return {"learn", "Exercises from softplus to a CUDA kernel, which check themselves", Computes::nothing,
          Results::printed, describe_learn};
}

}  // namespace eddy::app
