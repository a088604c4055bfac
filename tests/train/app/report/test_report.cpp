// The page of a run: well-formed and escaped whatever the run held, charts with round ticks and a bounded
// size.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <string>
#include <vector>

#include "tensor/base/error.h"
#include "tests/support/files.h"
#include "train/app/report/report.h"
#include "train/app/views/chart.h"
#include "train/app/views/chart_axis.h"
#include "train/app/views/html_page.h"
#include "train/files/text_file.h"
#include "train/words/human_text.h"

namespace {

using namespace eddy;
using namespace eddy::training;
using namespace eddy::app;
using namespace eddy::test;

// "" when every tag is closed in order, attribute values are quoted and every '&' starts a known entity; else
// what is wrong. Style and script are raw text in HTML and are passed over.
std::string markup_fault(const std::string& html) {
  std::vector<std::string> open;
  std::size_t i = html.find("<html");
  if (i == std::string::npos) return "no html element";
  while (i < html.size()) {
    if (html[i] == '&') {
      const std::size_t end = html.find(';', i);
      const std::string entity = end == std::string::npos ? "" : html.substr(i, end - i + 1);
      const std::vector<std::string> known = {"&amp;", "&lt;", "&gt;", "&quot;", "&#39;"};
      if (std::find(known.begin(), known.end(), entity) == known.end())
        return "bare & at " + html.substr(i, 20);
    }
    if (html[i] == '>') return "bare > at " + html.substr(i, 20);
    if (html[i] != '<') {
      ++i;
      continue;
    }
    std::size_t end = i + 1;
    for (char quote = 0; end < html.size() && (quote != 0 || html[end] != '>'); ++end) {
      if (html[end] == '<') return "< inside a tag at " + html.substr(i, 40);
      if (html[end] == '"') quote = quote == 0 ? '"' : '\0';
    }
    if (end >= html.size()) return "unfinished tag at " + html.substr(i, 40);
    const std::string tag = html.substr(i + 1, end - i - 1);
    i = end + 1;
    const std::string name = tag.substr(0, tag.find_first_of(" /", 1));
    if (tag[0] == '/') {
      if (open.empty() || "/" + open.back() != tag) return "unexpected <" + tag + ">";
      open.pop_back();
    } else if (tag.back() != '/') {
      open.push_back(name);
      if (name == "style" || name == "script") i = html.find("</" + name, i);
    }
  }
  return open.empty() ? "" : "unclosed <" + open.back() + ">";
}

std::size_t count_of(const std::string& text, const std::string& part) {
  std::size_t count = 0;
  for (std::size_t i = text.find(part); i != std::string::npos; i = text.find(part, i + part.size())) ++count;
  return count;
}

bool is_round(double value) {
  if (value == 0) return true;
  const double size = std::abs(value);
  const double mantissa = size / std::pow(10.0, std::floor(std::log10(size) + 1e-9) - 2);
  return std::abs(mantissa - std::round(mantissa)) < 1e-6;  // at most three digits
}

ReportData run_of(int steps) {
  ReportData data;
  data.title = "Run";
  for (int i = 1; i <= steps; ++i) {
    StepRecord step;
    step.step = i;
    step.loss = 1 + 4.0 / i;
    step.learning_rate = 3e-4;
    step.grad_norm = 1;
    step.tokens_per_second = 1000;
    step.graph_nodes = 10;
    data.metrics.steps.push_back(step);
  }
  return data;
}

}  // namespace

TEST_CASE("html_escape: markup and quotes are escaped and invalid bytes and controls are replaced") {
  CHECK(html_escape("<a href=\"x\">&'") == "&lt;a href=&quot;x&quot;&gt;&amp;&#39;");
  CHECK(html_escape("a\xff\x1b[31m") == "a\xef\xbf\xbd\xef\xbf\xbd[31m");
  CHECK(html_escape("tab\tline\nend\r\n") == "tab\tline\nend\n");
  CHECK(html_escape(std::string("\0", 1)) == "\xef\xbf\xbd");
  CHECK(html_escape("\xc2\x9b"
                    "31m") ==
        "\xef\xbf\xbd"
        "31m");
  CHECK(html_escape("\xc3\xa9\xe2\x82\xac") == "\xc3\xa9\xe2\x82\xac");
}

