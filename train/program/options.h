// The options that commands share, and checks of what options name: predictable failures are reported before
// the work begins. CLI11's own checks of numbers accept too much: its conversions turn -1 into the largest
// unsigned number and truncate what is too large, and its ranges accept a NaN.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>

#include "train/run/checkpoint.h"

namespace eddy {

// Adds an option whose value is checked and whose default the help shows.
template <class Value>
CLI::Option* add_option(CLI::App& command, const char* name, Value& value, const char* help,
                        const CLI::Validator& check) {
  return command.add_option(name, value, help)->check(check)->capture_default_str();
}

// Accepts a whole number from 0 to 2^64 - 1.
CLI::Validator seed_number();

// Accepts a whole number from `low` to `high`.
CLI::Validator whole_number(std::int64_t low, std::int64_t high);

// Accepts a number from `low` to `high`, but no NaN.
CLI::Validator number_between(double low, double high);

// Refuses an empty name, which an unset shell variable leaves behind and which would count as no option at
// all.
CLI::Validator not_empty();

// Adds --checkpoint: latest, best, newest-whole or step-N (is_checkpoint_name in train/run/run_folder.h).
void add_checkpoint_option(CLI::App& command, std::string& which, const std::string& help);

// Adds --precision and --device.
void add_precision_option(CLI::App& command, std::string& precision);
void add_device_option(CLI::App& command, std::string& device);

// The run that a command computes with.
struct RunOptions {
  std::string path, checkpoint = "latest", precision = "f32", device = "cpu";
};

// Loads the run that the options of `command` name, in their precision and on their device.
// errors: those of load_run; ConfigError and DeviceError for a device or precision that is not to be had.
LoadedRun load_run(const char* command, const RunOptions& options);

// The same for a run that reads texts; `end` ends the error for any other.
// errors: also ValueError.
LoadedRun load_text_run(const char* command, const RunOptions& options, const char* end = "");

// Refuses an output file that could not be written later.
// errors: IoError when the path is a folder, or when its parent folder is missing or not writable. The text
// begins with `where`.
void check_output(const char* where, const std::string& file);

// The same for a page of HTML, which may only replace a page or an empty file.
// errors: IoError.
void check_page_output(const char* where, const std::string& file);

// The same for the JSON of a benchmark, which may only replace such a file (JSON with the keys "bench" and
// "environment") or an empty one.
// errors: IoError.
void check_bench_output(const char* where, const std::string& file);

}  // namespace eddy
