// Warnings, for example that the chosen kernel does not support a call, so another one computed it. The
// library prints nothing: programs take these texts and show them.
#pragma once

#include <string>
#include <vector>

namespace eddy {

// Adds a warning, unless the same text was added before. The text must not contain anything that changes from
// call to call. Thread-safe.
void add_warning(const std::string& text);

// Returns the warnings added since the last call, in order.
std::vector<std::string> take_warnings();

// Drops all warnings and forgets which texts were added before.
void reset_warnings();

}  // namespace eddy