TEST_CASE("report: the markup checker of these tests finds faults") {
  CHECK(markup_fault("<html><p>a &amp; b</p><br/></html>") == "");
  for (const char* bad : {"<p></p>", "<html><p></html>", "<html></p></html>", "<html>a & b</html>",
                          "<html>a > b</html>", "<html><p a=\"<\"></p></html>", "<html><p", "<html><p>"}) {
    CAPTURE(bad);
    CHECK(markup_fault(bad) != "");
  }
}

TEST_CASE("report: a reader chooses what the curves are drawn against, where the run says it") {
  ReportData data = run_of(3);
  CHECK(count_of(render_report(data), "type=\"radio\"") == 0);
  for (StepRecord& step : data.metrics.steps) {
    step.tokens = 100 * step.step;
    step.seconds = 2.0 * static_cast<double>(step.step);
  }
  data.metrics.evals.push_back({.step = 3, .loss = 2, .metrics = {{"accuracy", 0.5}}});
  const std::string page = render_report(data);
  CHECK(markup_fault(page) == "");
  CHECK(count_of(page, "type=\"radio\"") == 6);  // of the loss and of the other measurements
  CHECK(count_of(page, "checked=\"checked\"") == 2);
  for (const char* part : {">steps<", ">tokens<", ">seconds<", "data-x-title=\"tokens\""})
    CHECK_MESSAGE(count_of(page, part) > 0, part);
  CHECK(count_of(page, ">operations<") == 0);
}

TEST_CASE("report: the page is well formed for none one and few records") {
  for (const int steps : {0, 1, 2, 49, 50, 51}) {
    CAPTURE(steps);
    CHECK(markup_fault(render_report(run_of(steps))) == "");
  }
}

TEST_CASE("report: hostile text in every field ends up escaped") {
  const std::string evil = "</pre></script><script>alert('&')</script>\"\xff\x1b]0;x\x07";
  ReportData data = run_of(3);
  data.title = data.config.model.model = evil;
  data.config.data.path = evil;
  data.environment = {evil, "name: " + evil};
  data.metrics.samples = {{0, evil}, {1, evil}, {2, evil}};
  data.metrics.events = {{1, evil}};
  data.metrics.commands = {{0, evil}, {1, evil}};
  data.metrics.evals = {{1, evil, 1.0, 1}, {2, "valid", 1.0, 1}};
  const std::string html = render_report(data);
  CHECK(markup_fault(html) == "");
  CHECK(html.find("alert('") == std::string::npos);
  CHECK(html.find('\x1b') == std::string::npos);
  CHECK(html.find('\xff') == std::string::npos);
  CHECK(count_of(html, "<script>") == 1);
}

TEST_CASE("report: the page asks for nothing from elsewhere") {
  const std::string html = render_report(run_of(100));
  for (const char* word : {"http:", "https:", "src=", "url(", "@import", "<link"}) {
    CAPTURE(word);
    CHECK(html.find(word) == std::string::npos);
  }
}

TEST_CASE("report: values that are not finite leave gaps and are counted") {
  ReportData data = run_of(20);
  data.metrics.steps[4].loss = std::nan("");
  data.metrics.steps[9].loss = INFINITY;
  data.metrics.evals = {{5, "valid", std::nan(""), 10}};
  const std::string html = render_report(data);
  CHECK(markup_fault(html) == "");
  CHECK(html.find("3 values are not finite") != std::string::npos);
  CHECK(html.find("Best validation loss") == std::string::npos);
}

TEST_CASE("report: a run without one finite value is well formed") {
  ReportData data = run_of(60);
  for (StepRecord& step : data.metrics.steps) {
    step.loss = step.learning_rate = step.grad_norm = step.tokens_per_second = std::nan("");
  }
  CHECK(markup_fault(render_report(data)) == "");
}

