// The sizes at which a table of rows is measured.
#pragma once

#include <cstdint>

#include "models/value_names.h"

namespace eddy::app {

// small: minutes to an hour per row on a few CPU cores, at sizes of our own; paper: the sizes and steps of
// the paper; tiny: seconds, to see that everything works.
enum class Scale : std::uint8_t { tiny, small, paper };

}  // namespace eddy::app

template <>
struct eddy::ValueNames<eddy::app::Scale> {
  static constexpr const char* all[] = {"tiny", "small", "paper"};
};
