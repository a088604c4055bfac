// Batches of windows through the model, losses summed in f64.
#include "train/evaluate.h"

#include <algorithm>
#include <chrono>
#include <cmath>

#include "autograd/tape.h"
#include "ops/cross_entropy.h"
#include "tensor/format.h"
#include "tensor/philox.h"
#include "train/corpus.h"

namespace eddy {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

void check_request(const Model& model, std::int64_t tokens, std::int64_t batch, std::int64_t sequence) {
  if (batch < 1 || sequence < 1)
    fail<ValueError>("evaluate: batch {}, sequence {} (at least 1 each)", batch, sequence);
  if (window_count(tokens, sequence) < 1)
    fail<ValueError>("evaluate: {} tokens make no window of {} (at least sequence + 1 tokens are needed)",
                     tokens, sequence);
  if (model.config().readout != "all")
    fail<ConfigError>("evaluate: model.readout is \"{}\" (a loss per token needs \"all\")",
                      model.config().readout);
}

struct TokenBatch {
  Tensor inputs, targets;  // [rows, sequence] i32, on the CPU

  TokenBatch(std::int64_t rows, std::int64_t sequence)
      : inputs(Tensor::empty({rows, sequence}, Dtype::i32)),
        targets(Tensor::empty({rows, sequence}, Dtype::i32)) {}
};

// The sum of the losses of all tokens of a batch.
double loss_sum(const Model& model, const TokenBatch& batch) {
  // No id is negative, so no target is ever passed over.
  constexpr std::int64_t kIgnoreNone = std::numeric_limits<std::int64_t>::min();
  const Device device = model.params().values().device();
  const auto placed = [device](const Tensor& x) { return device == kCpu ? x : raw::to_device(x, device); };
  ForwardInput input;
  input.tokens = placed(batch.inputs);
  const Tensor logits = model.forward(input).logits;
  Tensor rows = cross_entropy_rows(logits, placed(batch.targets), kIgnoreNone);
  if (!(device == kCpu)) rows = raw::to_device(rows, kCpu);
  rows = raw::contiguous(rows.dtype() == Dtype::f64 ? rows : raw::cast(rows, Dtype::f64));
  const double* losses = rows.data<double>();
  double sum = 0;
  for (std::int64_t i = 0; i < rows.elements(); ++i) sum += losses[i];
  return sum;
}

}  // namespace

double EvalResult::bits_per_token() const {
  return loss / std::log(2.0);
}

double EvalResult::perplexity() const {
  return std::exp(loss);
}

EvalResult evaluate(const Model& model, std::span<const std::int32_t> tokens, std::int64_t sequence,
                    std::int64_t batch, const EvalProgress& progress) {
  const auto length = static_cast<std::int64_t>(tokens.size());
  check_request(model, length, batch, sequence);
  const auto start = Clock::now();
  const NoGrad no_grad;
  const std::int64_t windows = window_count(length, sequence), total = windows * sequence;
  double sum = 0;
  EvalResult result;
  for (std::int64_t first = 0; first < windows;) {
    const std::int64_t rows = std::min(batch, windows - first);
    const TokenBatch part(rows, sequence);
    read_windows(tokens, sequence, first, rows, part.inputs.data<std::int32_t>(),
                 part.targets.data<std::int32_t>());
    sum += loss_sum(model, part);
    first += rows;
    result.tokens += rows * sequence;
    if (progress && !progress(result.tokens, total)) break;
  }
  result.loss = sum / static_cast<double>(result.tokens);
  result.seconds = seconds_since(start);
  return result;
}

EvalResult evaluate_random(const Model& model, std::span<const std::int32_t> tokens, std::uint64_t seed,
                           std::int64_t batches, std::int64_t batch, std::int64_t sequence,
                           const EvalProgress& progress) {
  if (batches < 1) fail<ValueError>("evaluate: {} batches (at least 1)", batches);
  check_request(model, static_cast<std::int64_t>(tokens.size()), batch, sequence);
  const auto start = Clock::now();
  const NoGrad no_grad;
  // sample_batch draws from the stream of the training batches; another seed makes these draws others.
  const RandomKey key = random_key(seed, "evaluate", 0);
  const std::uint64_t draw_seed = (static_cast<std::uint64_t>(key.key1) << 32) | key.key0;

  // Mean and squared deviations in one pass (Welford, Technometrics 4(3), 1962).
  double mean = 0, squares = 0;
  const TokenBatch part(batch, sequence);
  EvalResult result;
  std::int64_t done = 0;
  while (done < batches) {
    sample_batch(tokens, draw_seed, static_cast<std::uint64_t>(done), 0, batch, sequence,
                 part.inputs.data<std::int32_t>(), part.targets.data<std::int32_t>());
    const double loss = loss_sum(model, part) / static_cast<double>(batch * sequence);
    const double deviation = loss - mean;
    mean += deviation / static_cast<double>(++done);
    squares += deviation * (loss - mean);
    result.tokens += batch * sequence;
    if (progress && !progress(result.tokens, batches * batch * sequence)) break;
  }
  result.loss = mean;
  if (done > 1) result.standard_error = std::sqrt(squares / static_cast<double>((done - 1) * done));
  result.seconds = seconds_since(start);
  return result;
}

}  // namespace eddy