TEST_CASE("report: the best validation loss is the lowest finite one of the valid split") {
  ReportData data = run_of(2);
  data.metrics.evals = {
      {1, "valid", 2.5, 1},
      {2, "valid", 1.25, 1, {}, false, 3},
      {3, "valid", 1.75, 1},
      {4, "test", 0.5, 1},
      {4, "valid", 0.75, 3, {}, false, 3, true}};  // the whole split, which is compared with no sample
  const std::string html = render_report(data);
  CHECK(
      html.find("<div class=\"value\">1.25</div><div class=\"remark\">at step 2, on 1 of 3 targets</div>") !=
      std::string::npos);
  CHECK(html.find("<div class=\"value\">0.75</div><div class=\"remark\">at step 4, on 3 targets</div>") !=
        std::string::npos);
}

TEST_CASE("report: the steps are those done and not those of the last logged one") {
  ReportData data = run_of(100);
  data.metrics.evals = {{109, "valid", 2.5, 1}};
  CHECK(render_report(data).find("<div class=\"name\">Steps</div><div class=\"value\">109</div>") !=
        std::string::npos);
}

TEST_CASE("report: the final training loss is of the last part of a run however short") {
  const auto final_loss = [](int steps) {
    const std::string html = render_report(run_of(steps)),
                      mark = "Final training loss</div><div class=\"value\">";
    return html.substr(html.find(mark) + mark.size(), 5);
  };
  CHECK(final_loss(8) == "1.5</");   // 1 + 4 / 8
  CHECK(final_loss(40) == "1.105");  // the upper middle one of the last four: 1 + 4 / 38
  CHECK(render_report(run_of(8)).find("1.5</div><div class=\"remark\">at step 8, the last logged</div>") !=
        std::string::npos);
}

TEST_CASE("report: settings that differ from the defaults stand first and the others are folded") {
  ReportData data = run_of(1);
  data.config.model.layers = 7;
  data.config.data.path = "a<b";
  const std::string html = render_report(data);
  const std::size_t fold = html.find("settings at their defaults</summary>");
  CHECK(html.find("<tr><td>model.layers</td><td class=\"number\">7</td></tr>") < fold);
  CHECK(html.find("<tr><td>data.path</td><td>a&lt;b</td></tr>") < fold);
  const std::size_t kept = html.find("<tr><td>model.recurrent_layers</td><td>[]</td></tr>");
  CHECK(kept > fold);
  CHECK(kept != std::string::npos);
}

TEST_CASE("report: a page of a run in progress says how it stands and loads itself again") {
  ReportData data = run_of(3);
  CHECK(render_report(data).find("class=\"status") == std::string::npos);
  data.status = PageStatus{"running", "step 3 of <9>", {"to stop it: kill 7", "no command"}, 1.7e9, 3};
  const std::string live = render_report(data);
  CHECK(markup_fault(live) == "");
  CHECK(live.find("<div class=\"name\">Training loss</div>") != std::string::npos);
  CHECK(live.find("Final") == std::string::npos);
  for (
      const char* part :
      {"<div class=\"status live\" data-written=\"1700000000\" data-every=\"3\"><p><strong>running</strong> step 3 of "
       "&lt;9&gt;",
       "<p>to stop it: <code>kill 7</code></p>", "connect-src 'self'",
       "<noscript><meta http-equiv=\"refresh\" content=\"3\"/></noscript>"})
    CHECK_MESSAGE(live.find(part) != std::string::npos, part);
  data.status->word = "finished";
  data.status->every_s = 0;
  const std::string ended = render_report(data);
  CHECK(ended.find("<div class=\"status\"><p><strong>finished</strong>") != std::string::npos);
  CHECK(ended.find("<div class=\"name\">Final training loss</div>") != std::string::npos);
  for (const char* part : {"data-written", "connect-src", "http-equiv=\"refresh\""}) {
    CAPTURE(part);
    CHECK(ended.find(part) == std::string::npos);
  }
}

