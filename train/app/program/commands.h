// The commands of the program as records, and what they share: options, and checks of what options name.
//
// Predictable failures are reported before the work begins. CLI11's own checks of numbers accept too much: its
// conversions turn -1 into the largest unsigned number and truncate what is too large, and its ranges accept a NaN.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "train/app/measure/kernels/prove.h"
#include "train/app/terminal/output.h"
#include "train/config/config_flags.h"
#include "train/config/run_config.h"
#include "train/files/output_file.h"
#include "train/generate/generate.h"
#include "train/run/checkpoint.h"

namespace eddy::training {
class Ranks;
}  // namespace eddy::training

namespace eddy::app {

// Whether a command computes products on the CPU: it then asks for their memory before it begins.
enum class Computes { nothing, products };
// What the result of a command is: what it prints, whose loss is an error, or files.
enum class Results { printed, files };

struct Described;
// A command: all that the program knows of it. Help, completion, hints on mistakes and what is prepared follow from it.
struct Command {
  std::string name, help;
  Computes computes;
  Results results;
  // Adds the options to `command`, which outlives what runs.
  std::function<Described(CLI::App& command)> describe;
};
struct Described {
  // Runs after the whole line is parsed, if the user chose this command and none below it. Returns the exit status.
  // Null for a command that only holds others: then its help is shown.
  // errors: Error.
  std::function<int()> run;
  std::vector<Command> below = {};  // in the order of the help
};

// The commands of the program, in the order of its help. The file of a command defines commands::x, which does not
// compile without its line here.
#define EDDY_COMMANDS(ROW) \
  ROW(train)               \
  ROW(plan)                \
  ROW(reproduce)           \
  ROW(eval)                \
  ROW(compare)             \
  ROW(inspect)             \
  ROW(report)              \
  ROW(watch)               \
  ROW(draw)                \
  ROW(generate)            \
  ROW(chat)                \
  ROW(check)               \
  ROW(tokenizer)           \
  ROW(models)              \
  ROW(keys)                \
  ROW(tasks)               \
  ROW(info)                \
  ROW(bench)               \
  ROW(dump)                \
  ROW(export_model)        \
  ROW(import_model)        \
  ROW(learn)               \
  ROW(completion)

namespace commands {
#define EDDY_DECLARE(name) Command name();
EDDY_COMMANDS(EDDY_DECLARE)
#undef EDDY_DECLARE
}  // namespace commands

// How the program has a GPU's kernels tried: by its command check, with the user's cache and lines on standard error.
ProveOptions program_trials();

// Returns the parsed command line, quoted for a shell: "eddy train --run out --data 'my texts'".
std::string command_line_of(const CLI::App& app);

// Adds an option whose value is checked and whose default the help shows.
template <class Value>
CLI::Option* add_option(CLI::App& command, const char* name, Value& value, const char* help,
                        const CLI::Validator& check) {
  return command.add_option(name, value, help)->transform(check)->capture_default_str();
}

// Accepts a whole number from 0 to 2^64 - 1.
CLI::Validator seed_number();

// Accepts a whole number from `low` to `high`, and puts digits in place of a unit: 2000 for 2k (count_from). It is
// given to Option::transform.
CLI::Validator whole_number(std::int64_t low, std::int64_t high);

// Accepts a number from `low` to `high`, but no NaN.
CLI::Validator number_between(double low, double high);

// Refuses an empty name, which an unset shell variable leaves behind and which would count as no option at
// all.
CLI::Validator not_empty();

// Adds the run that a command works with, RUN.
void add_run_argument(CLI::App& command, std::string& path);

// Adds --temperature, --top-k, --top-p and --seed.
void add_sampling_options(CLI::App& command, training::SampleOptions& sample);

// Adds --checkpoint: latest, best, newest-whole or step-N (is_checkpoint_name in train/run/run_folder.h).
void add_checkpoint_option(CLI::App& command, std::string& which, const std::string& help);

// Adds --precision and --device.
void add_precision_option(CLI::App& command, std::string& precision);
void add_device_option(CLI::App& command, std::string& device);

// A configuration key, and the flag that a command has in its place: "train.sequence", "--sequence".
struct KeyFlag {
  const char *key, *flag;
};
// Returns what `work` returns. Its errors name these flags in place of their keys.
// errors: Error.
int naming_flags(const std::vector<KeyFlag>& flags, const std::function<int()>& work);

// What describes a new run: a configuration file, --preset, --data, and a flag for every key. It must live until the
// line is parsed.
struct NewRunOptions {
  std::string config, preset;
  std::vector<std::string> data;
  training::RunConfig defaults;
  training::ConfigFlags keys;
  bool trains = false;  // whether what nobody gives follows from the text (NewConfig::choose_recipe)

