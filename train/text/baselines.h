// What simple predictors reach on a text, so that a person can judge the loss of a model. All numbers are bits per
// byte (text_measures.h), fitted on a sample of the training text and measured on one of the validation text:
//
//   uniform    log2 V bits for each letter                           V: the size of the alphabet
//   letters    p(x)     = (c(x) + T / V) / (N + T)                   N letters, T different ones
//   bigrams    p(x | a) = (c(a x) + T(a) p(x)) / (c(a) + T(a))       T(a) different letters after a
//   xz         8 (bytes of xz(training + validation) - bytes of xz(training)) / bytes of validation
//
// A letter is a code point; a byte that is not UTF-8 is a letter of its own.
// Source: Witten and Bell, "The zero-frequency problem" (1991), method C.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "train/text/tokenizer.h"

namespace eddy::training {

struct Baselines {
  double uniform = std::numeric_limits<double>::quiet_NaN();
  double letters = std::numeric_limits<double>::quiet_NaN();
  double bigrams = std::numeric_limits<double>::quiet_NaN();
  double xz = std::numeric_limits<double>::quiet_NaN();  // NaN where `no_xz` says why
  std::string no_xz;
  std::int64_t alphabet = 0;
  std::int64_t training_bytes = 0, validation_bytes = 0;      // of the samples
  bool training_is_part = false, validation_is_part = false;  // whether the text has more

  // Names and values of those that were measured, from the weakest on.
  std::vector<std::pair<std::string, double>> listed() const;
  // "fitted on 1.0 MB of the training text, measured on all 112 kB of the validation text".
  std::string samples() const;
  // "uniform letters 6.02, letter frequencies 4.79, bigrams 3.54, xz 2.5", or why there is no xz.
  std::string summary() const;
  // Where a loss stands among them: "better than bigrams 3.54, worse than xz 2.5".
  std::string place_of(double bits_per_byte) const;
};

struct BaselineOptions {
  std::int64_t alphabet = 0;        // letters, if known; 0: those of both samples
  std::string compressor = "xz";    // its program
  std::function<bool()> stop = {};  // looked at while xz runs; true ends it
};

// The baselines of two samples, which are parts of their texts or all of them. What xz takes is bounded by their
// sizes: about a second for each MiB.
// errors: ValueError when one is empty.
Baselines measure_baselines(std::string_view training, std::string_view validation,
                            const BaselineOptions& options = {});

// At most `bytes` bytes of the text of tokens: all of it, or pieces of 16 KiB that are evenly spread.
struct TextSample {
  std::string text;
  bool is_part = false;
};
TextSample sample_of(const Tokenizer& tokenizer, std::span<const std::int32_t> tokens, std::int64_t bytes);

// The samples that a run takes: 512 KiB to fit, 128 KiB to measure.
inline constexpr std::int64_t kTrainingSample = std::int64_t{1} << 19;
inline constexpr std::int64_t kValidationSample = std::int64_t{1} << 17;

// The baselines as JSON and back; a number that was not measured is null.
// errors: nlohmann::json::exception for values of another kind.
nlohmann::json to_json(const Baselines& baselines);
Baselines baselines_from_json(const nlohmann::json& value);

}  // namespace eddy::training
