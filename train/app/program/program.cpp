// The program `eddy` as a function.
#include "train/app/program/program.h"

#include <fcntl.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <atomic>
#include <cctype>
#include <charconv>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <functional>
#include <iostream>
#include <map>
#include <new>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ops/backends.h"
#include "ops/core/warnings.h"
#include "ops/cpu/isa.h"
#include "ops/product/blas.h"
#include "tensor/base/format.h"
#include "tensor/files/json_text.h"
#include "tensor/system/process.h"
#include "tensor/threads/thread_pool.h"
#include "train/app/measure/kernels/prove.h"
#include "train/app/program/commands.h"
#include "train/config/config.h"
#include "train/config/run_config.h"
#include "train/plan/machine_memory.h"
#include "train/ranks/launched.h"
#include "train/words/program_name.h"
#include "train/words/suggest.h"

namespace eddy::app {
using namespace training;
namespace {

constexpr int kFailed = 1;
constexpr int kUsage = 2;

bool output_is_closed = false;

// Reports the error where no memory can be had, not even for a line of text.
int report_out_of_memory() {
  std::fflush(stdout);
  for (const char* part : {"error: ", kOutOfMemory, "\n"}) std::fputs(part, stderr);
  return kFailed;
}

std::terminate_handler terminate_before = nullptr;
std::atomic<bool> memory_was_refused = false;

// The handler of operator new, which calls it where there is no memory.
[[noreturn]] void refuse_memory() {
  memory_was_refused = true;
  throw std::bad_alloc();
}

// Ends the program where an exception meets a function that promises to throw none: some of the standard library, of
// the JSON library and of CLI11 take memory all the same. g++ may end there without saying what was thrown: that is
// taken for want of memory where memory was refused. A run goes on from its last checkpoint. Any other exception is a
// mistake of the program, and ends as it does without this.
[[noreturn]] void end_without_memory() {
  bool out_of_memory = memory_was_refused;
  if (std::current_exception() != nullptr) {
    try {
      throw;
    } catch (const std::bad_alloc&) {
      out_of_memory = true;
    } catch (...) {
      out_of_memory = false;
    }
  }
  if (out_of_memory) std::_Exit(report_out_of_memory());
  terminate_before();
  std::abort();
}

// Ignores signals where an error code says more, reports what ends the process for want of memory, and opens missing
// standard streams.
void prepare_process() {
  if (terminate_before == nullptr) terminate_before = std::set_terminate(end_without_memory);
  std::set_new_handler(refuse_memory);
  // A library may take SIGHUP as it is loaded, and go on: UCX does, which Open MPI 5 loads.
  const bool ignored = std::signal(SIGHUP, SIG_DFL) == SIG_IGN;
  if (ignored || hangup_was_ignored) std::signal(SIGHUP, SIG_IGN);  // as nohup wants
  std::signal(SIGPIPE, SIG_IGN);  // a write to a closed pipe fails with EPIPE
  std::signal(SIGXFSZ, SIG_IGN);  // a write past the limit on file sizes fails with EFBIG
  output_is_closed = fcntl(STDOUT_FILENO, F_GETFD) < 0;
  // If a standard stream is closed, the next file opened would take its number and receive what is printed.
  for (int stream = open("/dev/null", O_RDWR); stream >= 0 && stream <= STDERR_FILENO;)
    stream = open("/dev/null", O_RDWR);
}

// Makes printing fail when standard output was closed, where what is printed is the result.
void refuse_closed_output(Results results) {
  if (!output_is_closed || results == Results::files) return;
  const int unwritable = open("/dev/null", O_RDONLY | O_CLOEXEC);
  if (unwritable >= 0) dup2(unwritable, STDOUT_FILENO);
}

// The levels of CPU kernels that this program has, the lowest first.
std::string cpu_levels(std::string_view between) {
  std::vector<std::string_view> names;
  for (const IsaLevel level : isa_levels()) names.emplace_back(isa_name(level));
  return fmt::format("{}", fmt::join(names, between));
}

// Lowers the instruction set of the CPU kernels to EDDY_CPU_LEVEL.
// errors: ConfigError; ValueError.
void choose_cpu_level() {
  const char* const wanted = std::getenv("EDDY_CPU_LEVEL");
  if (wanted == nullptr || *wanted == '\0') return;
  // One of another architecture is refused as such.
  for (int i = 0; i <= static_cast<int>(IsaLevel::amx); ++i) {
    const auto level = static_cast<IsaLevel>(i);
    if (std::string_view(wanted) == isa_name(level)) return set_isa_level(level);
  }
  fail<ConfigError>("EDDY_CPU_LEVEL: unknown level '{}' (one of {})", wanted, cpu_levels(", "));
}

// Refuses an invalid EDDY_NUM_THREADS. The thread pool ignores it, since it starts where no error can be
// caught.
// errors: ConfigError.
void check_thread_variable() {
  const char* const wanted = std::getenv("EDDY_NUM_THREADS");
  if (wanted == nullptr || *wanted == '\0') return;
  const std::string_view text(wanted);
  int threads = 0;
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), threads);
  if (error != std::errc() || stop != text.data() + text.size() || threads < 1 || threads > 256)
    fail<ConfigError>("EDDY_NUM_THREADS: '{}' is not a number of threads (1 to 256; unset it to use all)",
                      text);
}

