#include "examples/learn/checker/check.h"

#include <algorithm>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <sstream>
#include <system_error>

#include "tensor/base/error.h"
#include "tensor/base/format.h"
#include "train/files/folders.h"
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
ProgramEnd run_limited(const std::vector<std::string>& words, const Limits& limits) {
  ProgramEnd end = run_to_end({.words = words,
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

// Why a check that did not exit was stopped.
std::string why_stopped(const ProgramEnd& end) {
  if (end.killed)
    return fmt::format("it was stopped after {:.0f} seconds: is there a loop without an end?", kSeconds);
  const char* const may_be =
      end.signal == SIGSEGV   ? ": an index outside of an array, or a recursion without an end?"
      : end.signal == SIGABRT ? ": a check of the library, or no more memory; see above"
      : end.signal == SIGFPE  ? ": a whole number divided by 0?"
                              : "";
  return end.why("it") + may_be;
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
        "learn: exercise {} links Eddy, and its library libeddy.a is not here (cmake --build --preset release)",
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
  const std::string checks = (installation.exercises / "checks").string();
  add({"-I", folder.empty() ? "." : folder.string(), "-I",
       checks});  // the student's first: a check has the same name
  if (exercise.needs == Needs::eddy)
    for (const fs::path& include : installation.includes) add({"-isystem", include.string()});
  const fs::path emulation = installation.tree / "tests" / "emulation";
  if (exercise.needs == Needs::tree)
    add({"-DEDDY_EMULATED_GPU", "-Wno-unknown-pragmas", "-isystem", (emulation / "include").string(),
         "-isystem", installation.tree.string()});
  add({exercise.check(installation.exercises).string(), "-o", program.string()});
  if (exercise.needs == Needs::tree)
    for (const char* const part : {"threads.cpp", "record.cpp", "memory.cpp", "device.cpp"})
      add({(emulation / part).string()});
  if (exercise.needs == Needs::eddy) {
    add({installation.library.string()});
    add(parts_of(EDDY_LINKED_LIBRARIES, '|'));  // what eddy::eddy links, from the build
  }
  return command;
}

Checked check_exercise(const Installation& installation, const Exercise& exercise, const fs::path& file) {
  const fs::path built = file.parent_path() / "built", program = built / file.stem();
  const std::vector<std::string> command =
      compile_command(find_compiler(), installation, exercise, file, program);
  make_folders(built);
  std::error_code error;
  fs::remove(program, error);
  const ProgramEnd compiled = run_limited(command, kToCompile);
  std::string text = with_end(first_lines(compiled.output, kErrorLines));
  if (compiled.killed)
    return {false, text + fmt::format("{}: the compiler was stopped after {:.0f} seconds\n", file.string(),
                                      kToCompile.seconds)};
  if (!compiled.good()) return {false, text + file.string() + " does not compile: see above\n"};

  const ProgramEnd ran = run_limited({fs::absolute(program).string()}, limits_to_run(exercise, command));
  text += with_end(ran.output);
  if (ran.killed || ran.status < 0) return {false, text + file.string() + ": " + why_stopped(ran) + "\n"};
  return {ran.status == 0, text};
}

}  // namespace eddy::app
