// The results of the staircase benchmark: the table beside that of the paper, JSON, and the page with its
// plots.
#include <cmath>
#include <nlohmann/json.hpp>

#include "tensor/base/format.h"
#include "train/bench/bench.h"
#include "train/page/html_page.h"
#include "train/page/human_text.h"
#include "train/reproduce/staircase_table.h"

namespace eddy {
namespace {

using Cells = std::vector<std::string>;

// Pushshift.io Reddit, 117M parameters unless the name says more.
// source: Ju et al. (2021), tables 2 and 3.
struct PaperPoint {
  const char* name;
  int n, step_size, c;  // 0: none, or not given
  double perplexity, ms;
};
constexpr double kPaperXlMs = 178;
constexpr PaperPoint kPaper[] = {
    {"Transformer-XL", 0, 0, 0, 26.5, kPaperXlMs},
    {"Transformer-XL, 2x deep, 218M", 0, 0, 0, 23.7, 359},
    {"Feedback, 102M", 1, 512, 1, 25.8, 3260},
    {"Cached Staircase, M = 1", 9, 288, 32, 26.4, 489},
    {"Cached Staircase, M = 1", 5, 320, 64, 26.4, 318},
    {"Cached Staircase, M = 1", 3, 384, 128, 26.4, 246},
    {"Staircase", 2, 128, 64, 25.2, 310},
    {"Staircase", 2, 256, 128, 25.0, 297},
    {"Staircase", 4, 128, 32, 23.8, 605},
    {"Staircase", 4, 256, 64, 23.7, 580},
    {"Staircase", 8, 256, 32, 22.9, 1147},
    {"Universal, 29M", 2, 0, 0, 39.9, 51},
    {"Universal, 29M", 4, 0, 0, 34.9, 88},
    {"Universal, 29M", 8, 0, 0, 32.3, 163},
    {"Universal, 29M", 16, 0, 0, 31.5, 328},
    {"Universal, 120M", 8, 0, 0, 25.9, 766},
};

std::string or_none(std::int64_t value) {
  return value > 0 ? grouped(value) : "";
}

const StaircaseBenchPoint* xl_of(const StaircaseBench& bench) {
  for (const StaircaseBenchPoint& point : bench.points)
    if (point.model == "transformer_xl" && point.done) return &point;
  return nullptr;
}

Cells own_head() {
  return {"model",    "N",         "C",    "bits/char",    "ms a batch",
          "best, ms", "XL's best", "peak", "for backward", "parameters"};
}

Cells costs_head() {
  return {"per token", "N", "C", "kFLOP", "by formula", "kept", "needed", "kept/needed"};
}

std::vector<Cells> costs_rows(const StaircaseBench& bench) {
  std::vector<Cells> rows;
  for (const StaircaseBenchPoint& p : bench.points) {
    Cells cells{p.model, or_none(p.n), or_none(p.c)};
    if (p.done) {
      const double kept = p.kept_bytes_per_token();
      cells.insert(
          cells.end(),
          {fmt::format("{:.1f}", p.costs.flops / 1e3), fmt::format("{:.1f}", p.costs.formula_flops / 1e3),
           human_bytes(std::llround(kept)), human_bytes(std::llround(p.costs.needed_bytes)),
           fmt::format("{:.2f}", kept / p.costs.needed_bytes)});
    } else {
      cells.insert(cells.end(), {"not run", "", "", "", ""});
    }
    rows.push_back(std::move(cells));
  }
  return rows;
}

constexpr const char* kCostsNote =
    "kFLOP: of a token's forward pass, two per multiply-add, as Eddy computes it, beside the paper's costs "
    "as a formula. That counts full windows of NC keys and keys and values of frozen chunks once a row; Eddy "
    "computes causal pairs alone and those keys and values once, and Feedback's mix of layers is not in the "
    "formula. Kept: for the backward pass, without the weights, beside what that pass needs by count (inputs "
    "and results of norms, queries, keys, values, attended values, the MLP's inner rows, logits), of which "
    "the paper gives no formula.";

std::vector<Cells> own_rows(const StaircaseBench& bench) {
  const StaircaseBenchPoint* xl = xl_of(bench);
  std::vector<Cells> rows;
  for (const StaircaseBenchPoint& p : bench.points) {
    Cells cells{p.model, or_none(p.n), or_none(p.c)};
    if (p.done) {
      cells.insert(
          cells.end(),
          {fmt::format("{:.4f}", p.bits), fmt::format("{:.1f}", p.batch_ms), fmt::format("{:.1f}", p.best_ms),
           xl != nullptr ? fmt::format("x {:.2f}", p.best_ms / xl->best_ms) : "", human_bytes(p.peak_bytes),
           human_bytes(p.saved_bytes), grouped(p.parameters)});
    } else {
      cells.insert(cells.end(), {"not run", "", "", "", "", "", ""});
    }
    rows.push_back(std::move(cells));
  }
  return rows;
}

Cells paper_head() {
  return {"the paper's model", "N", "NC", "C", "perplexity", "ms a batch", "XL's time"};
}

std::vector<Cells> paper_rows() {
  std::vector<Cells> rows;
  for (const PaperPoint& p : kPaper)
    rows.push_back({p.name, or_none(p.n), or_none(p.step_size), or_none(p.c),
                    fmt::format("{:.1f}", p.perplexity), fmt::format("{:.0f}", p.ms),
                    fmt::format("x {:.2f}", p.ms / kPaperXlMs)});
  return rows;
}

std::string setting(const StaircaseBench& bench) {
  const StaircaseBenchOptions& o = bench.options;
  return fmt::format(
      "{} steps of {} x {} {}s of {}, {} layer{} of width {}, {} head{}, seed {}, f32, {}{} thread{}",
      o.steps, o.batch, o.segment, o.tokenizer == "char" ? "character" : "byte",
      o.data.empty() ? "the text task's own text" : o.data, o.layers, o.layers == 1 ? "" : "s", o.dim,
      o.heads, o.heads == 1 ? "" : "s", o.seed, o.device == "cuda" ? "cuda, " : "", bench.threads,
      bench.threads == 1 ? "" : "s");
}

constexpr const char* kPaperNote =
    "The paper's numbers are of Pushshift.io Reddit, 117M parameters and graphics processors: compare the "
    "pattern, not digits.";

// One line for each model and N, with a point for each C; models without C have one line over N.
struct Group {
  std::string name;
  std::vector<const StaircaseBenchPoint*> points;
};

std::vector<Group> groups_of(const StaircaseBench& bench) {
  std::vector<Group> groups;
  for (const StaircaseBenchPoint& point : bench.points) {
    if (!point.done) continue;
    const std::string name = point.c > 0 ? fmt::format("{}, N {}", point.model, point.n) : point.model;
    if (groups.empty() || groups.back().name != name) groups.push_back({name, {}});
    groups.back().points.push_back(&point);
  }
  return groups;
}

template <class X, class Y>
Chart chart_of(const std::vector<Group>& groups, const char* title, const char* x_title, const char* y_title,
               bool log_x, X&& x, Y&& y) {
  Chart chart;
  chart.title = title;
  chart.x_title = x_title;
  chart.y_title = y_title;
  chart.log_x = log_x;
  for (const Group& group : groups) {
    Series series;
    series.name = group.name;
    series.style = SeriesStyle::line_points;
    for (const StaircaseBenchPoint* point : group.points) {
      series.x.push_back(x(*point));
      series.y.push_back(y(*point));
    }
    chart.series.push_back(std::move(series));
  }
  return chart;
}

// Figure 3 of the paper, drawn from its tables.
Chart paper_chart() {
  Chart chart{"The same in the paper", "ms a batch", "validation perplexity", true, false, {}};
  for (const PaperPoint& point : kPaper) {
    if (chart.series.empty() || chart.series.back().name != point.name)
      chart.series.push_back({point.name, {}, {}, SeriesStyle::line_points});
    chart.series.back().x.push_back(point.ms);
    chart.series.back().y.push_back(point.perplexity);
  }
  return chart;
}

void add_charts(HtmlPage& page, const StaircaseBench& bench) {
  const std::vector<Group> groups = groups_of(bench);
  const auto bits = [](const StaircaseBenchPoint& p) { return p.bits; };
  const auto ms = [](const StaircaseBenchPoint& p) { return p.best_ms; };
  page.chart(
      chart_of(groups, "Quality against time", "ms a batch, best", "bits per character", true, ms, bits));
  page.chart(paper_chart());
  std::vector<Group> chunked = groups;
  std::erase_if(chunked, [](const Group& group) { return group.points.front()->c == 0; });
  if (chunked.empty()) return;
  const auto size = [](const StaircaseBenchPoint& p) { return static_cast<double>(p.c); };
  page.charts({chart_of(chunked, "Quality against C", "tokens", "bits per character", true, size, bits),
               chart_of(chunked, "Time against C", "tokens", "ms a batch, best", true, size, ms),
               chart_of(chunked, "Memory kept for the backward pass against C", "tokens", "MiB", true, size,
                        [](const StaircaseBenchPoint& p) {
                          return static_cast<double>(p.saved_bytes) / (1024.0 * 1024.0);
                        })});
}

// Leaves N and C to the name of the point: more columns would be too narrow for their numbers.
void add_points(HtmlPage& page, const StaircaseBench& bench, Cells head, std::vector<Cells> rows) {
  head.erase(head.begin() + 1, head.begin() + 3);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    rows[i].erase(rows[i].begin() + 1, rows[i].begin() + 3);
    rows[i][0] = bench.points[i].name;
  }
  page.table(head, rows);
}

}  // namespace

