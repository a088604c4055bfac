// What a model is made of, found by running it once and looking at the tape: its modules in the order in which they
// run, what each reads, its parameters and its work; the state that it hands on; how far back its last token sees.
// Nothing here knows a family.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "models/eddy/config.h"
#include "tensor/shape.h"

namespace eddy::app {

struct OutlinedModule {
  std::string name;  // "layers.0.attn"; empty for work that belongs to the model as a whole
  std::int64_t parameters = 0;
  double multiply_adds = 0;          // of products, for each token
  std::vector<std::string> ops{};    // each once, in the order of their first call
  std::vector<std::string> reads{};  // modules before it in the list
  // Modules behind it that read its first ops, and whose result its last ones read: parts of it.
  std::vector<std::string> parts{};
  std::vector<std::string> loops{};  // modules behind it, or itself, that it reads in a loop
  bool in_steps = false;             // whether it runs in the steps of a loop
};

struct ModelOutline {
  std::string name;  // "block_recurrent/block_recurrent"
  std::int64_t tokens = 0;
  std::int64_t parameters = 0;
  double multiply_adds = 0;
  std::vector<OutlinedModule> modules;
  std::vector<std::pair<std::string, Shape>> state;  // handed to the next call, for one sequence
  std::int64_t stream_bytes = 0,
               long_stream_bytes = 0;  // of a stream after `tokens` tokens, and after ten times as many
  std::optional<std::int64_t> reach;   // tokens of a call that its last token sees; none: not measured
  bool sees_before = false;            // whether it sees what the call before read
  bool faint = false;  // whether that has less influence than f64 shows, and follows from shorter calls
};

// Runs a model on one sequence of `tokens` tokens, which goes on from an equal call before it where the model has a
// state. It allocates nothing, but for the reach, which is measured where that takes seconds at most.
// errors: those of make_model and forward.
ModelOutline outline_model(const ModelConfig& config, std::int64_t tokens);

std::string to_text(const ModelOutline& outline);

// The same as a picture, an SVG file of its own.
std::string draw_outline(const ModelOutline& outline);

}  // namespace eddy::app
