// Checks of options that name files: predictable failures are reported before the work begins.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

namespace eddy {

// Refuses an empty name, which an unset shell variable leaves behind and which would count as no option at
// all.
CLI::Validator not_empty();

// Adds --checkpoint: latest, best, newest-whole or step-N (is_checkpoint_name in train/run/run_folder.h).
void add_checkpoint_option(CLI::App& command, std::string& which, const std::string& help);

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
