// Pages as a browser lays them out: on a phone and on a wide screen nothing scrolls sideways
// and no word is broken inside.
#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "tensor/base/format.h"
#include "tests/support/browser.h"
#include "tests/support/errors.h"
#include "tests/support/files.h"
#include "train/app/measure/measurement.h"
#include "train/app/report/report.h"
#include "train/app/report/side_by_side.h"
#include "train/app/reproduce/page.h"
#include "train/app/views/html_page.h"

namespace {

using namespace eddy;
using namespace eddy::training;
using namespace eddy::app;
using namespace eddy::test;

// Loads pages into frames of two widths and prints a line for each: how wide it is, and its broken words. A break
// behind a hyphen or a slash is none, nor is one of a word that no column could hold.
constexpr const char* kLook = R"(<!DOCTYPE html><html><body><pre id="out"></pre><script>
const pages = [@PAGES@], widths = [390, 1400], out = document.getElementById("out");
for (const page of pages) for (const width of widths) {
  const frame = document.createElement("iframe");
  frame.style = "width: " + width + "px; height: 900px; border: 0";
  frame.onload = () => {
    const doc = frame.contentDocument, broken = new Set();
    for (const fold of doc.querySelectorAll("details")) fold.open = true;
    const walk = doc.createTreeWalker(doc.body, NodeFilter.SHOW_TEXT);
    for (let node; (node = walk.nextNode());) {
      if (node.parentElement.closest("script,style,svg,pre")) continue;
      for (const word of node.data.matchAll(/[^\s\/-]+[\/-]*|--\S+/g)) {
        if (word[0].length > 28) continue;
        const range = doc.createRange();
        range.setStart(node, word.index);
        range.setEnd(node, word.index + word[0].length);
        if (new Set(Array.from(range.getClientRects(), r => Math.round(r.top))).size > 1) broken.add(word[0]);
      }
    }
    const wide = doc.documentElement.scrollWidth;
    out.textContent += page + " " + width + (wide > width ? " scrolls to " + wide : " fits") + ", broken: [" +
        Array.from(broken).join(" ") + "]\n";
  };
  frame.src = page;
  document.body.append(frame);
}
</script></body></html>)";

ReportData long_report() {
  ReportData data;
  data.title = "block_recurrent on a_long_name_of_a_text_that_someone_gave_without_any_blank_in_it.txt";
  data.status = PageStatus{"running",
                           "step 1 200 of 6 000, 20 % done, 12m 30s left",
                           {"to go on after that: eddy train --resume runs/a_name --train.steps 12000"},
                           1.7e9,
                           3};
  data.parameters = 12'345'678;
  data.config.model.recurrent_layers = {1, 2, 3};
  data.config.model.layers = 7;
  data.config.model.context = 4096;
  data.config.data.path = "/home/someone/texts/a_folder_with_a_long_name/and_another_one/book.txt";
  data.config.train.checkpoint_every = 123'456;
  for (int i = 1; i <= 200; ++i) {
    StepRecord step;
    step.step = 10 * i;
    step.loss = 1 + 4.0 / i;
    step.grad_norm = 1 + i % 7;
    step.tokens_per_second = 1000 + 100 * (i % 5);
    step.tokens = 1000 * i;
    step.seconds = i;
    data.metrics.steps.push_back(step);
    if (i % 20 == 0)
      data.metrics.evals.push_back(
          {.step = 10 * i, .loss = 2.0, .tokens = 99, .metrics = {{"state_gain", 0.1 / i}}});
  }
  data.metrics.commands = {
      {0, "eddy train examples/configs/quickstart.toml --run runs/a_name --model.recurrent_layers 1,2,3"}};
  data.metrics.events = {
      {10, "warning: a line that is long enough to be broken at a blank, but not inside of a word"}};
  data.metrics.samples = {{0, "noise"}, {100, std::string(300, 'x')}};
  data.environment = {"processor: Some Processor with a long name @ 2.5 GHz",
                      "BLAS: OpenBLAS 0.3.21 NO_AFFINITY Haswell"};
  return data;
}

