// Which text a run trains on when the user does not say, or says little: the first of
//   1. the path of --data.path, a file or a folder;
//   2. the folder in EDDY_DATA_DIR, which holds tinyshakespeare/input.txt;
//   3. tiny Shakespeare in the user's cache, downloaded once and checked by its SHA-256;
//   4. stories that Eddy writes itself.
// An error in 1 or 2, which the user asked for, is thrown; a failure in 3 is said and leads to 4.
#pragma once

#include <functional>
#include <ostream>
#include <string>
#include <string_view>

#include "train/text/corpus.h"

namespace eddy {

struct TextSource {
  Text text;
  std::string name;  // "tinyshakespeare", "stories", or the path the user gave
};

// Where to look. `standard_places` fills it from the environment; tests fill it by hand.
struct TextPlaces {
  std::string data_dir;   // EDDY_DATA_DIR, empty when unset
  std::string cache_dir;  // the user's cache folder, empty when there is none
  std::string origin;     // the URL of tiny Shakespeare
  std::string sha256;     // of the file behind it
  // Writes the URL's content to a path and returns "", or returns why it could not.
  std::function<std::string(const std::string& url, const std::string& path)> fetch;
};

TextPlaces standard_places();

// Runs `curl` (no shell) to write what lies behind `url` to `path`: at most 3 s for the connection, 20 s in
// all. Returns "" on success, else the reason in words.
std::string fetch_with_curl(const std::string& url, const std::string& path);

// The text to train on; writes one line to `says` that tells which it took and why, and one more when a
// checksum was wrong. `same_as` is the SHA-256 of a text that a run was trained on, or empty: without a
// data_path the stories come first when it is theirs, since they have no name to ask for them by.
// errors: IoError when data_path or EDDY_DATA_DIR is given but holds no text.
TextSource resolve_text(const std::string& data_path, std::ostream& says,
                        const TextPlaces& places = standard_places(), const std::string& same_as = "");

}  // namespace eddy