// EDDY_KERNELS; "" where it is not set.
std::string wanted_gpu_kernels() {
  const char* const wanted = std::getenv("EDDY_KERNELS");
  return wanted == nullptr ? "" : wanted;
}

// Overrides the choice of GPU kernels by it.
// errors: ConfigError.
void choose_gpu_kernels() {
  const std::string wanted = wanted_gpu_kernels();
  if (wanted.empty()) return;
  try {
    set_gpu_kernels(wanted);
  } catch (const ValueError& error) {
    fail<ConfigError>("EDDY_KERNELS: {}", error.what());
  }
}

// Has the kernels of a GPU checked before a command opens it.
void check_gpu_kernels() {
  on_first_gpu_use([] {
    ProveOptions options = program_trials();
    options.uncached = !wanted_gpu_kernels().empty();
    choose_proven_kernels(options);
  });
}

// Of several processes that a launcher started, the first has the error. The others may make the same mistake, or be
// runs of their own: each says why it ends.
int report(std::string_view text, int status) {
  std::fflush(stdout);
  const Launched here = launched();
  say(here.number == 0 ? fmt::format("error: {}", text)
                       : fmt::format("process {} of {} ends: {}", here.number, here.processes, text));
  return status;
}

// Returns the innermost command that was given: "step" of "bench step"; null without one.
const CLI::App* chosen_command(const CLI::App& app) {
  const CLI::App* command = nullptr;
  for (auto chosen = app.get_subcommands(); !chosen.empty(); chosen = command->get_subcommands())
    command = chosen.front();
  return command;
}

// Returns "bench step" for the command step of bench.
std::string full_name(const CLI::App& command) {
  const CLI::App* const parent = command.get_parent();
  const bool nested = parent != nullptr && parent->get_parent() != nullptr;
  return (nested ? full_name(*parent) + " " : "") + command.get_name();
}

// The option of a command, or of those above it, that a word of the line names, as "--data" or "--data=x"; or null.
const CLI::Option* option_named(const CLI::App* command, const std::string& word) {
  for (; word.starts_with("--") && command != nullptr; command = command->get_parent())
    if (const CLI::Option* option = command->get_option_no_throw(word.substr(0, word.find('='))))
      return option;
  return nullptr;
}

// Whether a word was meant as a flag, known or misspelt: a text that begins so follows a '='.
bool looks_like_flag(const std::string& word) {
  return word.size() > 2 && word.starts_with("--") &&
         std::isalpha(static_cast<unsigned char>(word[2])) != 0 && word.find(' ') == std::string::npos;
}

// Returns what to say of the first flag that stands without its value, at the end of the line or before another flag,
// which CLI11 would take for the value; "" where none does.
std::string flag_without_value(const CLI::App& command, const std::vector<std::string>& words) {
  for (std::size_t i = 0; i < words.size() && words[i] != "--"; ++i) {
    const CLI::Option* const option = option_named(&command, words[i]);
    if (option == nullptr || option->get_items_expected_min() < 1) continue;
    if (const std::size_t sign = words[i].find('='); sign != std::string::npos) {
      if (sign + 1 == words[i].size())  // CLI11 would take the next word
        return fmt::format("{} is followed by no value (an empty text is given by {} \"\")", words[i],
                           words[i].substr(0, sign));
      continue;
    }
    const bool last = i + 1 == words.size();
    const std::string type = option->get_type_name();
    if (last || looks_like_flag(words[i + 1]))
      return fmt::format(
          "{} needs a value, {}: {}{}", words[i], type, option->get_description(),
          last || !type.starts_with("TEXT")
              ? ""
              : fmt::format("; a text that begins so is given by {}={}", words[i], words[i + 1]));
    ++i;  // its value
  }
  return {};
}

// The flag of a command, or of those above it, that is given more than once and takes one value. CLI11 does not name
// one that the help leaves out.
std::string repeated_flag(const CLI::App* command) {
  for (; command != nullptr; command = command->get_parent())
    for (const CLI::Option* option : command->get_options())
      if (option->count() > 1 && option->get_items_expected_max() == 1 && !option->get_lnames().empty())
        return "--" + option->get_lnames().front();
  return "a flag";
}

