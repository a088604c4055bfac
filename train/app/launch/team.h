// Commands on several processes that a launcher started: rank 0 runs the command, the others do what it says.
#pragma once

#include <functional>
#include <string_view>

#include "train/ranks/ranks.h"

namespace eddy::app {

// Runs a command in this process or, of several, on rank 0, with the others at its disposal; the argument is null
// without others. `choose_threads` as in ranks_of_launcher. `say` prints an error that ends all ranks.
// Returns the exit status.
// errors: those of the command; ConfigError when the processes cannot compute together.
int run_on_ranks(bool choose_threads, const std::function<int(training::Ranks*)>& command,
                 const std::function<void(std::string_view)>& say);

}  // namespace eddy::app
