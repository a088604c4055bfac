// The name of the processor, as a file like /proc/cpuinfo of Linux has it.
#pragma once

#include <string>

namespace eddy {

// Returns the processor's name; "unknown" where the file says nothing. On ARM64 the file has numbers for each core, of
// the maker and of the design: those that are known become names, of a processor with several kinds of cores all of
// them.
std::string processor_name_in(const std::string& file);

}  // namespace eddy