// Adds the names of the commands in `app` that take this flag, those within commands included.
void add_commands_with(const std::string& flag, const CLI::App& app, std::vector<std::string>& names) {
  for (const CLI::App* command : app.get_subcommands({})) {
    if (command->get_option_no_throw(flag) != nullptr) names.push_back(full_name(*command));
    add_commands_with(flag, *command, names);
  }
}

// Returns what is said of a flag that none of the command's is near to: "generate takes it; ", or "".
std::string who_takes(const std::string& flag, const CLI::App& app) {
  constexpr std::size_t kMostNamed = 4;
  std::vector<std::string> names;
  if (flag.starts_with("--")) add_commands_with(flag, app, names);
  if (names.empty()) return "";
  const bool several = names.size() > 1, too_many = names.size() > kMostNamed;
  if (too_many) names.resize(kMostNamed);
  return fmt::format("{}{} {} it; ", fmt::join(names, ", "), too_many ? " and others" : "",
                     several ? "take" : "takes");
}

// Returns how a command takes what was given as an argument without a flag: "--prompt gives a text; ", or "".
std::string flag_for_argument(const CLI::App* command) {
  for (const auto& [flag, gives] : {std::pair{"--prompt", "a text"}, {"--data", "data"}})
    if (command != nullptr && command->get_option_no_throw(flag) != nullptr)
      return fmt::format("{} gives {}; ", flag, gives);
  return "";
}

// Returns the error text for the first argument that was not recognised.
std::string refuse_argument(const CLI::App& app, const CLI::App* command, const std::string& argument) {
  if (argument.starts_with("-") && argument != "-") {
    const std::string flag = argument.substr(0, argument.find('='));
    std::vector<std::string> flags;
    for (const CLI::App* from : {command, &app}) {
      if (from == nullptr) continue;
      for (const CLI::Option* option : from->get_options())
        for (const std::string& name : option->get_lnames()) flags.push_back("--" + name);
    }
    const std::string likely = suggest_name(flag, flags),
                      named = command != nullptr ? full_name(*command) : "";
    return fmt::format("{}unknown flag '{}' ({})", named.empty() ? "" : named + ": ", flag,
                       likely.empty() ? fmt::format("{}see {} {}{}--help", who_takes(flag, app),
                                                    program_name(), named, named.empty() ? "" : " ")
                                      : "nearest: " + likely);
  }
  std::vector<std::string> commands;
  for (const CLI::App* known : (command != nullptr ? *command : app).get_subcommands({}))
    commands.push_back(known->get_name());
  const std::string name = command != nullptr ? full_name(*command) : program_name();
  // After a value of the command's own, as in `eddy learn chek 3`, that was perhaps meant as a command.
  std::string wrong = argument;
  bool takes_value = false;
  if (command != nullptr)
    for (const CLI::Option* option : command->get_options())
      if (option->get_positional() && option->count() > 0) {
        takes_value = true;
        wrong = option->results().front();
      }
  if (commands.empty() || (takes_value && suggest_name(wrong, commands).empty()))
    return fmt::format("{}: unexpected argument '{}' ({}see {} {} --help)", name, argument,
                       flag_for_argument(command), program_name(), name);
  const std::string likely = suggest_name(wrong, commands);
  return fmt::format("{}unknown command '{}' ({}see {}{} --help)", command != nullptr ? name + ": " : "",
                     wrong, likely.empty() ? "" : "nearest: " + likely + "; ",
                     command != nullptr ? program_name() + " " : "", name);
}

// A command on the line.
struct Known {
  Computes computes;
  Results results;
  std::function<int()> run;
};
using KnownCommands = std::map<const CLI::App*, Known>;

// Adds a command, and those below it.
void add(CLI::App& above, const Command& command, KnownCommands& known) {
  CLI::App& app = *above.add_subcommand(command.name, command.help);
  Described described = command.describe(app);
  for (const Command& below : described.below) add(app, below, known);
  known.emplace(&app, Known{command.computes, command.results, std::move(described.run)});
}

