// The copy and selective copy tasks: M symbols, a long noise, and the symbols again.
// Source: Kausik, "Recurrent Transformers" (2025), whose script follows the selective copying task of A. Gu
// and T. Dao, "Mamba" (2023).
//
//   copy              s1 … sM  0 0 0 … 0           15 … 15  ->  s1 … sM      s uniform over 1 … 14
//   selective copy    0 s1 0 0 s2 … sM 0           15 … 15  ->  s1 … sM      at M places drawn without order
//                     `symbols + noise` positions  M markers, whose positions are scored
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tensor/random/philox.h"

namespace eddy {

inline constexpr std::int64_t kCopyAlphabet = 16;  // 0 noise, 1 … 14 symbols, 15 marker
inline constexpr std::int32_t kCopyMarker = 15;

// Rows of examples: tokens [rows, 2 symbols + noise], targets [rows, symbols].
struct CopyExamples {
  std::vector<std::int32_t> tokens, targets;
};

// Fresh examples, a pure function of (key, first_row).
// errors: ValueError unless rows, symbols >= 1, noise >= 0.
CopyExamples copy_examples(const RandomKey& key, std::int64_t first_row, std::int64_t rows,
                           std::int64_t symbols, std::int64_t noise, bool selective);

// How noise length and learning rate go on from a validation loss. `code`, the published program: at a loss
// below 0.3 the noise doubles and base shrinks by 1 - noise / (2 longest), again and again; at the longest
// noise the rate is base (1 - exp(-loss)) and never rises. `paper`: the rate follows from the context alone,
// 5e-4 (1 - context / (2 longest context)), times (1 - exp(-loss)) at the longest.
struct CopyCurriculum {
  std::int64_t noise = 32, longest = 4096, symbols = 16;
  double first_rate = 5e-4;
  double base = 5e-4;
  double rate = 5e-4;
  bool paper_rule = false;

  // Takes a validation loss. Returns whether the noise grew. A loss that is not finite changes nothing.
  bool update(double loss);
};

// The block of the recurrence for a noise length: half the noise, at most `largest`, at least 1.
std::int64_t copy_block(std::int64_t noise, std::int64_t largest);

}  // namespace eddy
