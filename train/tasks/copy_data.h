// The copy and selective copy tasks: the model reads M symbols and a long stretch of noise, and then repeats
// the symbols.
// Source: Kausik, "Recurrent Transformers" (2025), whose script follows the selective copying task of A. Gu
// and T. Dao, "Mamba" (2023).
//
//                     symbols + noise positions    M markers    targets at the markers
//   copy              s1 … sM  0 0 0 … 0           15 … 15      s1 … sM
//   selective copy    0 s1 0 0 s2 … sM 0           15 … 15      s1 … sM
//
// Each s is uniform over 1 … 14. Selective copy puts the symbols at M positions, a uniformly drawn subset.
// Only the markers are scored.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "models/config_keys.h"
#include "models/value_names.h"
#include "tensor/random/philox.h"

namespace eddy::training {

// data.rate_rule: how the learning rate follows the noise length.
enum class RateRule { code, paper };

}  // namespace eddy::training

// Their names, in the order of the values.
template <>
struct eddy::ValueNames<eddy::training::RateRule> {
  static constexpr const char* all[] = {"code", "paper"};
};

namespace eddy::training {

// The keys of the two tasks, beside data.noise and data.stop_loss.
struct CopyKeys {
  std::int64_t symbols = 16;            // to remember
  std::int64_t noise_max = 4096;        // noise symbols at the end of the curriculum
  std::int64_t curriculum_every = 100;  // steps between validations that may lengthen the noise; 0: never
  std::int64_t curriculum_batches = 100;
  std::string rate_rule = value_name(RateRule::code);

  friend bool operator==(const CopyKeys&, const CopyKeys&) = default;
};
void describe(KeyList& keys, CopyKeys& config);

inline constexpr std::int64_t kCopyAlphabet = 16;  // 0 noise, 1 … 14 symbols, 15 marker
inline constexpr std::int32_t kCopyMarker = 15;

// Rows of examples: tokens [rows, 2 symbols + noise], targets [rows, symbols].
struct CopyExamples {
  std::vector<std::int32_t> tokens, targets;
};

// New examples, a pure function of (key, first_row).
// errors: ValueError unless rows, symbols >= 1, noise >= 0.
CopyExamples copy_examples(const RandomKey& key, std::int64_t first_row, std::int64_t rows,
                           std::int64_t symbols, std::int64_t noise, bool selective);

// How the noise length and the learning rate follow the validation loss. A loss below 0.3 doubles the noise.
// There are two rules for the rate:
//
//   code    as the published program:
//             each time the noise grows    base *= 1 - noise / (2 longest)
//             at the longest noise         rate = base (1 - exp(-loss)), never rising
//   paper   as the paper's text, from the context length alone:
//             rate = 5e-4 (1 - context / (2 longest context)), from the first length on,
//             times (1 - exp(-loss)) of a validation at the longest
struct CopyCurriculum {
  std::int64_t noise = 32, longest = 4096, symbols = 16;
  double first_rate = 5e-4;
  double base = 5e-4;
  double rate = 5e-4;
  bool paper_rule = false;

  // Sets the rate of the first length.
  void begin();

  // Updates noise and rate from a validation loss, and returns whether the noise grew. A loss that is not
  // finite changes nothing.
  bool update(double loss);

 private:
  double paper_rate() const;
};

// The block size of the recurrence for a noise length: half the noise, at most `largest`, at least 1.
std::int64_t copy_block(std::int64_t noise, std::int64_t largest);

}  // namespace eddy::training
