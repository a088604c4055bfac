// Reads a text segment by segment, as evaluate_batches does, and looks into each forward pass.
#include "train/inspect/inspection.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

#include "autograd/tape.h"
#include "tensor/base/format.h"
#include "train/inspect/attention_rows.h"
#include "train/inspect/token_series.h"
#include "train/tasks/sequence_reader.h"

namespace eddy {
namespace {

std::vector<double> numbers_of(const Tensor& x) {
  return in_f64(raw::to_device(x, kCpu)).to_vector<double>();
}

// Which values to copy out of a segment. The first two show which there are: a value may be named only where a state is
// carried. Probabilities are left out where nobody looks at them, but for those that move a state.
class WantedValues {
 public:
  explicit WantedValues(const ModelConfig& config) : config_(config) {}

  std::vector<std::string> patterns(bool attention) const {
    if (segments_ < 2 || varies_) return {"*"};
    std::vector<std::string> wanted;
    for (const std::string& path : paths_) {
      const ValueMeaning* const meaning = meaning_of(config_, path);
      const bool moves = meaning != nullptr && !meaning->moves.empty();
      if (attention || moves || !is_attention_path(path)) wanted.push_back(path);
    }
    return wanted;
  }
  // `values`: what a segment gave of `patterns`.
  void add(const std::vector<std::string>& patterns, const NamedValues& values) {
    // Nothing: a model that leaves a name out at times. From now on all that it names is taken.
    varies_ = varies_ || (segments_ >= 2 && values.empty() && !patterns.empty());
    if (segments_++ >= 2) return;
    for (const auto& [path, calls] : values) paths_.insert(path);
  }

 private:
  const ModelConfig& config_;
  std::set<std::string> paths_;
  int segments_ = 0;
  bool varies_ = false;
};

// Runs `run` and returns the values that it names and that are wanted; none for a run that names nothing.
NamedValues values_of(const std::vector<std::string>& patterns, const std::function<void()>& run) {
  if (patterns.empty()) {
    run();
    return {};
  }
  bool ran = false;
  try {
    NamedValues values = capture_values(patterns, [&] {
      run();
      ran = true;
    });
    for (auto& [path, calls] : values)
      for (Tensor& call : calls) {
        call = raw::to_device(call, kCpu);
        if (!is_attention_path(path)) call = in_f64(call);
      }
    return values;
  } catch (const CaptureError&) {
    if (!ran) throw;
    return {};
  }
}

double mean_of(const std::vector<float>& losses) {
  double sum = 0;
  std::int64_t count = 0;
  for (const float loss : losses)
    if (!std::isnan(loss)) {
      sum += static_cast<double>(loss);
      ++count;
    }
  return sum / static_cast<double>(count);
}

}  // namespace

const TokenSeries* Inspection::find(TokenMeasure measure, const std::string& path) const {
  for (const TokenSeries& one : series)
    if (one.measure == measure && one.path == path) return &one;
  return nullptr;
}

Inspection inspect_tokens(const Model& model, std::span<const std::int32_t> tokens,
                          const InspectOptions& options, const EvalProgress& progress) {
  if (tokens.size() < 2)
    fail<ValueError>("inspect: a text of {} token{} (at least 2: the first one is predicted by nothing)",
                     tokens.size(), tokens.size() == 1 ? "" : "s");
  const NoGrad no_grad;
  Inspection result;
  result.tokens = std::ssize(tokens);
  result.segment = options.reading.segment;
  AttentionCollector attention(result.tokens, options);
  SeriesCollector series(result.tokens);
  WantedValues wanted(model.full_config());

  // As token_losses reads a text (train/study/comparison.h): labels are the tokens one position further.
  std::vector<std::int32_t> labels(tokens.begin() + 1, tokens.end());
  labels.push_back(kNotScored);
  ReadingOptions reading;
  reading.segment = options.reading.segment;
  reading.pad = true;
  reading.once = true;
  SequenceReader reader({{tokens, labels}}, reading);
  EvalPlan plan;
  plan.carry_state = options.reading.carry_state;
  RecorderOptions recorder_options = eval_recorder(plan);
  recorder_options.wanted = false;  // a replay names nothing
  Recorder recorder(model.params(), recorder_options);

  TokenSeries losses{TokenMeasure::loss, {}, std::vector<float>(tokens.size(), std::nanf(""))};
  CarriedState carried;
  for (Batch batch; reader.next(batch); batch = {}) {
    const std::int64_t begin = reader.places().front().position;
    const bool looks = attention.wants(begin, reading.segment);
    BatchLosses output;
    const std::vector<std::string> patterns = wanted.patterns(looks);
    const NamedValues values =
        values_of(patterns, [&] { output = evaluate_batch(model, batch, carried, plan, recorder); });
    wanted.add(patterns, values);
    const std::vector<double> nats = numbers_of(output.losses);
    const std::int64_t valid = std::min(reading.segment, result.tokens - begin);
    for (std::int64_t i = 0; i < valid && begin + i + 1 < result.tokens; ++i)
      losses.values[static_cast<std::size_t>(begin + i + 1)] =
          static_cast<float>(nats[static_cast<std::size_t>(i)]);
    const NamedSegment segment{model.full_config(), values, begin, reading.segment, valid};
    series.add(segment, output.carried);
    if (looks) attention.add(segment);
    result.carried = result.carried || output.carried;
    // Whether there is a state to clear in a second reading is known from the second segment on.
    const bool twice = begin == 0 ? plan.carry_state : result.carried;
    if (progress) progress(begin + valid, twice ? 2 * result.tokens : result.tokens);
  }
  result.loss = mean_of(losses.values);
  result.series.push_back(std::move(losses));
  if (result.carried) {
    TokenReading cleared = options.reading;
    cleared.rows = 1;
    cleared.clear_state = true;
    const std::vector<double> nats =
        token_losses(model, {tokens}, cleared, [&](std::int64_t done, std::int64_t) {
          if (progress) progress(result.tokens + done, 2 * result.tokens);
          return true;
        })[0];
    result.series.push_back({TokenMeasure::loss_cleared, {}, {nats.begin(), nats.end()}});
    result.loss_cleared = mean_of(result.series.back().values);
  }
  std::move(series).take(result);
  std::move(attention).take(result);
  return result;
}

}  // namespace eddy
