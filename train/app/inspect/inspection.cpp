// Reads a stream segment by segment, as evaluate_batches does, and looks into each forward pass.
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
#include "train/app/inspect/named_segment.h"
#include "train/app/inspect/token_series.h"
#include "train/step/recorder.h"
#include "train/words/human_text.h"

namespace eddy::app {
using namespace training;
namespace {

std::vector<double> numbers_of(const Tensor& x) {
  return in_f64(raw::to_device(x, kCpu)).to_vector<double>();
}

// The values that a run names and that `wants` has, on the CPU, all but attention in f64.
NamedValues values_of(const std::function<bool(const std::string& path)>& wants,
                      const std::function<void()>& run) {
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

// Reads a stream call by call, or without the state that earlier calls left.
class CallReader {
 public:
  CallReader(const Model& model, const InspectedStream& stream, bool clear)
      : model_(model), stream_(stream), clear_(clear), recorder_(model.params(), {.wanted = false}) {
    plan_.carry_state = stream.carried;
    plan_.count_correct = !stream.is_text();
  }
  BatchLosses read(std::int64_t from, std::int64_t time) {
    if (clear_ && !carried_.state.empty()) carried_.state = model_.without_recurrence(carried_.state);
    return evaluate_batch(model_, stream_.batch(from, time), carried_, plan_, recorder_);
  }

 private:
  const Model& model_;
  const InspectedStream& stream_;
  bool clear_;
  EvalPlan plan_{};
  Recorder recorder_;  // captures nothing: a replay names nothing
  CarriedState carried_{};
};

TokenSeries empty_series(TokenMeasure measure, std::int64_t tokens) {
  return {measure, {}, std::vector<float>(static_cast<std::size_t>(tokens), std::nanf(""))};
}

// The losses of the last targets of a call that begins at a token, each where it stands.
void place_losses(const InspectedStream& stream, std::int64_t from, const std::vector<double>& nats,
                  std::vector<float>& losses) {
  const std::int64_t unscored = stream.targets > 0 ? stream.segment - stream.targets : 0;
  for (std::size_t i = 0; i < nats.size(); ++i) {
    const auto at = static_cast<std::size_t>(from + unscored) + i;
    if (stream.is_text() ? at + 1 < losses.size() : at < losses.size() && stream.answers[at] != kNotScored)
      losses[stream.is_text() ? at + 1 : at] = static_cast<float>(nats[i]);
  }
}

// The answers of the model: of each row of logits the first of the largest.
void place_answers(const InspectedStream& stream, std::int64_t from, const Tensor& logits,
                   std::vector<std::int32_t>& given) {
  const std::vector<double> numbers = numbers_of(logits);
  const std::int64_t classes = logits.dim(-1);
  const std::int64_t unscored = stream.targets > 0 ? stream.segment - stream.targets : 0;
  for (auto row = numbers.begin(); row != numbers.end(); row += classes) {
    const auto at = static_cast<std::size_t>(from + unscored + (row - numbers.begin()) / classes);
    if (at < given.size() && stream.answers[at] != kNotScored)
      given[at] = static_cast<std::int32_t>(std::max_element(row, row + classes) - row);
  }
}

}  // namespace

const TokenSeries* Inspection::find(TokenMeasure measure, const std::string& path) const {
  for (const TokenSeries& one : series)
    if (one.measure == measure && one.path == path) return &one;
  return nullptr;
}

RightAnswers right_answers(const Inspection& inspection) {
  RightAnswers counted;
  for (std::size_t i = 0; i < inspection.answers.size(); ++i) {
    if (inspection.answers[i] == kNotScored) continue;
    ++counted.answers;
    if (inspection.answers[i] == inspection.given[i]) ++counted.right;
  }
  return counted;
}

Inspection inspect_stream(const Model& model, const InspectedStream& stream, const InspectOptions& options,
                          const EvalProgress& progress) {
  const std::int64_t count = std::ssize(stream.tokens), time = stream.segment;
  if (count < 2)
    fail<ValueError>("inspect: a text of {} {} (at least 2: the first one is predicted by nothing)", count,
                     plural(count, "token"));
  const NoGrad no_grad;
  const ModelConfig& config = model.full_config();
  Inspection result;
  result.tokens = count;
  result.segment = time;
  AttentionCollector attention(count, options);
  StateChooser chooser;
  SeriesCollector series(count, std::bind_front(&StateChooser::visit, &chooser));
  SeriesCollector cleared_series(
      count, [&](const std::string& path, std::int64_t from, std::int64_t, std::span<const double> x) {
        chooser.visit_cleared(path, from, x);
      });
  std::set<std::string> entering;
  const auto states = [&](const std::string& path) {
    return is_place_path(path) || is_state_path(config, path);
  };

  CallReader reader(model, stream, false), cleared_reader(model, stream, true);
  TokenSeries losses = empty_series(TokenMeasure::loss, count);
  TokenSeries cleared = empty_series(TokenMeasure::loss_cleared, count);
  if (!stream.is_text()) {
    result.answers = stream.answers;
    result.given.assign(stream.answers.size(), kNotScored);
  }
  const bool may_clear = stream.carried || stream.apart > 0;
  const std::int64_t work = (may_clear ? 3 : 2) * count;
  for (std::int64_t begin = 0; begin < count; begin += time) {
    const std::int64_t valid = std::min(time, count - begin);
    const bool looks = attention.wants(begin, time);
    BatchLosses output;
    const NamedValues values = values_of(
        [&](const std::string& path) {
          if (looks || !is_attention_path(path) || entering.contains(path)) return true;
          const ValueMeaning* const meaning = meaning_of(config, path);
          return meaning != nullptr && !meaning->moves.empty();
        },
        [&] { output = reader.read(begin, time); });
    note_entering(config, values, entering);
    const std::vector<double> nats = numbers_of(output.losses);
    place_losses(stream, begin, nats, losses.values);
    if (output.logits.defined()) place_answers(stream, begin, output.logits, result.given);
    const NamedSegment segment{config, values, begin, time, valid};
    series.add(segment, output.carried);
    if (looks) attention.add(segment);
    result.carried = result.carried || output.carried;

    // Without the state: from the second segment on it is known whether there is one.
    std::vector<double> saved;
    if (stream.apart > 0 || (stream.carried && (begin == 0 || result.carried))) {
      const std::int64_t part = stream.apart > 0 ? stream.apart : time;
      for (std::int64_t from = begin; from < begin + valid; from += part) {
        BatchLosses without;
        const NamedValues cleared_values =
            values_of(states, [&] { without = cleared_reader.read(from, part); });
        const std::vector<double> part_nats = numbers_of(without.losses);
        place_losses(stream, from, part_nats, cleared.values);
        cleared_series.add({config, cleared_values, from, part, std::min(part, count - from)}, false);
        saved.insert(saved.end(), part_nats.begin(), part_nats.end());
      }
      // Where only the last tokens of a call have answers, nothing is said of the others.
      if (saved.size() == nats.size() && std::ssize(nats) == time)
        for (std::size_t i = 0; i < nats.size(); ++i) saved[i] -= nats[i];
      else
        saved.clear();
    }
    chooser.end_call(begin, saved);
    if (progress) progress((may_clear ? 2 : 1) * (begin + valid), work);
  }
  result.loss = mean_of(losses.values);
  result.series.push_back(std::move(losses));
  std::move(series).take(result);
  const bool has_state = std::ranges::any_of(
      result.series, [](const TokenSeries& one) { return one.measure == TokenMeasure::norm; });
  if (stream.apart > 0 && has_state) {
    result.carried = true;
    result.apart = stream.apart;
  }
  if (result.carried) {
    result.loss_cleared = mean_of(cleared.values);
    result.series.push_back(std::move(cleared));
  }
  std::move(attention).take(result);

  StateShader shader(chooser.choose(options.state_rows), count, options.state_bytes);
  if (shader.has_rows()) {
    SeriesCollector shown(count, std::bind_front(&StateShader::visit, &shader));
    CallReader again(model, stream, false);
    for (std::int64_t begin = 0; begin < count; begin += time) {
      BatchLosses output;
      const NamedValues values = values_of(states, [&] { output = again.read(begin, time); });
      const std::int64_t valid = std::min(time, count - begin);
      shown.add({config, values, begin, time, valid}, output.carried);
      if (progress) progress(work - count + begin + valid, work);
    }
  }
  result.states = std::move(shader).take();
  return result;
}

}  // namespace eddy::app
