// What the keys of a table's file hold, but those of a run: each error names the key, its place and what it should be.
#pragma once

#include "train/config/config_file.h"

namespace eddy::app {

// errors: ConfigError for a value of another kind or out of its range.
void check_values(const training::ConfigSource& file);

}  // namespace eddy::app
