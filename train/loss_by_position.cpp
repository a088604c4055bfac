// Two curves and a table of a few points.
#include "train/loss_by_position.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "train/html_page.h"
#include "train/human_text.h"

namespace eddy {
namespace {

const double kBitsPerNat = 1 / std::log(2.0);

Chart curve_chart(const char* title, const PositionCurve& curve) {
  Chart chart;
  chart.title = title;
  chart.x_title = "position";
  chart.y_title = "bits per token";
  chart.log_x = true;
  Series series;
  series.name = title;
  series.x = curve.positions;
  series.y = curve.bits;
  chart.series.push_back(std::move(series));
  return chart;
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
    curve.bits.push_back(nats / targets * kBitsPerNat);
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
      curve.bits.push_back(nats / targets * kBitsPerNat);
    }
    begin = end;
  }
  return curve;
}

std::string render_loss_by_position(const std::string& title, const std::string& subtitle,
                                    const EvalResult& result) {
  HtmlPage page(title, subtitle);
  const PositionCurve cumulative = cumulative_bits(result);
  if (cumulative.positions.empty()) {
    page.paragraph("No loss was recorded by position.");
    return page.html();
  }
  page.paragraph(
      "Position n is the n-th token behind the beginning of what is read: a document, a stream, or a window. A "
      "curve that goes on falling shows that the model uses what lies far back.");
  page.chart(curve_chart("At a position", local_bits(result)));
  page.chart(curve_chart("All up to a position", cumulative));
  std::vector<std::vector<std::string>> rows;
  double last = 0;
  for (std::size_t i = 0; i < cumulative.positions.size(); ++i) {
    const bool final_point = i + 1 == cumulative.positions.size();
    if (cumulative.positions[i] < 2 * last && !final_point) continue;
    last = cumulative.positions[i];
    rows.push_back({grouped(static_cast<std::int64_t>(last)), fmt::format("{:.4f}", cumulative.bits[i])});
  }
  page.table({"up to position", "bits per token"}, rows);
  return page.html();
}

}  // namespace eddy