int run_command_line(int argc, char** argv) {
  KnownCommands known;
  int threads = 0;
  if (argc > 0 && *argv[0] != '\0') program_name() = std::filesystem::path(argv[0]).filename().string();
  CLI::App app{"Trains, evaluates and runs recurrent transformers.", program_name()};
  app.set_version_flag("--version", EDDY_VERSION, "Print the version and exit");
  app.add_option("--threads", threads,
                 "CPU threads; may also follow the command (default: EDDY_NUM_THREADS, or all that this "
                 "process may use)")
      ->check(CLI::Range(1, 256).description(""));
  app.add_option_function<std::string>(
         "--memory-check",
         [](const std::string& value) {
           if (value_is(value, MemoryCheck::warn)) overrule_memory_check();
         },
         "Before what takes more memory than there is; warn: begin it all the same; may follow the command too")
      ->check(CLI::IsMember(value_names<MemoryCheck>()));
  app.get_formatter()->column_width(34);
  // Commands accept these after their name, and leave unknown arguments to refuse_argument, which names
  // the nearest one.
  app.require_subcommand(0, 1)->allow_extras()->fallthrough();
#define EDDY_ADD(name) add(app, commands::name(), known);
  EDDY_COMMANDS(EDDY_ADD)
#undef EDDY_ADD
  // Set after the commands were added: they would inherit it.
  app.footer(
      program_name() +
      " COMMAND --help lists the options of a command.\n"
      "A whole number may end in k, m, g or b: 2m is 2000000, 1.5k is 1500.\n\n"
      "Environment:\n"
      "  EDDY_NUM_THREADS=N                       CPU threads, unless --threads or train.threads says\n"
      "  OMP_NUM_THREADS=N                        the most, where none of these says\n"
      "  EDDY_ALONE=1                             share no run with others that mpirun or srun started\n"
      "  EDDY_CPU_LEVEL=" +
      cpu_levels("|") +
      "\n"
      "                                          lower instruction set of the CPU kernels\n"
      "  EDDY_DATA_DIR=FOLDER                     where the data of tasks and tables are\n"
      "  EDDY_CACHE_DIR=FOLDER                    where fetched data sets and checks of a GPU are kept\n"
      "  EDDY_KERNELS=plain|...                   GPU kernels other than the program's choice (cuda/README.md)");

  const std::vector<std::string> words(argv + std::min(argc, 1), argv + argc);
  const auto refuse_line = [&](const std::string& problem) {
    const CLI::App* const command = chosen_command(app);
    const std::string named = command == nullptr ? "" : full_name(*command);
    return report(fmt::format("{}{} (see {} {}{}--help)", named.empty() ? "" : named + ": ", problem,
                              program_name(), named, named.empty() ? "" : " "),
                  kUsage);
  };
  const auto without_value = [&] {
    const CLI::App* const command = chosen_command(app);
    return flag_without_value(command != nullptr ? *command : app, words);
  };
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) {  // --help, --version
      app.exit(error);
      flush_output();
      return 0;
    }
    if (const std::string missing = without_value(); !missing.empty()) return refuse_line(missing);
    const CLI::App* const failed = chosen_command(app);
    const std::string problem = error.what();
    return refuse_line(problem.find(": At Most 1 ") != std::string::npos
                           ? repeated_flag(failed != nullptr ? failed : &app) + " is given more than once"
                           : problem);
  }
  if (const std::string missing = without_value(); !missing.empty()) return refuse_line(missing);
  const CLI::App* const command = chosen_command(app);
  std::vector<std::string> extras = app.remaining(true);
  // The mark in front of paths that begin with a dash.
  if (const auto mark = std::find(extras.begin(), extras.end(), "--"); mark != extras.end())
    extras.erase(mark);
  if (!extras.empty()) return report(refuse_argument(app, command, extras.front()), kUsage);
  const auto chosen = known.find(command);
  if (chosen == known.end() || !chosen->second.run) {
    std::cerr << (command != nullptr ? command->help(program_name()) : app.help());
    return kUsage;
  }
  check_thread_variable();
  check_alone_variable();
  choose_cpu_level();
  choose_gpu_kernels();
  check_gpu_kernels();
  if (threads > 0) set_thread_count(threads);
  const auto& [computes, results, run] = chosen->second;
  refuse_closed_output(results);
  if (computes == Computes::products) reserve_product_memory(thread_count());
  const int status = run();
  for (const std::string& warning : take_warnings())
    if (launched().number == 0) say(warning);
  flush_output();
  report_lost_output(results == Results::printed);
  return status;
}

int guarded_main(int argc, char** argv) {
  try {
    return run_command_line(argc, argv);
  } catch (const OutputClosed&) {
    return 0;
  } catch (const Error& error) {
    return report(error.what(), kFailed);
  } catch (const std::bad_alloc&) {
    return report(kOutOfMemory, kFailed);
  } catch (const std::length_error&) {
    return report(kOutOfMemory, kFailed);
  } catch (const std::filesystem::filesystem_error& error) {
    return report(fmt::format("{}: {}", error.path1().string(), error.code().message()), kFailed);
  } catch (const std::exception& error) {
    return report(plain_message(error.what()), kFailed);
  } catch (...) {
    return report("something was thrown that says nothing of itself (please report the command line)",
                  kFailed);
  }
}

}  // namespace

int program(int argc, char** argv) {
  prepare_process();
  try {
    return guarded_main(argc, argv);
  } catch (const std::bad_alloc&) {  // in the text of another error
    return report_out_of_memory();
  }
}

}  // namespace eddy::app