TEST_CASE("report: all samples are on a slider, and one alone needs none") {
  ReportData data = run_of(3);
  for (int i = 0; i < 40; ++i) data.metrics.samples.push_back({10 * i, "text " + std::to_string(i)});
  data.metrics.written_samples = 41;
  const std::string html = render_report(data);
  CHECK(markup_fault(html) == "");
  CHECK(html.find("<input type=\"range\" min=\"0\" max=\"39\" value=\"39\"") != std::string::npos);
  CHECK(count_of(html, "<div class=\"label\">sample ") == 40);
  CHECK(html.find("40 of the run&#39;s 41 samples") != std::string::npos);
  data.metrics.samples.resize(1);
  CHECK(render_report(data).find("type=\"range\"") == std::string::npos);
}

TEST_CASE("report: a curve that is flat is a line of text, and one that is not is a chart") {
  ReportData data = run_of(60);
  const std::string flat = render_report(data);
  for (const char* part : {"<tr><td>Learning rate</td><td>3e-4 throughout</td></tr>",
                           "<tr><td>Gradient norm</td><td>1 throughout</td></tr>",
                           "<tr><td>Speed</td><td>1000 tokens per second throughout</td></tr>",
                           "<tr><td>Nodes and depth of the graph</td><td>10 throughout</td></tr>"})
    CHECK_MESSAGE(flat.find(part) != std::string::npos, part);
  CHECK(count_of(flat, "<figcaption>") == 1);  // the loss
  data.metrics.steps[7].grad_norm = 1.02;
  data.metrics.steps[9].learning_rate = 0;
  const std::string other = render_report(data);
  CHECK(other.find("<figcaption>Gradient norm") != std::string::npos);
  CHECK(other.find("<figcaption>Learning rate") != std::string::npos);
  CHECK(other.find("<figcaption>Speed") == std::string::npos);
}

TEST_CASE("report: a run of 100000 steps gives a page of bounded size") {
  const std::string html = render_report(run_of(100000));
  CHECK(markup_fault(html) == "");
  CHECK(html.size() < 600000);
}

TEST_CASE("report: the file is written whole and replaces an older one") {
  const TempFolder folder;
  replace_text_file(folder.path("report.html"), render_report(run_of(3)));
  const std::filesystem::path path = write_report(folder.path(), run_of(5));
  CHECK(read_text_file(path) == render_report(run_of(5)));
  CHECK(folder.entries() == 1);
  CHECK_THROWS_AS(write_report(folder.path("none"), run_of(5)), IoError);
}

TEST_CASE("make_axis: linear ticks are round evenly spaced and cover the data") {
  for (const double offset : {0.0, -3.7, 1234.5, 1e9}) {
    for (const double range : {1.0, 0.37, 42.0, 9.99, 1e6, 3e-5}) {
      for (const int most : {3, 6, 12}) {
        CAPTURE(offset);
        CAPTURE(range);
        CAPTURE(most);
        const Axis axis = make_axis(offset, offset + range, {false, true, false, most});
        REQUIRE(axis.ticks.size() >= 2);
        CHECK(axis.ticks.size() <= static_cast<std::size_t>(most));
        CHECK(axis.low <= offset);
        CHECK(axis.high >= offset + range);
        CHECK(axis.ticks.front().value == axis.low);
        CHECK(axis.ticks.back().value == axis.high);
        for (std::size_t i = 1; i < axis.ticks.size(); ++i) {
          CHECK(axis.ticks[i].label != axis.ticks[i - 1].label);
        }
        // A billion plus a fraction has no room left for a round step.
        const double step = axis.ticks[1].value - axis.ticks[0].value;
        if (std::abs(offset) <= 1e4 * range) CHECK(is_round(step));
      }
    }
  }
}

