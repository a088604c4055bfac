// Computing the two curves, and a table of a few of their points.
#include "train/app/report/loss_by_position.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <utility>

#include "train/app/views/chart_axis.h"
#include "train/app/views/html_page.h"
#include "train/words/human_text.h"

namespace eddy::app {
using namespace training;
namespace {

// The curves, and across them chance and the end of the first segment.
Chart curve_chart(const char* title, const std::vector<NamedResult>& results, const PositionMarks& marks,
                  PositionCurve (*curve_of)(const EvalResult&)) {
  Chart chart{title, "position", "nats per " + marks.target, true, false, {}};
  for (const NamedResult& named : results) {
    PositionCurve curve = curve_of(named.result);
    chart.series.push_back({named.name, std::move(curve.positions), std::move(curve.nats)});
  }
  const ChartRanges drawn = measure(chart);
  if (const double chance = results.front().result.chance();
      std::isfinite(chance) && drawn.x.low < drawn.x.high)
    chart.series.push_back({"chance", {drawn.x.low, drawn.x.high}, {chance, chance}});
  const double border = static_cast<double>(marks.border) + 0.5;
  if (marks.border > 0 && border < drawn.x.high)
    chart.series.push_back({fmt::format("end of the first segment, {}", marks.border),
                            {border, border},
                            {drawn.y.low, drawn.y.high}});
  return chart;
}

// The mean loss of the targets at the positions [from, to), counted from 0; not a number where there are none.
double mean_between(const EvalResult& result, std::size_t from, std::size_t to) {
  double nats = 0, targets = 0;
  for (std::size_t i = from; i < std::min(to, result.position_loss.size()); ++i) {
    nats += result.position_loss[i];
    targets += static_cast<double>(result.position_count[i]);
  }
  return targets > 0 ? nats / targets : std::numeric_limits<double>::quiet_NaN();
}

// "saves 3.03" or "costs 0.2"; "hardly changes anything" within a hundredth of the smaller loss or 0.001 nats.
std::string effect_of(double with, double without) {
  const double saved = without - with;
  if (!(std::abs(saved) > std::max(0.001, 0.01 * std::min(with, without))))
    return saved == 0 ? "changes nothing" : "hardly changes anything";
  return saved > 0 ? fmt::format("saves {:.3g}", saved) : fmt::format("costs {:.3g}", -saved);
}

// The value of a curve at a position, or at the last one before it.
std::optional<double> value_at(const std::vector<double>& positions, const std::vector<double>& values,
                               double position) {
  const auto next = std::upper_bound(positions.begin(), positions.end(), position);
  if (next == positions.begin()) return {};
  return values[static_cast<std::size_t>(next - positions.begin()) - 1];
}

// The texts that the results are of: all results read the same ones.
PositionTexts texts_of(const std::vector<NamedResult>& results) {
  for (const NamedResult& named : results)
    if (PositionTexts found = texts_by_position(named.result); !found.positions.empty()) return found;
  return {};
}

}  // namespace

PositionCurve cumulative_nats(const EvalResult& result) {
  PositionCurve curve;
  double nats = 0, targets = 0;
  for (std::size_t i = 0; i < result.position_loss.size(); ++i) {
    if (result.position_count[i] == 0) continue;
    nats += result.position_loss[i];
    targets += static_cast<double>(result.position_count[i]);
    curve.positions.push_back(static_cast<double>(i + 1));
    curve.nats.push_back(nats / targets);
  }
  return curve;
}

PositionCurve local_nats(const EvalResult& result) {
  PositionCurve curve;
  const std::size_t length = result.position_loss.size();
  for (std::size_t begin = 0; begin < length;) {
    const std::size_t end = std::min(length, begin + std::max<std::size_t>(1, begin / 8));
    double nats = 0, targets = 0;
    for (std::size_t i = begin; i < end; ++i) {
      nats += result.position_loss[i];
      targets += static_cast<double>(result.position_count[i]);
    }
    if (targets > 0) {
      curve.positions.push_back(static_cast<double>(begin + end + 1) / 2);
      curve.nats.push_back(nats / targets);
    }
    begin = end;
  }
  return curve;
}

PositionTexts texts_by_position(const EvalResult& result) {
  PositionTexts found;
  const std::vector<std::int64_t>& counts = result.position_count;
  std::vector<std::int64_t> texts(counts.size());
  for (std::size_t i = counts.size(); i-- > 0;)
    texts[i] = std::max(counts[i], i + 1 < counts.size() ? texts[i + 1] : 0);
  for (std::size_t i = 0; i < texts.size(); ++i) {
    const bool begins = i == 0 || texts[i - 1] != texts[i];
    const bool ends = i + 1 == texts.size() || texts[i + 1] != texts[i];
    if (texts[i] == 0 || (!begins && !ends)) continue;
    found.positions.push_back(static_cast<double>(i + 1));
    found.texts.push_back(static_cast<double>(texts[i]));
  }
  return found;
}

std::string position_sentence(const std::vector<NamedResult>& results, const PositionMarks& marks) {
  if (results.empty() || results.front().result.position_loss.empty()) return "";
  const EvalResult& first = results.front().result;
  const std::size_t positions = first.position_loss.size();
  const bool has_border = marks.border > 0 && static_cast<std::size_t>(marks.border) < positions;
  // Without a border the first and the last quarter of the positions are compared.
  const std::size_t begin = has_border ? static_cast<std::size_t>(marks.border)
                                       : positions - std::max<std::size_t>(1, positions / 4);
  const std::size_t end = has_border ? begin : std::max<std::size_t>(1, positions / 4);
  const double early = mean_between(first, 0, end), late = mean_between(first, begin, positions);
  const double without = results.size() > 1 ? mean_between(results[1].result, begin, positions)
                                            : std::numeric_limits<double>::quiet_NaN();
  if (!std::isfinite(late)) return "";
  std::string text;
  if (std::isfinite(without))
    text = fmt::format(
        "Behind position {} the loss is {:.3g} nats per {} with the state and {:.3g} with it cleared: "
        "what it carries {}.",
        begin, late, marks.target, without, effect_of(late, without));
  else if (std::isfinite(early) && positions > 1)
    text = fmt::format("Up to position {} the loss is {:.3g} nats per {}, behind position {} it is {:.3g}.",
                       end, early, marks.target, begin, late);
  else
    text = fmt::format("Behind position {} the loss is {:.3g} nats per {}.", begin, late, marks.target);
  const double chance = first.chance();
  if (!std::isfinite(chance)) return text;
  text += fmt::format(" Guessing by how often each answer comes costs {:.3g}", chance);
  if (late >= 0.98 * chance)
    text += late >= chance ? ": the model does no better there" : ": the model hardly does better there";
  if (without > 1.02 * chance && late < 0.98 * chance)
    text += ", less than the model without its state, which is sure of wrong answers";
  return text + ".";
}

std::string render_loss_by_position(const std::string& title, const std::string& subtitle,
                                    const std::vector<NamedResult>& results, const PositionMarks& marks) {
  HtmlPage page(title, subtitle);
  std::vector<PositionCurve> cumulative;
  double end = 0;
  for (const NamedResult& named : results) {
    cumulative.push_back(cumulative_nats(named.result));
    if (!cumulative.back().positions.empty()) end = std::max(end, cumulative.back().positions.back());
  }
  if (end == 0) {
    page.paragraph("No loss was recorded by position.");
    return page.html();
  }
  page.paragraph("Position n is the n-th token after the beginning of the document, stream or window. " +
                 position_sentence(results, marks));
  page.chart(curve_chart("At a position", results, marks, local_nats));
  page.chart(curve_chart("All up to a position", results, marks, cumulative_nats));
  const PositionTexts texts = texts_of(results);
  page.chart({"How many texts reach a position",
              "position",
              "documents, streams or windows",
              true,
              false,
              {{"texts", texts.positions, texts.texts}}});
  Table table{{"up to position", "texts that reach it"}};
  for (const NamedResult& named : results) table.header.push_back(named.name + ", nats per " + marks.target);
  for (double position = 1;; position = std::min(2 * position, end)) {
    const std::optional<double> reach = value_at(texts.positions, texts.texts, position);
    table.rows.push_back({grouped(static_cast<std::int64_t>(position)),
                          reach ? grouped(static_cast<std::int64_t>(*reach)) : ""});
    for (const PositionCurve& curve : cumulative) {
      const std::optional<double> nats = value_at(curve.positions, curve.nats, position);
      table.rows.back().push_back(nats ? fmt::format("{:.4f}", *nats) : "");
    }
    if (position == end) break;
  }
  page.table(table);
  return page.html();
}

}  // namespace eddy::app
