// Where a stream stands, as far as the host decides by it: the place inside a block, chunk or window. Two
// states at the same place, with tensors of the same names and layouts, ask the device for the same work for
// their next token, on other numbers. So that work can be recorded once and replayed
// (train/generate/captured_stream.h).
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "autograd/state.h"
#include "models/config.h"

namespace eddy {

// The place of a state that Model::stream left, or of an empty one; nothing for models whose work differs
// from position to position: those that keep all tokens' keys, add a row of a table of positions, or turn
// keys by their position. `config` is the model's own.
std::optional<std::vector<std::int64_t>> stream_place(const ModelConfig& config, const State& state);

}  // namespace eddy