TEST_CASE("make_axis: an empty range or a huge or tiny one still gives an axis around the data") {
  const double values[][2] = {{0, 0},          {5, 5},           {-2, -2},       {1e300, 1e300},
                              {-1e300, 1e300}, {1e-300, 2e-300}, {1, 1 + 1e-15}, {-1e-200, 1e-200}};
  for (const auto& [low, high] : values) {
    CAPTURE(low);
    CAPTURE(high);
    for (const bool round : {false, true}) {
      const Axis axis = make_axis(low, high, {false, round, false, 6});
      CHECK(axis.low <= low);
      CHECK(axis.high >= high);
      CHECK(axis.low < axis.high);
      CHECK(std::isfinite(axis.place(low)));
    }
  }
}

TEST_CASE("make_axis: logarithmic ticks are 1 2 or 5 times powers of ten and cover the data") {
  for (const double low : {1e-12, 0.03, 1.0, 700.0, 1e-280}) {
    for (const double factor : {8.0, 50.0, 1e3, 1e9, 1e200}) {
      CAPTURE(low);
      CAPTURE(factor);
      const Axis axis = make_axis(low, low * factor, {true, true, false, 7});
      REQUIRE(axis.ticks.size() >= 2);
      CHECK(axis.ticks.size() <= 7);
      CHECK(axis.low <= low);
      CHECK(axis.high >= low * factor * (1 - 1e-9));
      for (const Tick& tick : axis.ticks) {
        const double mantissa = tick.value / std::pow(10.0, std::floor(std::log10(tick.value) + 1e-9));
        const bool round =
            std::abs(mantissa - 1) < 1e-6 || std::abs(mantissa - 2) < 1e-6 || std::abs(mantissa - 5) < 1e-6;
        CHECK(round);
      }
      CHECK(axis.place(axis.low) == 0);
      CHECK(axis.place(axis.high) == 1);
    }
  }
  CHECK(make_axis(3, 3, {true, true, false, 5}).low < 3);
  CHECK(make_axis(2, 5, {true, false, false, 6}).ticks.size() >= 3);
}

TEST_CASE("make_axis: values that hardly vary are not stretched over the whole axis") {
  const Axis axis = make_axis(225.44545, 225.44565, {false, true, false, 6});
  CHECK(axis.low < 220);
  CHECK(axis.high > 230);
  CHECK(make_axis(1.49, 1.5, {false, true, false, 6}).low > 1.48);
}

TEST_CASE("make_axis: ranges that are no ranges are errors") {
  CHECK_THROWS_AS(make_axis(1, 0, {}), ValueError);
  CHECK_THROWS_AS(make_axis(std::nan(""), 1, {}), ValueError);
  CHECK_THROWS_AS(make_axis(0, INFINITY, {}), ValueError);
  CHECK_THROWS_WITH_AS(make_axis(0, 1, {true, false, false, 5}), doctest::Contains("log scale"), ValueError);
}

TEST_CASE("tick_label: labels carry the digits of the step and units of thousands") {
  CHECK(tick_label(0.25, 0.05, 0.5) == "0.25");
  CHECK(tick_label(3, 1, 5) == "3");
  CHECK(tick_label(20000, 10000, 50000) == "20k");
  CHECK(tick_label(15000, 500, 16500) == "15.0k");
  CHECK(tick_label(1500000, 500000, 2e6) == "1.5M");
  CHECK(tick_label(3e-4, 1e-4, 3e-4) == "3e-4");
  CHECK(tick_label(1.5e-4, 5e-5, 3e-4) == "1.5e-4");
  CHECK(tick_label(0, 1e-4, 3e-4) == "0");
  CHECK(tick_label(-2, 1, 3) == "-2");
}

