// Which backends this build has. backends.cpp is the one file with an #ifdef for CUDA.
#pragma once

#include <string>

namespace eddy {

// "not in this build", or what the CUDA backend says of this machine's devices.
std::string cuda_status();

}  // namespace eddy
