// The best loss of the last third of the steps beside the best one before.
#include "train/eval/learning_verdict.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "train/words/human_text.h"

namespace eddy::training {
namespace {

constexpr double kMoves = 0.01;  // of the loss: what changes less stands still
constexpr std::size_t kFewestEvaluations = 3;
// c of promised_loss, and the part of what it promises to gain by which it is wrong at most: on its way, and where the
// rate has fallen. Measured on three texts, train/run/README.md.
constexpr double kGainOfTwice = 0.4, kErrorOnItsWay = 0.5, kErrorAtItsEnd = 0.75;

const EvalPoint* best_between(const std::vector<EvalPoint>& points, std::int64_t after, std::int64_t until) {
  const EvalPoint* best = nullptr;
  for (const EvalPoint& point : points)
    if (point.step > after && point.step <= until && std::isfinite(point.loss) &&
        (best == nullptr || point.loss < best->loss))
      best = &point;
  return best;
}

}  // namespace

double epochs_in(std::int64_t tokens, std::int64_t epoch_tokens) {
  return epoch_tokens > 0 ? static_cast<double>(tokens) / static_cast<double>(epoch_tokens) : 0;
}

std::string epochs_text(double epochs) {
  const std::string number = epochs < 100 ? human_number(epochs, 2) : fmt::format("{:.0f}", epochs);
  return fmt::format("{} {}", number, plural(number == "1" ? 1 : 2, "epoch"));
}

std::optional<Promise> promised_loss(const std::vector<EvalPoint>& evaluations, bool rate_has_fallen) {
  if (evaluations.empty() || !std::isfinite(evaluations.back().loss)) return std::nullopt;
  const EvalPoint& last = evaluations.back();
  const double quarter = static_cast<double>(last.step) / 4;
  const EvalPoint* early = nullptr;
  for (const EvalPoint& point : evaluations) {
    if (point.step <= 0 || !std::isfinite(point.loss)) continue;
    const auto step = static_cast<double>(point.step);
    if (step < quarter) {
      early = &point;
      continue;
    }
    if (early == nullptr && step > quarter) return std::nullopt;
    const auto before = static_cast<double>(early != nullptr ? early->step : point.step);
    const double way = step > before ? std::log(quarter / before) / std::log(step / before) : 1;
    const double was = early != nullptr ? early->loss + way * (point.loss - early->loss) : point.loss;
    const double gain = kGainOfTwice * (was - last.loss);
    if (gain <= 0) return std::nullopt;
    return Promise{last.loss - gain, (rate_has_fallen ? kErrorAtItsEnd : kErrorOnItsWay) * gain};
  }
  return std::nullopt;
}

std::string promise_text(const std::vector<EvalPoint>& evaluations, bool rate_has_fallen,
                         double bits_per_nat) {
  const std::optional<Promise> promise = promised_loss(evaluations, rate_has_fallen);
  if (!promise) return "";
  const bool in_bits = std::isfinite(bits_per_nat);
  const double unit = in_bits ? bits_per_nat : 1;
  return fmt::format("a run twice as long promises {}{:.2f}{}, give or take {:.2f}",
                     in_bits ? "" : "a loss of ", unit * promise->loss, in_bits ? " bits per byte" : "",
                     unit * promise->error);
}

std::string learning_verdict(const std::vector<EvalPoint>& evaluations, double epochs,
                             const std::string& promise) {
  const std::string more = promise.empty() ? "" : "; " + promise;
  const auto trained = std::count_if(evaluations.begin(), evaluations.end(), [](const EvalPoint& point) {
    return point.step > 0 && std::isfinite(point.loss);
  });
  const std::int64_t last = evaluations.empty() ? 0 : evaluations.back().step;
  const EvalPoint* const before = best_between(evaluations, 0, 2 * last / 3);
  const EvalPoint* const lately = best_between(evaluations, 2 * last / 3, last);
  if (last > 0 && !std::isfinite(evaluations.back().loss)) {
    const auto lost = std::find_if(evaluations.begin(), evaluations.end(),
                                   [](const EvalPoint& point) { return !std::isfinite(point.loss); });
    return fmt::format(
        "diverged: at step {} the loss was no longer finite (take the checkpoint best; a lower "
        "train.learning_rate may help)",
        grouped(lost->step));
  }
  const bool can_tell =
      trained >= static_cast<std::ptrdiff_t>(kFewestEvaluations) && before != nullptr && lately != nullptr;
  // By how much the last third of the steps lowered the loss.
  const double fall = can_tell ? (before->loss - lately->loss) / std::abs(before->loss) : 0;
  if (can_tell && fall < -kMoves)
    return epochs < 1
               ? fmt::format(
                     "getting worse: the best loss was at step {}, and the text is not read once "
                     "(a lower train.learning_rate may help)",
                     grouped(before->step))
               : fmt::format(
                     "over-fitting: the best loss was at step {}, the text is read {} times, and since "
                     "then the loss is {:.0f} % higher (take the checkpoint best; more text or "
                     "model.dropout helps, more steps do not)",
                     grouped(before->step), human_number(epochs, 2), -100 * fall);
  if (epochs < 1)
    return fmt::format("far from done: {} of the text has been read{}",
                       epochs < 0.01 ? "less than 1 %" : fmt::format("{:.0f} %", 100 * epochs), more);
  if (!can_tell)
    return fmt::format(
        "too early to say: {} {} after the first step (at least {}, one of them in the last third)", trained,
        plural(trained, "evaluation"), kFewestEvaluations);
  if (fall > kMoves)
    return fmt::format("far from done: the last third of the steps lowered the loss by {:.0f} %{}",
                       100 * fall, more);
  return fmt::format(
      "at its best: the last third of the steps changed the loss by less than {:.0f} % (a larger "
      "model, a lower train.learning_rate or more text may go further)",
      100 * kMoves);
}

}  // namespace eddy::training
