// Computing the two curves, and a table of a few of their points.
#include "train/app/report/loss_by_position.h"

#include <fmt/core.h>

#include <algorithm>
#include <numbers>
#include <optional>
#include <utility>

#include "train/app/views/html_page.h"
#include "train/words/human_text.h"

namespace eddy::app {
using namespace training;
namespace {

Chart curve_chart(const char* title, const std::vector<NamedResult>& results,
                  PositionCurve (*curve_of)(const EvalResult&)) {
  Chart chart{title, "position", "bits per token", true, false, {}};
  for (const NamedResult& named : results) {
    PositionCurve curve = curve_of(named.result);
    chart.series.push_back({named.name, std::move(curve.positions), std::move(curve.bits)});
  }
  return chart;
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

PositionCurve cumulative_bits(const EvalResult& result) {
  PositionCurve curve;
  double nats = 0, targets = 0;
  for (std::size_t i = 0; i < result.position_loss.size(); ++i) {
    if (result.position_count[i] == 0) continue;
    nats += result.position_loss[i];
    targets += static_cast<double>(result.position_count[i]);
    curve.positions.push_back(static_cast<double>(i + 1));
    curve.bits.push_back(nats / targets * std::numbers::log2e);
  }
  return curve;
}

PositionCurve local_bits(const EvalResult& result) {
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
      curve.bits.push_back(nats / targets * std::numbers::log2e);
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

std::string render_loss_by_position(const std::string& title, const std::string& subtitle,
                                    const std::vector<NamedResult>& results) {
  HtmlPage page(title, subtitle);
  std::vector<PositionCurve> cumulative;
  double end = 0;
  for (const NamedResult& named : results) {
    cumulative.push_back(cumulative_bits(named.result));
    if (!cumulative.back().positions.empty()) end = std::max(end, cumulative.back().positions.back());
  }
  if (end == 0) {
    page.paragraph("No loss was recorded by position.");
    return page.html();
  }
  page.paragraph(
      "Position n is the n-th token after the beginning of the document, stream or window. A curve that keeps "
      "falling shows that the model uses tokens from far back.");
  page.chart(curve_chart("At a position", results, local_bits));
  page.chart(curve_chart("All up to a position", results, cumulative_bits));
  const PositionTexts texts = texts_of(results);
  page.chart({"How many texts reach a position",
              "position",
              "documents, streams or windows",
              true,
              false,
              {{"texts", texts.positions, texts.texts}}});
  Table table{{"up to position", "texts that reach it"}};
  for (const NamedResult& named : results) table.header.push_back(named.name + ", bits per token");
  for (double position = 1;; position = std::min(2 * position, end)) {
    const std::optional<double> reach = value_at(texts.positions, texts.texts, position);
    table.rows.push_back({grouped(static_cast<std::int64_t>(position)),
                          reach ? grouped(static_cast<std::int64_t>(*reach)) : ""});
    for (const PositionCurve& curve : cumulative) {
      const std::optional<double> bits = value_at(curve.positions, curve.bits, position);
      table.rows.back().push_back(bits ? fmt::format("{:.4f}", *bits) : "");
    }
    if (position == end) break;
  }
  page.table(table);
  return page.html();
}

}  // namespace eddy::app
