// A text of tokens as an inspection reads it, for tests: the stream of the text with the options of the inspection.
#pragma once

#include <cstdint>
#include <span>

#include "train/app/inspect/inspection.h"

namespace eddy::test {

struct TextOptions : app::InspectOptions {
  app::TokenReading reading{};  // rows and clear_state are not read
};

inline app::Inspection inspect_tokens(const Model& model, std::span<const std::int32_t> tokens,
                                      const TextOptions& options) {
  return app::inspect_stream(model, app::text_stream(tokens, options.reading), options);
}

}  // namespace eddy::test