// The page of a paper's table: nine rows of two seeds each, with curves.
std::string long_table(const TempFolder& folder) {
  ReproduceTable table;
  table.name = "a_family/table-1";
  table.title = "A paper of a long title (Someone et al. 2021), Table 1: a task";
  table.notes = {"what to know when comparing, in a sentence that is long enough to be broken at a blank"};
  for (const char* title : {"accuracy of all test images, %", "estimated loss", "parameters, thousands"})
    table.columns.push_back({title, "loss"});
  for (int i = 0; i < 18; ++i) {
    ReproduceRow& row = table.rows.emplace_back();
    row.group = "row_of_a_name_" + std::to_string(i / 2);
    row.name = row.group + "-seed-" + std::to_string(i % 2);
    row.title = "block recurrence, accumulate " + std::to_string(i / 2);
    row.published = {{1.5, "the paper's data"}, {2.5, ""}, {12.25, ""}};
  }
  std::vector<ShownRow> rows;
  for (std::size_t i = 0; i < table.rows.size(); ++i) {
    std::string lines;
    for (int step = 1; step <= 30; ++step)
      lines += fmt::format("{{\"step\": {0}, \"loss\": {1}, \"tokens\": {2}, \"seconds\": {0}}}\n", step,
                           3.0 / step + 0.1 * static_cast<double>(i), 1000 * step);
    folder.write(table.rows[i].name + "/metrics.jsonl", lines);
    RowResult result;
    result.values = {{"loss", 1.0 + static_cast<double>(i)}, {"flops_per_token", 1e6}};
    result.device = "cpu, 2 threads, Some Processor with a long name @ 2.5 GHz";
    rows.push_back({&table.rows[i], result, "eddy reproduce a_family/table-1 --rows " + table.rows[i].name,
                    folder.path(table.rows[i].name)});
  }
  return table_page(table, rows);
}

// The page of a benchmark: a table of many columns, and plots of many lines.
std::string long_measurement() {
  Measurement m;
  m.bench = "length";
  m.title = "Steps on segments of growing length";
  m.conditions = "batch 16, f32, 2 threads, Some Processor with a long name @ 2.5 GHz";
  MeasuredTable& table = m.tables.emplace_back();
  table.names = "model";
  table.columns = {
      {"", "tokens"}, {"", "step, ms"}, {"", "share of the floor, %"}, {"", "peak memory"}, {"", "bound by"}};
  table.plots = {{"Time of a step", "ms", 1}};
  for (int i = 0; i < 9; ++i) {
    MeasuredSeries& series = table.series.emplace_back();
    series.name = "recurrent_transformer/block_accumulate " + std::to_string(i);
    for (const double tokens : {128.0, 256.0, 512.0})
      series.rows.push_back({tokens, tokens * (i + 1), 50.0, bytes_cell(1 << 20), "memory"});
  }
  return to_html(m);
}

}  // namespace

TEST_CASE("browser: no page scrolls sideways or breaks a word, on a phone and on a wide screen") {
  const TempFolder folder;
  std::vector<ReportedRun> runs;
  for (int i = 0; i < 8; ++i) {
    ReportedRun run;
    run.name = "a_run_of_width_" + std::to_string(16 << i);
    run.folder = "runs/wide/" + run.name;
    run.config.model.dim = 16 << i;
    run.config.model.kv_heads = i;
    run.series = RunSeries(long_report().metrics);
    run.facts.model = "recurrent_transformer/block_accumulate";
    run.facts.parameters = 1000 << i;
    run.facts.text_sha256 = std::string(64, 'a');
    runs.push_back(std::move(run));
  }
  HtmlPage tables("Tables");
  for (const int columns : {2, 3, 5, 9}) {
    std::vector<std::string> head{"a_word_of_some_length"}, row{"recurrent_layers"};
    for (int i = 1; i < columns; ++i) head.push_back("validation"), row.push_back("0.1234 (0.1 to 0.2)");
    tables.table({head, {row, row}});
  }
  folder.write("report.html", render_report(long_report()));
  folder.write("runs.html", side_by_side_page(runs, groups_of(runs)));
  folder.write("tables.html", tables.html());
  folder.write("reproduce.html", long_table(folder));
  folder.write("bench.html", long_measurement());
  std::string look = kLook;
  const std::vector<std::string> pages{"report.html", "runs.html", "tables.html", "reproduce.html",
                                       "bench.html"};
  std::string names;
  for (const std::string& page : pages) names += "'" + page + "', ";
  look.replace(look.find("@PAGES@"), 7, names);
  const std::string shown = shown_by_browser("file://" + folder.write("look.html", look));
  if (shown.empty()) return;
  for (const std::string& page : pages)
    for (const char* width : {"390", "1400"}) {
      const std::string line = page + " " + width + " fits, broken: []";
      CHECK_MESSAGE(contains(shown, line), line << " is not in\n" << shown.substr(shown.find("<pre"), 3000));
    }
}
