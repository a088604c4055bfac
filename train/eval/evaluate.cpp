// Runs batches through the model and sums their losses in f64.
#include "train/eval/evaluate.h"

#include <algorithm>
#include <chrono>

#include "autograd/tape.h"
#include "ops/loss/cross_entropy.h"
#include "tensor/base/format.h"
#include "tensor/random/philox.h"
#include "tensor/random/uniform_draw.h"
#include "train/eval/eval_parts.h"
#include "train/step/clock.h"
#include "train/text/corpus.h"

namespace eddy::training {
namespace {

void check_request(const Model& model, std::int64_t tokens, std::int64_t batch, std::int64_t sequence) {
  if (batch < 1 || sequence < 1)
    fail<ValueError>("evaluate: batch {}, sequence {} (at least 1 each)", batch, sequence);
  if (window_count(tokens, sequence) < 1)
    fail<ValueError>("evaluate: {} tokens make no window of {} (at least sequence + 1 tokens are needed)",
                     tokens, sequence);
  if (!value_is(model.full_config().readout, Readout::all))
    fail<ConfigError>("evaluate: model.readout is \"{}\" (a loss per token needs \"all\")",
                      model.full_config().readout);
}

// All ids of a text are scored, so one equal to kNotScored is an error.
Batch window_batch(std::int64_t rows, std::vector<std::int32_t> inputs, std::vector<std::int32_t> targets) {
  for (const std::int32_t id : targets)
    if (id < 0) fail<ValueError>("evaluate: {} is no token (ids are at least 0)", id);
  return make_batch(rows, std::move(inputs), std::move(targets));
}

}  // namespace

void EvalResult::add_position(std::int64_t position, double nats) {
  const auto at = static_cast<std::size_t>(position);
  if (at >= position_loss.size()) {
    position_loss.resize(at + 1, 0);
    position_count.resize(at + 1, 0);
  }
  position_loss[at] += nats;
  ++position_count[at];
}

double EvalResult::chance() const {
  double sum = 0, all = 0;
  for (const auto& [target, count] : answer_count) all += static_cast<double>(count);
  for (const auto& [target, count] : answer_count)
    sum -= static_cast<double>(count) / all * std::log(static_cast<double>(count) / all);
  return all > 0 ? sum : std::numeric_limits<double>::quiet_NaN();
}

std::int64_t spread_index(std::int64_t i, std::int64_t chosen, std::int64_t all) {
  // all = quotient * chosen + rest, so that no product grows beyond all^2 / chosen.
  const std::int64_t quotient = all / chosen, rest = all % chosen;
  return i * quotient + i * rest / chosen;
}

RecorderOptions eval_recorder(const EvalPlan& plan) {
  return {.wanted = plan.capture, .work = "batches", .graphs = 8};
}

BatchLosses evaluate_batch(const Model& model, Batch batch, CarriedState& carried, const EvalPlan& plan,
                           Recorder& recorder) {
  CarriedState current{plan.carry_state ? carried.before(batch) : State(), batch.tokens.dim(0)};
  const BatchLosses result = recorder.run(
      batch_signature(batch), {&batch.tokens, &batch.targets, &batch.start}, current.state,
      [&](State& state) {
        CarriedState inside{state, current.rows};
        ForwardInput input = inside.input(batch, batch.tokens.device(), model);
        input.logits = plan.count_correct;
        const ForwardOutput output = model.forward(input);
        if (plan.carry_state) inside.update(output.state, batch);
        state = inside.state;
        return BatchLosses{plan.count_correct ? cross_entropy_rows(output.logits, batch.targets, kNotScored)
                                              : output.classifier.losses(batch.targets, kNotScored),
                           output.logits, !input.state.empty()};
      });
  if (plan.carry_state) carried = current;
  return result;
}

NextBatch batches_of(std::int64_t count, std::function<Batch(std::int64_t i)> make) {
  return [count, make = std::move(make), i = std::int64_t{0}](Batch& batch) mutable {
    if (i == count) return false;
    batch = make(i++);
    return true;
  };
}

EvalResult evaluate_batches(const Model& model, const NextBatch& next, const EvalPlan& plan,
                            const EvalProgress& progress) {
  const auto start = Clock::now();
  EvalParts parts(model, plan);
  EvalResult result;
  double sum = 0;
  std::int64_t right = 0;
  // Mean and squared deviations of the batches in one pass (Welford, Technometrics 4(3), 1962).
  double mean = 0, squares = 0;
  std::int64_t done = 0;
  for (Batch batch; (plan.batches == 0 || done < plan.batches) && next(batch); batch = {}) {
    ++done;
    const PartLosses output = parts.run(batch);
    result.carried = result.carried || output.carried;
    const std::vector<double>& losses = output.losses;
    double batch_sum = 0;
    for (const double loss : losses) batch_sum += loss;
    sum += batch_sum;
    result.tokens += batch.scored;
    if (plan.random) {
      const double loss = batch_sum / static_cast<double>(batch.scored), deviation = loss - mean;
      mean += deviation / static_cast<double>(done);
      squares += deviation * (loss - mean);
    }
    right += output.correct;
    if (plan.on_batch) plan.on_batch(batch, losses);
    if (plan.position) {
      const std::int32_t* const target = batch.targets.data<std::int32_t>();
      for (std::size_t i = 0; i < losses.size(); ++i)
        if (target[i] != kNotScored) {
          result.add_position(plan.position(static_cast<std::int64_t>(i)), losses[i]);
          ++result.answer_count[target[i]];
        }
    }
    if (progress && !progress(result.tokens, std::max(plan.total, result.tokens))) break;
  }
  if (result.tokens > 0) {
    result.loss = sum / static_cast<double>(result.tokens);
    // A NaN's sign says nothing and would be printed as "-nan".
    if (std::isnan(result.loss)) result.loss = std::numeric_limits<double>::quiet_NaN();
    if (plan.count_correct)
      result.metrics.emplace_back("accuracy",
                                  static_cast<double>(right) / static_cast<double>(result.tokens));
  }
  if (plan.random && done > 1)
    result.standard_error = std::sqrt(squares / static_cast<double>((done - 1) * done));
  const NoGrad no_grad;
  if (const State state = parts.state(); !state.empty()) result.diagnostics = model.diagnostics(state);
  result.seconds = seconds_between(start);
  result.uncaptured = parts.take_message();
  return result;
}

EvalResult evaluate(const Model& model, std::span<const std::int32_t> tokens, std::int64_t sequence,
                    std::int64_t batch, const EvalProgress& progress, const EvalPlan& plan,
                    std::int64_t sample) {
  check_request(model, std::ssize(tokens), batch, sequence);
  const std::int64_t all = window_count(std::ssize(tokens), sequence);
  const std::int64_t windows = sample > 0 ? std::min(sample, all) : all;
  EvalPlan counted = plan;
  counted.total = windows * sequence;
  const auto next = batches_of((windows + batch - 1) / batch, [&](std::int64_t i) {
    const std::int64_t first = i * batch, rows = std::min(batch, windows - first);
    std::vector<std::int32_t> inputs(static_cast<std::size_t>(rows * sequence)), targets(inputs.size());
    for (std::int64_t row = 0; row < rows; ++row)
      read_windows(tokens, sequence, spread_index(first + row, windows, all), 1,
                   inputs.data() + row * sequence, targets.data() + row * sequence);
    return window_batch(rows, std::move(inputs), std::move(targets));
  });
  EvalResult result = evaluate_batches(model, next, counted, progress);
  result.of = all * sequence;
  return result;
}

EvalResult evaluate_random(const Model& model, std::span<const std::int32_t> tokens, std::uint64_t seed,
                           std::int64_t batches, std::int64_t batch, std::int64_t sequence,
                           const EvalProgress& progress, const EvalPlan& plan) {
  if (batches < 1) fail<ValueError>("evaluate: {} batches (at least 1)", batches);
  check_request(model, std::ssize(tokens), batch, sequence);
  // sample_batch draws as for training batches; another seed makes these draws different.
  const RandomKey key = random_key(seed, "evaluate", 0);
  const std::uint64_t draw_seed = (static_cast<std::uint64_t>(key.key1) << 32) | key.key0;
  const auto next = batches_of(batches, [&](std::int64_t i) {
    std::vector<std::int32_t> inputs(static_cast<std::size_t>(batch * sequence)), targets(inputs.size());
    sample_batch(tokens, draw_seed, static_cast<std::uint64_t>(i), 0, batch, sequence, inputs.data(),
                 targets.data());
    return window_batch(batch, std::move(inputs), std::move(targets));
  });
  EvalPlan whole = plan;
  whole.random = true;
  whole.total = batches * batch * sequence;
  return evaluate_batches(model, next, whole, progress);
}

EvalResult evaluate_last(const Model& model, const std::vector<std::span<const std::int32_t>>& texts,
                         std::int64_t sequence, const EvalOptions& options, const EvalProgress& progress,
                         const EvalPlan& plan) {
  const std::int64_t last = options.score_last;
  const std::int64_t first_end = std::max(options.from, sequence + 1);
  if (options.batch < 1 || last < 1 || last > sequence)
    fail<ValueError>("evaluate: batch {}, the last {} targets of {} (at least 1, and no more than there are)",
                     options.batch, last, sequence);
  // The last token of a window is only a target, so a window needs sequence + 1 tokens.
  std::vector<const std::int32_t*> windows;
  for (const std::span<const std::int32_t> text : texts)
    for (std::int64_t end = first_end; end <= std::ssize(text); end += last)
      windows.push_back(text.data() + end - sequence - 1);
  if (windows.empty())
    fail<ValueError>(
        "evaluate: no text has {} tokens, where the first window ends (take a longer text, or a "
        "smaller --from or --sequence)",
        first_end);
  check_request(model, sequence + 1, options.batch, sequence);
  const auto count = std::ssize(windows);
  const std::int64_t wanted = options.batches > 0 ? options.batches * options.batch : count;
  const RandomKey key = random_key(options.seed, "evaluate.last", 0);
  const auto next = batches_of((wanted + options.batch - 1) / options.batch, [&](std::int64_t i) {
    const std::int64_t begin = i * options.batch, end = std::min(begin + options.batch, wanted);
    std::vector<std::int32_t> inputs, targets;
    for (std::int64_t done = begin; done < end; ++done) {
      const std::int64_t chosen =
          options.batches > 0 ? static_cast<std::int64_t>(uniform_below(key, static_cast<std::uint64_t>(done),
                                                                        static_cast<std::uint64_t>(count)))
                              : done;
      const std::int32_t* window = windows[static_cast<std::size_t>(chosen)];
      inputs.insert(inputs.end(), window, window + sequence);
      targets.insert(targets.end(), static_cast<std::size_t>(sequence - last), kNotScored);
      targets.insert(targets.end(), window + sequence + 1 - last, window + sequence + 1);
    }
    return make_batch(end - begin, std::move(inputs), std::move(targets));
  });
  EvalPlan counted = plan;
  counted.total = wanted * last;
  counted.count_correct = true;
  return evaluate_batches(model, next, counted, progress);
}

}  // namespace eddy::training