std::string to_text(const StaircaseBench& bench) {
  std::vector<Cells> own = own_rows(bench), costs = costs_rows(bench), paper = paper_rows();
  own.insert(own.begin(), own_head());
  costs.insert(costs.begin(), costs_head());
  paper.insert(paper.begin(), paper_head());
  return fmt::format("\n{}\n\n{}\n{}\n{}\n\n{}\n\n{}", setting(bench), text_table(own), text_table(costs),
                     kCostsNote, kPaperNote, text_table(paper));
}

nlohmann::json to_json(const StaircaseBench& bench) {
  const StaircaseBenchOptions& o = bench.options;
  nlohmann::json points = nlohmann::json::array(), paper = nlohmann::json::array();
  for (const StaircaseBenchPoint& p : bench.points) {
    nlohmann::json about{{"name", p.name}, {"model", p.model}, {"n", p.n}, {"c", p.c}, {"done", p.done}};
    if (p.done)
      about.update({{"steps", p.steps},
                    {"parameters", p.parameters},
                    {"bits_per_character", p.bits},
                    {"batch_ms", p.batch_ms},
                    {"best_ms", p.best_ms},
                    {"peak_bytes", p.peak_bytes},
                    {"saved_bytes", p.saved_bytes},
                    {"flops_per_token", p.costs.flops},
                    {"formula_flops_per_token", p.costs.formula_flops},
                    {"kept_bytes_per_token", p.kept_bytes_per_token()},
                    {"needed_bytes_per_token", p.costs.needed_bytes},
                    {"config", to_json(p.config)}});
    points.push_back(std::move(about));
  }
  for (const PaperPoint& p : kPaper)
    paper.push_back({{"model", p.name},
                     {"n", p.n},
                     {"nc", p.step_size},
                     {"c", p.c},
                     {"perplexity", p.perplexity},
                     {"batch_ms", p.ms}});
  return {{"device", o.device}, {"threads", bench.threads}, {"interrupted", bench.interrupted},
          {"data", o.data},     {"tokenizer", o.tokenizer}, {"steps", o.steps},
          {"batch", o.batch},   {"segment", o.segment},     {"points", points},
          {"paper", paper}};
}

std::string to_html(const StaircaseBench& bench, const std::vector<std::string>& notes) {
  HtmlPage page("Staircase: what N and C cost and bring", setting(bench));
  page.paragraph(
      "A token passes through the layers N times, and C tokens enter at each step. In the paper more steps "
      "bring a lower loss with the same parameters and take longer, and a larger C is faster up to where it "
      "loses quality.");
  add_charts(page, bench);
  page.heading("Measured");
  add_points(page, bench, own_head(), own_rows(bench));
  page.heading("Work and memory of a token");
  page.paragraph(kCostsNote);
  add_points(page, bench, costs_head(), costs_rows(bench));
  page.heading("The paper");
  page.paragraph(kPaperNote);
  page.table(paper_head(), paper_rows());
  std::string lines;
  for (const std::string& note : notes) lines += note + '\n';
  page.heading("Machine");
  page.preformatted(lines);
  return page.html();
}

}  // namespace eddy
