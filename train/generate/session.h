// A text in the making, put away in a file and gone on with later: what the model carries, what it has not
// read yet, where the text stands, and how tokens are drawn. Draws depend on (seed, position) alone, so a
// text that was put away anywhere, inside a chunk or a block too, goes on as if it had never stopped.
//
//   state.<name>      the model's state, as Model::stream left it
//   logits            f32 [n_out], of the next token; absent while a drawn token has not been read
//   unread            i32 [1], that token
//   metadata          model, config and weights by their digests, precision, position, seed, temperature,
//                     top_k, top_p
#pragma once

#include <string>

#include "models/model.h"
#include "train/generate/generate.h"

namespace eddy {

struct Session {
  GenerateState text;
  SampleOptions sample;  // of the text so far
};

// Writes a session whole or not at all.
// errors: IoError; ValueError when nothing was read yet.
void save_session(const std::string& path, const Model& model, const Session& session);

// Whether a session may take this path: nothing is there, or an empty file, or another session.
bool takes_session(const std::string& path);

// The session in a file, on the model's device.
// errors: IoError, FormatError for a file that is no session or a damaged one; ConfigError when it is of
// another model, of other weights or of another precision, which it names.
Session load_session(const std::string& path, const Model& model);

}  // namespace eddy
