// Finds a compiler, runs what it made of a student's file within limits, and words what came out.
#include "examples/learn/checker/check.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <sstream>
#include <system_error>

#include "tensor/base/error.h"
#include "tensor/base/format.h"
#include "tensor/files/descriptor.h"
#include "tensor/system/files.h"
#include "train/files/folders.h"
#include "train/files/text_file.h"
#include "train/process/running_program.h"

namespace eddy::app {
using namespace training;
namespace {

namespace fs = std::filesystem;

// A check takes milliseconds, on the emulated GPU a second; compiling takes a few.
constexpr double kSeconds = 10;
struct Limits {
  double seconds;
  std::int64_t memory_bytes;  // of addresses; 0: none
};
constexpr Limits kToCompile{120, 0};
// OpenBLAS and the emulated threads reserve addresses by the gigabyte; plain C++ does not.
constexpr Limits kToRun{kSeconds, std::int64_t{1} << 30}, kToRunMore{kSeconds, std::int64_t{16} << 30};
constexpr std::size_t kErrorLines = 30;  // of a compiler that are shown

std::vector<std::string> parts_of(const char* text, char separator) {
  std::vector<std::string> parts;
  std::istringstream stream(text);
  for (std::string part; std::getline(stream, part, separator);)
    if (!part.empty()) parts.push_back(part);
  return parts;
}

// Runs a compiler, or code that a student wrote, which may loop, print or allocate without end.
// errors: IoError where no process can be started.
ProgramEnd run_limited(const std::vector<std::string>& words, const Limits& limits, int input = kNowhere) {
  ProgramEnd end = run_to_end({.words = words,
                               .input = input,
                               .output = kRead,
                               .errors = kRead,
                               .memory_bytes = limits.memory_bytes,
                               .own_group = true,
                               .is_trial = true},
                              limits.seconds);
  if (end.error != 0 && end.found()) fail<IoError>("learn: {}", end.why(words.front()));
  return end;
}

bool answers(std::vector<std::string> compiler) {
  compiler.emplace_back("--version");
  return run_limited(compiler, kToRun).good();
}

std::string first_lines(const std::string& text, std::size_t most) {
  std::size_t end = 0;
  for (std::size_t line = 0; line < most && end < text.size(); ++line)
    end = std::min(text.find('\n', end), text.size() - 1) + 1;
  return text.substr(0, end) + (end < text.size() ? "...\n" : "");
}

std::string with_end(std::string text) {
  return text.empty() || text.ends_with('\n') ? text : text + '\n';
}

// A sanitizer reserves terabytes of addresses: then there is no limit on them.
Limits limits_to_run(const Exercise& exercise, const std::vector<std::string>& command) {
  Limits limits = exercise.needs == Needs::compiler ? kToRun : kToRunMore;
  if (std::any_of(command.begin(), command.end(),
                  [](const std::string& word) { return word.starts_with("-fsanitize="); }))
    limits.memory_bytes = 0;
  return limits;
}

// What a program printed: all of some lines, or the first and the last of many.
std::string first_and_last(const ProgramEnd& end) {
  constexpr std::size_t kFew = 40, kEach = 12, kWidth = 300;
  std::vector<std::string> lines;
  const auto take = [&](const std::string& text) {
    std::istringstream stream(text);
    for (std::string line; std::getline(stream, line);)
      lines.push_back(line.size() > kWidth ? line.substr(0, kWidth) + " ..." : line);
  };
  take(end.output);
  const std::size_t of_begin = lines.size();
  take(end.last);
  std::string text;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    const bool many = lines.size() > kFew || !end.last.empty();
    if (many && i == std::min(kEach, of_begin)) text += "... (it prints more)\n";
    if (!many || i < std::min(kEach, of_begin) || i + kEach >= lines.size()) text += lines[i] + '\n';
  }
  return text;
}

std::string content_of(const Descriptor& file) {
  constexpr std::size_t kMost = std::size_t{1} << 22;  // a check gives kilobytes
  std::string content;
  std::array<char, 4096> part{};
  for (ssize_t got; content.size() < kMost && (got = ::pread(file.get(), part.data(), part.size(),
                                                             static_cast<off_t>(content.size()))) > 0;)
    content.append(part.data(), static_cast<std::size_t>(got));
  return content;
}

// The files that a compiler's list names: words of a make rule, in which a space or # of a name stands behind a
// backslash, and $ is $$.
std::vector<std::string> included_files(const fs::path& list) {
  std::error_code error;
  if (!fs::exists(list, error)) return {};
  std::vector<std::string> names(1);
  const std::string text = read_text_file(list);
  for (std::size_t i = 0; i < text.size(); ++i) {
    const bool escaped = text[i] == '\\' && i + 1 < text.size();
    const bool doubled = text[i] == '$' && i + 1 < text.size() && text[i + 1] == '$';
    if (doubled || (escaped && (text[i + 1] == ' ' || text[i + 1] == '#'))) {
      names.back() += text[++i];
    } else if (text[i] == ' ' || text[i] == '\n' || (escaped && text[i + 1] == '\n')) {
      names.emplace_back();
    } else {
      names.back() += text[i];
    }
  }
  return names;
}

// Whether a student's file includes one of the answers, or what is wanted of it. The answer itself may be checked where
// it lies.
bool includes_answer(const Installation& installation, const Exercise& exercise, const fs::path& file,
                     const fs::path& list) {
  std::error_code error;
  const fs::path itself = fs::weakly_canonical(file, error);
  for (const std::string& name : included_files(list)) {
    const fs::path included = fs::weakly_canonical(name, error), folder = included.parent_path();
    if (included == itself) continue;
    if (folder == fs::weakly_canonical(exercise.answer(installation.exercises).parent_path(), error) ||
        folder == fs::weakly_canonical(exercise.wanted(installation.exercises).parent_path(), error))
      return true;
  }
  return false;
}

// Why a program did not come to the end of its check.
std::string why_stopped(const ProgramEnd& end, const Answers& answers) {
  const std::string during =
      answers.asked_last.empty() || answers.complete ? "" : " while it computed " + answers.asked_last;
  if (end.killed)
    return fmt::format("it was stopped after {:.0f} seconds{}: is there a loop without an end?", kSeconds,
                       during);
  if (end.signal == 0)
    return fmt::format("it ended with status {}{}, before it was asked everything: is there an exit in it?",
                       end.status, during);
  const bool of_vector = (end.output + end.last).find("__n < this->size()") != std::string::npos;
  const char* const may_be =
      end.signal == SIGSEGV ? ": an index outside of an array, or a recursion that is too deep?"
      : of_vector           ? ": an index beyond the end of a vector. A std::size_t that goes below 0 is huge"
      : end.signal == SIGABRT ? ": a check of the library, or no more memory; see above"
      : end.signal == SIGFPE  ? ": a whole number divided by 0?"
                              : "";
  return end.why("it") + during + may_be;
}

}  // namespace

