// Standard input as one text. It can be read only once, so its bytes are held as long as they may be asked for.
#pragma once

#include <string>

namespace eddy::training {

// The name of the file in a run's folder that keeps the text of standard input.
inline constexpr const char* kKeptInput = "standard_input.txt";

// What standard input is called, in place of the path of a file.
inline constexpr const char* kInputName = "standard input";

// The bytes of standard input to its end. The first call waits for them.
// errors: IoError where it cannot be read, and for a terminal.
const std::string& standard_input();
// Whether it was read and not released.
bool holds_standard_input();
// Frees the bytes: they are kept elsewhere by now.
void release_standard_input();

}  // namespace eddy::training
