// What a run is trained on, file by file, and since when: the first phase is what it began with, and each further one
// what came into its folder since. A run recognises its files by these digests, whatever they are called by now.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "train/text/documents.h"

namespace eddy::training {

struct TextPart {
  std::string name;        // of the file below its folder when the phase began, as printable text
  std::int64_t bytes = 0;  // of its text as UTF-8
  std::string sha256;      // of that text

  friend bool operator==(const TextPart&, const TextPart&) = default;
};

struct TextPhase {
  std::int64_t step = 0;              // of the run when the phase began
  bool folder = false;                // not one file
  std::int64_t train = 0, valid = 0;  // the files of each, where the folder has its own splits; else 0
  std::vector<TextPart> parts;        // in the order in which they are read; first those of `train`

  CutRule cut{};  // of its files, whose digests are those before the cut

  bool has_splits() const { return train > 0 || valid > 0; }

  friend bool operator==(const TextPhase&, const TextPhase&) = default;
};

// The step at which the last phase began; -1 for a run that has one.
// What was recorded for that step may be of the texts
// before.
inline std::int64_t last_growth(const std::vector<TextPhase>& phases) {
  return phases.size() > 1 ? phases.back().step : -1;
}

nlohmann::json to_json(const std::vector<TextPhase>& phases);
// The phases that to_json wrote.
// errors: FormatError for anything else; its text calls the JSON `name`.
std::vector<TextPhase> text_phases_from_json(const nlohmann::json& value, const std::string& name);

// "3 texts (1.2 MB): a.txt, b.txt, c.txt", of many the first.
std::string describe(const TextPhase& phase);

}  // namespace eddy::training