std::vector<std::string> find_compiler() {
  const char* const wanted = std::getenv("CXX");
  if (wanted != nullptr && *wanted != '\0') {
    std::vector<std::string> compiler = parts_of(wanted, ' ');
    if (compiler.empty() || !answers(compiler))
      fail<ConfigError>("learn: the compiler that CXX names, '{}', does not run (unset CXX, or name another)",
                        wanted);
    return compiler;
  }
  for (const char* const name : {"c++", "g++", "clang++"})
    if (answers({name})) return {name};
  fail<ConfigError>(
      "learn: there is no C++ compiler: none of c++, g++ and clang++ runs (sudo apt-get install g++, or name one "
      "in the environment variable CXX)");
}

std::vector<std::string> compile_command(const std::vector<std::string>& compiler,
                                         const Installation& installation, const Exercise& exercise,
                                         const fs::path& file, const fs::path& program) {
  if (exercise.needs == Needs::eddy && installation.library.empty())
    fail<ConfigError>(
        "learn: exercise {} links Eddy, and its library libeddy.a is not here (in Eddy's source tree: cmake --build --preset "
        "release; a wheel carries the program alone)",
        exercise.number);
  if (exercise.needs == Needs::tree && installation.tree.empty())
    fail<ConfigError>(
        "learn: exercise {} needs Eddy's source tree, for the emulated GPU in tests/emulation: run build/release/eddy "
        "learn of a checkout",
        exercise.number);
  std::vector<std::string> command = compiler;
  const auto add = [&](const std::vector<std::string>& words) {
    command.insert(command.end(), words.begin(), words.end());
  };
  // The assertions of the standard library find an index beyond the end of a vector.
  add({"-std=c++20", "-O1", "-Wall", "-D_GLIBCXX_ASSERTIONS",
       "-DEXERCISE=<" + file.filename().string() + ">"});
  const fs::path folder = file.parent_path();
  add({"-I", folder.empty() ? "." : folder.string(),  // the student's first: a check has the same name
       "-I", (installation.exercises / "checks").string(), "-I", installation.checks.string()});
  if (exercise.needs == Needs::eddy)
    for (const fs::path& include : installation.includes) add({"-isystem", include.string()});
  const fs::path emulation = installation.tree / "tests" / "emulation";
  if (exercise.needs == Needs::tree)
    add({"-DEDDY_EMULATED_GPU", "-Wno-unknown-pragmas", "-isystem", (emulation / "include").string(),
         "-isystem", installation.tree.string()});
  if (exercise.needs == Needs::tree)
    for (const char* const part :
         {"threads.cpp", "transactions.cpp", "record.cpp", "memory.cpp", "device.cpp"})
      add({(emulation / part).string()});
  // Of several files a compiler leaves the list of what the last one includes. With -MD it has headers of the system
  // too: a student's file can make one of what it includes (#pragma GCC system_header, or a name in <>).
  add({exercise.check(installation.exercises).string(), "-o", program.string(), "-MD", "-MF",
       program.string() + ".d"});
  if (exercise.needs == Needs::eddy) {
    add({installation.library.string()});
    add(parts_of(EDDY_LINKED_LIBRARIES, '|'));  // what eddy::eddy links, from the build
  }
  return command;
}

