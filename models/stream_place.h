// The place of a stream inside its block, chunk or window: the part of the position that decides which work
// the next token needs. For two states at the same place, with tensors of the same names and layouts, the
// host enqueues the same work on other numbers, so that work can be captured once and replayed
// (train/generate/captured_stream.h).
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "autograd/state.h"
#include "models/config.h"

namespace eddy {

// The place of an empty state or of one that Model::stream left; nothing for models whose work differs at
// every position: those that keep the keys of all tokens, use a table of positions, or rotate keys by
// position. `config` is that of the model.
std::optional<std::vector<std::int64_t>> stream_place(const ModelConfig& config, const State& state);

}  // namespace eddy
