// The comparison as a page, and its lists, which a terminal shows too.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "train/app/report/comparison.h"
#include "train/app/report/loss_by_position.h"
#include "train/app/views/html_page.h"
#include "train/eval/evaluate.h"
#include "train/words/human_text.h"

namespace eddy::app {
using namespace training;
namespace {

constexpr std::size_t kMostCharts = 6;  // texts with a chart of their own

std::string distance(std::int64_t back) {
  return back < 0 ? "never before" : grouped(back);
}

// The excerpt with the token between bars, in one line.
std::string excerpt(const TokenDifference& d) {
  std::string text = printable(d.before + "|" + d.piece + "|" + d.after);
  std::replace(text.begin(), text.end(), '\n', ' ');
  std::replace(text.begin(), text.end(), '\t', ' ');
  return text;
}

Chart difference_chart(const ComparedText& text) {
  Chart chart;
  chart.title = "Difference at each token: " + text.name;
  chart.x_title = "token";
  chart.y_title = "nats that B loses more";
  chart.series.push_back({"B - A", {}, {}, SeriesStyle::points});
  for (std::size_t i = 0; i < text.tokens.size(); ++i) {
    if (!std::isfinite(text.nats_a[i]) || !std::isfinite(text.nats_b[i])) continue;
    chart.series[0].x.push_back(static_cast<double>(i));
    chart.series[0].y.push_back(text.nats_b[i] - text.nats_a[i]);
  }
  return chart;
}

Series cumulative(const std::string& name, const std::vector<ComparedText>& texts,
                  std::vector<double> ComparedText::*nats) {
  EvalResult positions;
  for (const ComparedText& text : texts)
    for (std::size_t i = 1; i < text.tokens.size(); ++i)
      if (std::isfinite((text.*nats)[i]))
        positions.add_position(static_cast<std::int64_t>(i - 1), (text.*nats)[i]);
  PositionCurve curve = cumulative_nats(positions);
  return {name, std::move(curve.positions), std::move(curve.nats)};
}

void add_list(HtmlPage& page, const std::string& heading, const std::vector<ComparedText>& texts,
              const std::vector<TokenDifference>& list) {
  page.heading(heading);
  if (list.empty()) return page.paragraph("There is no such token.");
  page.table(table_of(texts, list));
}

}  // namespace

Table table_of(const std::vector<ComparedText>& texts, const std::vector<TokenDifference>& list) {
  const bool several = texts.size() > 1;
  Table table{{"token", "A, nats", "B, nats", "seen, tokens back", "its word, tokens back", "text"}};
  table.align = several ? "lrrrrl" : "rrrrl";
  if (several) table.header.insert(table.header.begin(), "in");
  for (const TokenDifference& d : list) {
    std::vector<std::string>& row = table.rows.emplace_back();
    if (several)
      row.push_back(fmt::format("{}: {}", d.text + 1, texts[static_cast<std::size_t>(d.text)].name));
    row.insert(row.end(),
               {grouped(d.token), fmt::format("{:.4f}", d.nats_a), fmt::format("{:.4f}", d.nats_b),
                distance(d.token_back),
                d.word.empty() ? "" : fmt::format("{}: {}", d.word, distance(d.word_back)), excerpt(d)});
  }
  return table;
}

std::string render_comparison(const ComparedRuns& runs, const std::vector<ComparedText>& texts,
                              const Comparison& comparison) {
  HtmlPage page(fmt::format("{} and {}, token by token", runs.name_a, runs.name_b),
                fmt::format("A: {}; B: {}", runs.about_a, runs.about_b));
  const auto shown = [](double nats) { return fmt::format("{:.4f}", nats); };
  page.tiles({{"A", shown(comparison.loss_a), "nats per token"},
              {"B", shown(comparison.loss_b), "nats per token"},
              {"B - A", shown(comparison.loss_b - comparison.loss_a), "nats per token"},
              {"Tokens", grouped(comparison.tokens), texts.size() == 1 ? texts[0].name : ""}});
  page.paragraph(fmt::format(
      "A is {}. B is {}. Losses are in nats. If a token was last seen further back "
      "than attention reaches, only the recurrent state can carry it to where it is predicted. For a "
      "long text the chart shows the smallest and the largest difference of each part.",
      runs.name_a, runs.name_b));
  Chart up_to{"Loss up to a position", "position", "nats per token", true, false, {}};
  up_to.series = {cumulative("A: " + runs.name_a, texts, &ComparedText::nats_a),
                  cumulative("B: " + runs.name_b, texts, &ComparedText::nats_b)};
  page.chart(up_to);
  for (std::size_t t = 0; t < std::min(texts.size(), kMostCharts); ++t)
    page.chart(difference_chart(texts[t]));
  if (texts.size() > kMostCharts)
    page.paragraph(fmt::format("The first {} of {} texts are drawn.", kMostCharts, texts.size()));
  add_list(page, fmt::format("Tokens that A ({}) predicts better", runs.name_a), texts, comparison.a_better);
  add_list(page, fmt::format("Tokens that B ({}) predicts better", runs.name_b), texts, comparison.b_better);
  return page.html();
}

}  // namespace eddy::app