TEST_CASE("decimate: never more points than allowed and the extremes and the ends stay") {
  for (const std::size_t n : {std::size_t{0}, std::size_t{1}, std::size_t{9}, std::size_t{1500},
                              std::size_t{1501}, std::size_t{100000}}) {
    std::vector<double> x;
    std::vector<double> y;
    for (std::size_t i = 0; i < n; ++i) {
      x.push_back(static_cast<double>(i));
      y.push_back(std::sin(static_cast<double>(i * i % 9973)));
    }
    if (n > 800) {
      y[777] = 50;
      y[778] = -60;
      y[500] = std::nan("");
    }
    for (const int most : {8, 100, 1500}) {
      CAPTURE(n);
      CAPTURE(most);
      const std::vector<ChartPoint> points = decimate(x, y, most);
      CHECK(points.size() <= std::min(n, static_cast<std::size_t>(most)));
      if (n == 0) continue;
      CHECK(points.front().x == x.front());
      CHECK(points.back().x == x.back());
      for (std::size_t i = 1; i < points.size(); ++i) CHECK(points[i - 1].x < points[i].x);
      if (n <= 800) continue;
      const auto has = [&](auto&& wanted) { return std::any_of(points.begin(), points.end(), wanted); };
      CHECK(has([](const ChartPoint& p) { return p.y == 50; }));
      CHECK(has([](const ChartPoint& p) { return p.y == -60; }));
      CHECK(has([](const ChartPoint& p) { return std::isnan(p.y); }));
    }
  }
  CHECK_THROWS_AS(decimate({1, 2}, {1}, 100), ValueError);
}

TEST_CASE("running_median: one exploded value does not move it and a straight line stays straight") {
  Series s;
  for (int i = 0; i < 1000; ++i) {
    s.x.push_back(i);
    s.y.push_back(2.0 * i);
  }
  s.y[500] = 1e30;
  s.y[300] = std::nan("");
  const Series smooth = running_median(s);
  REQUIRE(smooth.x.size() == 400);
  for (std::size_t i = 0; i < smooth.x.size(); ++i) CHECK(std::abs(smooth.y[i] - 2 * smooth.x[i]) <= 20);
  s.x.resize(49);
  s.y.resize(49);
  CHECK(running_median(s).x.empty());
}

TEST_CASE("chart_svg: a lone point is drawn as a dot and an empty chart says so") {
  Chart chart;
  chart.series.push_back({"a", {500}, {2.5}, SeriesStyle::line, -1});
  CHECK(chart_svg(chart, 360, 260, 100).find("class=\"dots c0\"") != std::string::npos);
  chart.series.clear();
  CHECK(chart_svg(chart, 360, 260, 100).find("nothing to draw yet") != std::string::npos);
  chart.series.push_back({"b", {1, 2}, {1}, SeriesStyle::line, -1});
  CHECK_THROWS_WITH_AS(chart_svg(chart, 360, 260, 100), doctest::Contains("\"b\""), ValueError);
}

TEST_CASE("chart_svg: a band is one area, and has no entry in the legend and no values to read") {
  Chart chart{"c", "x", "y", false, false, {}};
  chart.series.push_back({"mean", {0, 1, 1, 0}, {3, 3, 1, 1}, SeriesStyle::band, 2});
  chart.series.push_back({"mean", {0, 1}, {2, 2}, SeriesStyle::line, 2});
  const std::string svg = chart_svg(chart, 360, 260, 600), figure = chart_figure(chart, true);
  CHECK(count_of(svg, "<path class=\"band c2\" d=\"M") == 1);
  CHECK(count_of(svg, "Z\"/>") == 1);
  CHECK(count_of(svg, "data-name") == 1);
  CHECK(count_of(figure, "class=\"key") == 1);
}

TEST_CASE("chart_svg: few points on a logarithmic axis are marked, many are not") {
  Chart chart;
  Series& line = chart.series.emplace_back();
  for (int i = 1; i <= 3; ++i) line.add(i, i);
  const auto marked = [&] {
    return chart_svg(chart, 360, 260, 1000).find("class=\"dots") != std::string::npos;
  };
  CHECK_FALSE(marked());
  chart.log_y = true;
  CHECK(marked());
  for (int i = 4; i <= 100; ++i) chart.series[0].add(i, i);
  CHECK_FALSE(marked());
}