  void add_to(CLI::App& command);
  // The keys that flags give, --data among them.
  // errors: ValueError for --data and --data.path.
  std::map<std::string, std::string> texts(const char* command) const;
  // Refuses a relative path of the configuration's own that is not here, and is beside its file.
  // errors: IoError.
  void check_place_of_data(const training::RunConfig& gathered) const;
  // The short flags that were given.
  std::vector<KeyFlag> given_short() const;
  // Whether a flag or the file gives this key.
  // errors: those of read_run_config.
  bool gives(const std::string& section, const std::string& key) const;
  // The configuration, completed and validated, with what a run that starts from the weights of another takes from it
  // (`start`; null for none), or with the model of weights that say what they are (`model`). `notes` gets what was
  // chosen for a text, and a warning for each group of keys that nothing reads.
  // errors: ConfigError; IoError.
  training::RunConfig gathered(const char* command, std::vector<std::string>& notes,
                               const training::RunConfig* start = nullptr,
                               const ModelConfig* model = nullptr) const;

 private:
  // Takes a configuration that stands behind the files of --data, where none was given otherwise.
  void take_config_from_data();
};
// Has a value of --threads override that of the configuration, which training would apply later.
void take_threads(training::RunConfig& config, const CLI::App& app);

// As run_on_ranks in train/app/launch/team.h, with the threads that the user chose.
int run_on_ranks(const CLI::App& app, const std::function<int(training::Ranks*)>& command);

// Where the page of a run is served.
struct WatchOptions {
  std::string address = "127.0.0.1";
  int port = 0;                    // 0: the first free one
  std::vector<std::string> hosts;  // further names that it answers to

  // `when` begins the help of each option.
  void add_to(CLI::App& command, const std::string& when);
};

// Starts `eddy watch` on a run's folder, which may not be there yet, as a process that ends after this one.
// errors: ConfigError for a build without a server; IoError.
void start_watching(const std::string& run, const WatchOptions& options);

// The run that a command computes with.
struct RunOptions {
  std::string path, checkpoint = "latest", precision = value_name(training::Precision::f32),
                    device = value_name(training::DeviceChoice::cpu);
};

// Loads the run that the options of `command` name, in their precision and on their device.
// errors: those of load_run; ConfigError and DeviceError for a device or precision that is not to be had.
training::LoadedRun load_run(const char* command, const RunOptions& options);

// The same for a run that reads texts; `end` ends the error for any other.
// errors: also ValueError.
training::LoadedRun load_text_run(const char* command, const RunOptions& options, const char* end = "");

// What is said where the system refuses memory.
inline constexpr const char* kOutOfMemory =
    "out of memory (lower --train.batch, --train.sequence or --model.context, or take a smaller model)";

// Refuses rows of tokens that are more than the memory there is, before any is made.
// errors: OutOfMemoryError, which names the two flags.
void require_memory_of_rows(const std::string& where, const char* rows_flag, std::int64_t rows,
                            const char* length_flag, std::int64_t length);

// What to say of a run whose loss is not finite.
std::string diverged_text(const RunOptions& options);

// Refuses an output file that could not be written later, or that is there and none of this kind. Removes what
// killed processes left beside it. From here on the command has another result than what it prints
// (keep_on_without_output).
// errors: IoError; the text begins with `where`.
void check_output(const std::string& where, const std::string& file, const training::OutputKind& kind);
// Refuses two flags that name one file, which both would write; an empty name is none.
// errors: ValueError; the text begins with `where`.
void check_two_files(const std::string& where, const char* flag, const std::string& file,
                     const char* other_flag, const std::string& other);

}  // namespace eddy::app
