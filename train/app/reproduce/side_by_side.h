// Rows of a table in several processes, which share its folder: each trains what no other has claimed. The same holds
// for commands that are started by hand, also on several machines with one file system.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "train/app/reproduce/reproduce.h"
#include "train/run/run_folder.h"

namespace eddy::app {

// The words of the command that runs these rows, which commas separate; all of the table where there are none.
std::vector<std::string> words_of(const ReproduceOptions& options, const std::string& rows);

// Claims a row or a trial of the table in `folder` by its name, until the claim is destroyed; nothing where another
// process has it.
// errors: IoError where the folder cannot be made.
std::optional<training::RunLock> claim(const std::filesystem::path& folder, const std::string& name);

// The same for a table.
using Claimed = std::function<std::optional<training::RunLock>(const std::string& name)>;

// Waits a second for other processes. Returns false where a stop was requested.
bool wait_for_others();

// Runs the command in `jobs` processes, with equal shares of the threads, and waits for them. What they print stands
// in job-1.log and so on in `folder`. One that fails leaves its rows to the caller. Returns `interrupted` after a
// stop, which they are told of.
// errors: IoError where a log cannot be written.
ReproduceEnd run_side_by_side(const std::vector<std::string>& words, std::int64_t jobs,
                              const std::filesystem::path& folder,
                              const std::function<void(std::string_view)>& log);

}  // namespace eddy::app
