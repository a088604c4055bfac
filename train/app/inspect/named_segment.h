// The values that a model named in one segment, and where the segment stands in the text.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "autograd/named_values.h"
#include "models/eddy/config.h"
#include "train/app/inspect/value_meaning.h"

namespace eddy::app {

struct NamedSegment {
  const ModelConfig& config;
  const NamedValues& values;  // copies on the CPU, of a batch of one row; all but attention in f64
  std::int64_t begin = 0;     // of the segment in the text
  std::int64_t time = 0;      // its tokens, padding included
  std::int64_t valid = 0;     // those of the text

  // The places (models/named_place.h) of the calls of a value; null where it has none, or not as many.
  const std::vector<Tensor>* places_of(const std::string& path, std::size_t calls) const;
};

// A contiguous tensor of the CPU in f64. Attention is made so one call at a time:
// that of all layers would take much room.
Tensor in_f64(const Tensor& x);

// "layers.0.attn" of "layers.0.attn.place"; empty for a path without a scope.
std::string scope_of(const std::string& path);
// The value called `name` beside the value at a path, or in the scope of that name.
std::string beside(const std::string& scope, std::string_view name);

// Whether a value is a state: its family says so, or, of a user's program, its name.
bool is_state_path(const ModelConfig& config, const std::string& path);
inline bool is_attention_path(const std::string& path) {
  return path.ends_with("probabilities");
}
inline bool is_place_path(const std::string& path) {
  return path == "place" || path.ends_with(".place");
}
inline bool is_bias_path(const std::string& path) {
  return path == "bias" || path.ends_with(".bias");
}

}  // namespace eddy::app
