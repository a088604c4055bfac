// Options that name files: what can be known to go wrong is said before the work begins.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

namespace eddy {

// Refuses an empty name, which an unset variable of a shell leaves behind: it would read as no option at all.
CLI::Validator not_empty();

// Refuses a file that could not be written once its contents are there.
// errors: IoError for a folder in its place, and for one around it that is missing or takes no files; `where`
// is at its head.
void check_output(const char* where, const std::string& file);

// The same for a page of HTML, which may replace a page or an empty file and nothing else.
// errors: IoError.
void check_page_output(const char* where, const std::string& file);

// The same for the numbers of a benchmark: only such a file, JSON with the keys "bench" and "environment", or
// an empty one is replaced.
// errors: IoError.
void check_bench_output(const char* where, const std::string& file);

}  // namespace eddy
