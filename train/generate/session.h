// A session: a text in progress, saved in a file to be continued later. Draws depend on (seed, position)
// alone, so a text saved anywhere, even inside a chunk or a block, continues as if it had never stopped. The
// file holds:
//
//   state.<name>      the model's state, as Model::stream left it
//   logits            f32 [n_out], of the next token; absent while a drawn token has not been read
//   unread            i32 [1], the drawn token that the model has not read
//   metadata          format, model, config and weights by their digests, precision, position, seed,
//                     temperature, top_k, top_p; and `digest`, the XXH3 digest of everything else
#pragma once

#include <string>

#include "models/eddy/registry.h"
#include "train/files/output_file.h"
#include "train/generate/generate.h"

namespace eddy::training {

struct Session {
  GenerateState text;
  SampleOptions sample;  // of the text so far
};

// Saves a session atomically, and removes what processes that were killed while they saved it left beside it.
// errors: IoError, also for a file that is no session (refuse_foreign_file); ValueError when nothing was read yet.
void save_session(const std::string& path, const Model& model, const Session& session);

// A file that save_session wrote.
extern const OutputKind kSessionFile;

// What is wrong with a session as its digest tells, without its model; empty when nothing is.
// errors: IoError; FormatError for a file that is not a session.
std::string session_problem(const std::string& path);

// The session in a file, on the model's device.
// errors: IoError; FormatError for a file that is not a session, or a damaged one; ConfigError, naming the
// difference, when it belongs to another model, other weights or another precision.
Session load_session(const std::string& path, const Model& model);

}  // namespace eddy::training
