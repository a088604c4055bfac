// Reads a text segment by segment, as evaluate_batches does, and looks into each forward pass.
#include "train/app/inspect/inspection.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <set>
#include <string>
#include <utility>

#include "autograd/tape.h"
#include "tensor/base/format.h"
#include "train/app/inspect/attention_rows.h"
#include "train/app/inspect/token_series.h"
#include "train/tasks/sequence_reader.h"
#include "train/words/human_text.h"

namespace eddy::app {
using namespace training;
namespace {

std::vector<double> numbers_of(const Tensor& x) {
  return in_f64(raw::to_device(x, kCpu)).to_vector<double>();
}

// The values that a run names, on the CPU, all but attention in f64. Probabilities that nobody looks at are left out, but
// for those that move a state and those that `entering` has.
NamedValues values_of(const ModelConfig& config, bool attention, const std::set<std::string>& entering,
                      const std::function<void()>& run) {
  const auto wants = [&](const std::string& path) {
    if (attention || !is_attention_path(path) || entering.contains(path)) return true;
    const ValueMeaning* const meaning = meaning_of(config, path);
    return meaning != nullptr && !meaning->moves.empty();
  };
  NamedValues values = capture_values_if(wants, run);
  for (auto& [path, calls] : values)
    for (Tensor& call : calls) {
      call = raw::to_device(call, kCpu);
      if (!is_attention_path(path)) call = in_f64(call);
    }
  return values;
}

// Adds the attention that has a gate's share for the first token of a segment.
void note_entering(const ModelConfig& config, const NamedValues& values, std::set<std::string>& entering) {
  for (const auto& [path, calls] : values)
    if (const ValueMeaning* const meaning = meaning_of(config, path);
        meaning != nullptr && !meaning->enters.empty())
      entering.insert(beside(scope_of(path), meaning->enters));
}

double mean_of(const std::vector<float>& losses) {
  double sum = 0;
  std::int64_t count = 0;
  for (const float loss : losses)
    if (!std::isnan(loss)) {
      sum += static_cast<double>(loss);
      ++count;
    }
  return count > 0 ? sum / static_cast<double>(count) : std::numeric_limits<double>::quiet_NaN();
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
    fail<ValueError>("inspect: a text of {} {} (at least 2: the first one is predicted by nothing)",
                     tokens.size(), plural(tokens.size(), "token"));
  const NoGrad no_grad;
  Inspection result;
  result.tokens = std::ssize(tokens);
  result.segment = options.reading.segment;
  AttentionCollector attention(result.tokens, options);
  SeriesCollector series(result.tokens);
  std::set<std::string> entering;

  // As token_losses reads a text (train/app/report/comparison.h).
  const std::vector<std::int32_t> labels = options.reading.labels_of(0, tokens);
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
    const std::int64_t begin = reader.row_positions().front().position;
    const bool looks = attention.wants(begin, reading.segment);
    BatchLosses output;
    const NamedValues values = values_of(model.full_config(), looks, entering, [&] {
      output = evaluate_batch(model, batch, carried, plan, recorder);
    });
    note_entering(model.full_config(), values, entering);
    const std::vector<double> nats = numbers_of(output.losses);
    const std::int64_t valid = std::min(reading.segment, result.tokens - begin);
    for (std::int64_t i = 0; i < valid; ++i)
      if (const auto at = static_cast<std::size_t>(begin + i); labels[at] != kNotScored)
        losses.values[at + options.reading.ahead()] = static_cast<float>(nats[static_cast<std::size_t>(i)]);
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

}  // namespace eddy::app
