// Numbers of bytes for error texts: "1.9 MiB".
#pragma once

#include <cstdint>
#include <string>

#include "tensor/base/format.h"

namespace eddy {

// Returns bytes in the largest binary unit that leaves at least 1 of it: "512 bytes", "1.9 MiB".
inline std::string readable_bytes(double bytes) {
  constexpr double kStep = 1024;
  const char* unit = " bytes";
  for (const char* larger : {" KiB", " MiB", " GiB", " TiB"}) {
    if (bytes < kStep) break;
    bytes /= kStep;
    unit = larger;
  }
  const bool is_whole = unit[1] == 'b';
  return fmt::format("{:.{}f}{}", bytes, is_whole ? 0 : 1, unit);
}

}  // namespace eddy
