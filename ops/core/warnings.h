// Warnings that a call was not computed as chosen, for example because the chosen kernel does not support its
// sizes. The library prints nothing: programs take these texts and show them.
#pragma once

#include <string>
#include <vector>

namespace eddy {

// Adds a warning, unless the same text was added before. The text must not contain anything that changes from
// call to call. Thread-safe.
void add_warning(const std::string& text);

// Returns the warnings added since the last call, in order.
std::vector<std::string> take_warnings();

// Drops all warnings, so that each text counts as new again.
void reset_warnings();

}  // namespace eddy
