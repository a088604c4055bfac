// Splitting, random batches and validation windows.
#include "train/text/corpus.h"

#include <algorithm>
#include <cmath>

#include "tensor/base/format.h"
#include "tensor/random/philox.h"
#include "tensor/random/uniform_draw.h"

namespace eddy::training {
namespace {

void check_sequence(const char* op, std::int64_t sequence) {
  if (sequence < 1) fail<ValueError>("{}: sequence must be at least 1: {}", op, sequence);
}

void copy_window(std::span<const std::int32_t> tokens, std::int64_t start, std::int64_t sequence,
                 std::int64_t row, std::int32_t* inputs, std::int32_t* targets) {
  const std::int32_t* from = tokens.data() + start;
  std::copy_n(from, sequence, inputs + row * sequence);
  std::copy_n(from + 1, sequence, targets + row * sequence);
}

}  // namespace

std::int64_t part_of(double fraction, std::int64_t all) {
  return static_cast<std::int64_t>(std::floor(fraction * static_cast<double>(all)));
}

std::int64_t training_part(std::int64_t length, double train_fraction, std::int64_t sequence) {
  check_sequence("corpus", sequence);
  if (!(train_fraction > 0.0 && train_fraction < 1.0))
    fail<ValueError>(
        "corpus: data.split is {}, which leaves nothing to evaluate on (above 0 and below 1; with train.eval_every 0, "
        "which evaluates nothing, it may be 1)",
        train_fraction);
  const std::int64_t train = part_of(train_fraction, length);
  const std::int64_t valid = length - train;
  if (train <= sequence || valid <= sequence)
    fail<ValueError>(
        "corpus: too few tokens: {} for training and {} for validation, and each needs {}, a sequence of {} and one "
        "(take a longer text, a shorter train.sequence, or a data.split other than {}; for training without evaluations, "
        "train.eval_every 0, nothing is needed for validation)",
        train, valid, sequence + 1, sequence, train_fraction);
  return train;
}

void sample_batch(std::span<const std::int32_t> tokens, std::uint64_t seed, std::uint64_t step,
                  std::uint64_t micro, std::int64_t batch, std::int64_t sequence, std::int32_t* inputs,
                  std::int32_t* targets) {
  check_sequence("sample_batch", sequence);
  if (batch < 1) fail<ValueError>("sample_batch: batch must be at least 1: {}", batch);
  const auto length = std::ssize(tokens);
  if (length <= sequence)
    fail<ValueError>("sample_batch: too few tokens: {}, sequence {} (at least sequence + 1 are needed)",
                     length, sequence);

  const RandomKey key = random_key(seed, "data.train", step);
  const auto starts = static_cast<std::uint64_t>(length - sequence);
  for (std::int64_t row = 0; row < batch; ++row) {
    const std::uint64_t draw = micro * static_cast<std::uint64_t>(batch) + static_cast<std::uint64_t>(row);
    const auto start = static_cast<std::int64_t>(uniform_below(key, draw, starts));
    copy_window(tokens, start, sequence, row, inputs, targets);
  }
}

std::int64_t window_count(std::int64_t tokens, std::int64_t sequence) {
  check_sequence("window_count", sequence);
  return tokens < 1 ? 0 : (tokens - 1) / sequence;
}

void read_windows(std::span<const std::int32_t> tokens, std::int64_t sequence, std::int64_t first,
                  std::int64_t windows, std::int32_t* inputs, std::int32_t* targets) {
  const std::int64_t count = window_count(std::ssize(tokens), sequence);
  if (first < 0 || windows < 0 || first > count || windows > count - first)
    fail<ValueError>("read_windows: outside the text: windows {} from {} on, of {} (sequence {})", windows,
                     first, count, sequence);
  for (std::int64_t row = 0; row < windows; ++row)
    copy_window(tokens, (first + row) * sequence, sequence, row, inputs, targets);
}

}  // namespace eddy::training