Ran run_exercise(const Installation& installation, const Exercise& exercise, const fs::path& file) {
  const fs::path built = file.parent_path() / "built", program = built / file.stem();
  const fs::path included = program.string() + ".d";
  const std::vector<std::string> command =
      compile_command(find_compiler(), installation, exercise, file, program);
  make_folders(built);
  std::error_code error;
  fs::remove(program, error);
  fs::remove(included, error);
  const ProgramEnd compiled = run_limited(command, kToCompile);
  Ran ran{{}, false, with_end(first_lines(compiled.output, kErrorLines))};
  if (compiled.killed) {
    ran.text +=
        fmt::format("{}: the compiler was stopped after {:.0f} seconds\n", file.string(), kToCompile.seconds);
    return ran;
  }
  if (!compiled.good()) {
    ran.text += file.string() + " does not compile: see above\n";
    return ran;
  }
  if (includes_answer(installation, exercise, file, included)) {
    ran.text += file.string() + " includes an answer: write one of your own\n";
    return ran;
  }
  const Descriptor results(unnamed_file("answers"));
  if (results.get() < 0) fail<IoError>("learn: no memory for answers: {}", std::strerror(errno));
  const ProgramEnd end =
      run_limited({fs::absolute(program).string()}, limits_to_run(exercise, command), results.get());
  ran.answers = read_answers(content_of(results));
  ran.text += first_and_last(end);
  ran.ended = end.good();
  if (!end.good() || !ran.answers.complete)
    ran.text += fmt::format("{}: {}\n", file.string(), why_stopped(end, ran.answers));
  return ran;
}

Checked check_exercise(const Installation& installation, const Exercise& exercise, const fs::path& file) {
  const Wanted wanted = read_wanted(exercise.wanted(installation.exercises));
  const Ran ran = run_exercise(installation, exercise, file);
  Checked checked{judge(ran.answers, wanted), ran.text};
  checked.verdict.right = checked.verdict.right && ran.ended;
  if (ran.answers.complete || !ran.answers.all.empty()) checked.text += checked.verdict.text;
  return checked;
}

}  // namespace eddy::app