TEST_CASE("chart_svg: an axis of whole numbers has no tick between them") {
  Chart chart;
  chart.series = {{"nodes", {1, 2, 3}, {13, 13, 13}}};
  CHECK(chart_svg(chart, 510, 270, 100).find(">12.5<") == std::string::npos);
  chart.series[0].y[1] = 13.5;
  CHECK(chart_svg(chart, 510, 270, 100).find(">13.5<") != std::string::npos);
}

TEST_CASE("chart_figure: values without a place on a log scale are counted") {
  Chart chart;
  chart.log_x = chart.log_y = true;
  chart.series.push_back({"a", {0, 1, 10, 100}, {1, -1, 0, 5}, SeriesStyle::points, 3});
  const std::string html = chart_figure(chart, true);
  CHECK(html.find("3 values are not positive") != std::string::npos);
  CHECK(html.find("dots c3") != std::string::npos);
}

TEST_CASE("chart_figure: rare outliers of a faint series do not stretch the axis") {
  Chart chart;
  Series s;
  s.style = SeriesStyle::faint;
  for (int i = 0; i < 1000; ++i) {
    s.x.push_back(i);
    s.y.push_back(i == 400 ? 1e6 : 1 + (i % 7) * 0.1);
  }
  chart.series.push_back(s);
  const std::string html = chart_figure(chart, false);
  CHECK(html.find("1 single value beyond the scale") != std::string::npos);
  CHECK(html.find("1M") == std::string::npos);
}

TEST_CASE("HtmlPage: every kind of section is well formed and escaped") {
  HtmlPage page("T & <t>", "sub");
  page.heading("<h>");
  page.paragraph("a & b");
  page.tiles({{"<n>", "1", ""}, {"n", "2", "<r>"}});
  page.table({{"a", "<b>"}, {{"1"}, {"<2>", "3", "4"}}});
  page.table({});
  page.preformatted("\n<x>");
  page.texts({{"<l>", "<t>"}});
  page.texts({});
  page.folded("<s>", [&] { page.texts({{"l", "t"}, {"m", "u"}}); });
  page.charts({Chart{}, Chart{}});
  page.chart(Chart{});
  CHECK(markup_fault(page.html()) == "");
}

TEST_CASE("human text: counts bytes times and numbers in units a person reads") {
  CHECK(decimal_bytes(999'999) == "999999 bytes");
  CHECK(decimal_bytes(30'800'000) == "30.8 MB");
  CHECK(decimal_bytes(2'500'000'000) == "2.5 GB");
  CHECK(human_count(0) == "0");
  CHECK(human_count(950) == "950");
  CHECK(human_count(12345) == "12.3k");
  CHECK(human_count(999999) == "1.0M");
  CHECK(human_count(1.5e30) == "1.50e+30");
  CHECK(human_count(std::nan("")) == "-");
  CHECK(human_bytes(512) == "512 B");
  CHECK(human_bytes(1288490189) == "1.2 GiB");
  CHECK(human_bytes(1048575) == "1.0 MiB");
  CHECK(human_duration(0.42) == "0.4s");
  CHECK(human_duration(9.97) == "10s");
  CHECK(human_duration(200) == "3m 20s");
  CHECK(human_duration(59.7) == "1m 00s");
  CHECK(human_duration(7500) == "2h 05m");
  CHECK(human_duration(3 * 86400 + 4 * 3600) == "3d 04h");
  CHECK(human_duration(-1) == "-");
  CHECK(human_number(3e-4) == "3e-4");
  CHECK(human_number(3.14159) == "3.142");
  CHECK(human_number(0.05) == "0.05");
  CHECK(human_number(123456) == "123456");
  CHECK(human_number(1.5e10) == "1.5e10");
  CHECK(human_number(-INFINITY) == "-inf");
  CHECK(shell_quoted("a/b-1.txt") == "a/b-1.txt");
  CHECK(shell_quoted("it's") == "'it'\\''s'");
  CHECK(grouped(12345678) == "12 345 678");
  CHECK(grouped(-123) == "-123");
}
