// Chooses the text of a run that names none (data.path is empty), the first of:
//
//   1. tinyshakespeare/input.txt in the folder that EDDY_DATA_DIR names
//   2. tiny Shakespeare in the user's cache, downloaded once and checked by its SHA-256
//   3. stories that Eddy generates (stories/)
//
// An error in 1, which the user chose, is thrown; a failure in 2 is reported and leads to 3.
#pragma once

#include <cstdint>
#include <functional>
#include <ostream>
#include <string>

#include "train/config/run_config.h"

namespace eddy::training {

struct TextSource {
  std::string text;
  std::string name;  // "tinyshakespeare" or "stories"
};

// Where to look for a text. `standard_places` fills it from the environment; tests fill it by hand.
struct TextPlaces {
  std::string data_dir;   // EDDY_DATA_DIR, empty when unset
  std::string cache_dir;  // Eddy's folder in the user's cache, empty when there is none
  std::string origin;     // the URL of tiny Shakespeare
  std::string sha256;     // of the file behind it
  // Downloads a URL to a path and returns "", or the reason why it failed.
  std::function<std::string(const std::string& url, const std::string& path)> fetch;
};

// The places that the environment and the operating system give.
TextPlaces standard_places();

// The text to train on. Writes a line to `messages` that names the text and why it was chosen, and one more
// when a checksum was wrong. `same_as` is the SHA-256 of the text that a run was trained on, or empty. The
// stories have no path that a user could give, so they come first when the SHA-256 is theirs.
// errors: IoError when EDDY_DATA_DIR is given but holds no text.
TextSource resolve_text(std::ostream& messages, const TextPlaces& places = standard_places(),
                        const std::string& same_as = "");

// The bytes of the texts that a run would read, by the sizes of its files; of a data set with a name, of what is
// fetched. Nothing is fetched or read from a pipe. 0: not known, since it is standard input or cannot be read.
std::int64_t text_bytes(const DataConfig& config);

}  // namespace eddy::training
