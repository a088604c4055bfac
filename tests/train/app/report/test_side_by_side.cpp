// Runs side by side: their groups, means and bands, what differs, where they ended, and the points as CSV.
#include "train/app/report/side_by_side.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "ops/core/warnings.h"
#include "tensor/base/error.h"
#include "tests/support/errors.h"
#include "tests/support/files.h"
#include "train/app/report/curves.h"
#include "train/app/report/report.h"

namespace {

using namespace eddy;
using namespace eddy::training;
using namespace eddy::app;
using namespace eddy::test;

RunConfig config_with(std::int64_t seed, std::int64_t dim = 16) {
  RunConfig config;
  config.model.dim = dim;
  config.model.heads = 2;
  config.model.context = 16;
  config.model.vocab = config.model.n_out = 8;
  config.train.seed = seed;
  return config;
}

// A run of `steps` records, every 10 steps, whose losses begin at `loss`.
std::string write_run(const TempFolder& folder, const std::string& name, const RunConfig& config, double loss,
                      int steps, bool with_facts = true) {
  folder.write(name + "/config.json", to_json(config).dump());
  MetricsWriter writer(folder.write(name + "/metrics.jsonl", ""));
  if (with_facts)
    writer.write(RunRecord{.name = name,
                           .model = "a/b",
                           .task = "text",
                           .parameters = 1234,
                           .state_bytes = 2048,
                           .flops_per_token = 5,
                           .text = "t.txt",
                           .text_sha256 = "0123456789abcdef0123"});
  for (int i = 1; i <= steps; ++i) {
    writer.write(StepRecord{
        .step = 10 * i, .loss = loss, .tokens_per_second = 100, .tokens = 1000 * i, .seconds = loss * i});
    writer.write(
        EvalRecord{.step = 10 * i, .loss = loss + i, .tokens = 8, .metrics = {{"bits_per_byte", loss}}});
  }
  return folder.path(name);
}

const Chart& chart_named(const std::vector<Chart>& charts, std::string_view title) {
  for (const Chart& chart : charts)
    if (chart.title == title) return chart;
  FAIL("no chart is called ", title);
  return charts.front();
}

std::string joined(const std::vector<std::string>& cells) {
  std::string text;
  for (const std::string& cell : cells) text += (text.empty() ? "" : "|") + cell;
  return text;
}

}  // namespace

TEST_CASE("side by side: runs that differ in their seed alone are one group") {
  const TempFolder folder;
  const std::vector<ReportedRun> runs = read_reported_runs({write_run(folder, "a", config_with(1), 2, 3),
                                                            write_run(folder, "b", config_with(1, 32), 2, 3),
                                                            write_run(folder, "c", config_with(2), 4, 3)});
  const std::vector<SeedGroup> groups = groups_of(runs);
  REQUIRE(groups.size() == 2);
  CHECK(groups[0].runs == std::vector<std::size_t>{0, 2});
  CHECK(groups[1].runs == std::vector<std::size_t>{1});
  const Table differing = differences_of(runs, groups);
  CHECK(differing.header == std::vector<std::string>{"setting", "a and 1 more seed", "b"});
  REQUIRE(differing.rows.size() == 2);
  CHECK(differing.rows[0] == std::vector<std::string>{"model.dim", "16", "32"});
  CHECK(differing.rows[1] == std::vector<std::string>{"train.seed", "1, 2", "1"});
}

TEST_CASE(
    "side by side: a group is its mean in a band from the lowest to the highest, as far as all of it goes") {
  const TempFolder folder;
  const std::vector<ReportedRun> runs = read_reported_runs(
      {write_run(folder, "a", config_with(1), 2, 4), write_run(folder, "b", config_with(2), 5, 3)});
  const std::vector<SeedGroup> groups = groups_of(runs);
  const std::vector<Chart> charts = curves_of_groups(runs, groups, XAxis::steps);
  const Chart& valid = chart_named(charts, "Validation loss");
  REQUIRE(valid.series.size() == 2);
  CHECK(valid.series[0].style == SeriesStyle::band);
  CHECK(valid.series[0].x == std::vector<double>{10, 20, 30, 30, 20, 10});
  CHECK(valid.series[0].y == std::vector<double>{6, 7, 8, 5, 4, 3});
  CHECK(valid.series[1].x == std::vector<double>{10, 20, 30});
  CHECK(valid.series[1].y == std::vector<double>{4.5, 5.5, 6.5});
  CHECK(valid.series[0].colour == valid.series[1].colour);
  CHECK(chart_named(charts, "bits per byte").series[1].y == std::vector<double>{3.5, 3.5, 3.5});
  CHECK(chart_named(charts, "Training loss, running median").series[1].y ==
        std::vector<double>{3.5, 3.5, 3.5});
  // Tokens are those of the configuration, seconds the mean.
  const std::vector<Chart> tokens = curves_of_groups(runs, groups, XAxis::tokens);
  CHECK(chart_named(tokens, "Validation loss").series[1].x == std::vector<double>{1000, 2000, 3000});
  const std::vector<Chart> seconds = curves_of_groups(runs, groups, XAxis::seconds);
  CHECK(chart_named(seconds, "Validation loss").series[1].x == std::vector<double>{3.5, 7, 10.5});
  const std::vector<Chart> operations = curves_of_groups(runs, groups, XAxis::operations);
  CHECK(chart_named(operations, "Validation loss").series[1].x == std::vector<double>{15000, 30000, 45000});
}

TEST_CASE("side by side: a band of many points is thinned and keeps its ends") {
  const TempFolder folder;
  const std::vector<ReportedRun> runs = read_reported_runs(
      {write_run(folder, "a", config_with(1), 2, 1301), write_run(folder, "b", config_with(2), 5, 1301)});
  const Chart valid = chart_named(curves_of_groups(runs, groups_of(runs), XAxis::steps), "Validation loss");
  CHECK(valid.series[1].x.size() <= 501);
  CHECK(valid.series[1].x.front() == 10);
  CHECK(valid.series[1].x.back() == 13010);
}

TEST_CASE("side by side: the table has a row for each run, and one of means above a group") {
  const TempFolder folder;
  const std::vector<ReportedRun> runs = read_reported_runs(
      {write_run(folder, "a", config_with(1), 2, 4), write_run(folder, "b", config_with(2), 5, 4),
       write_run(folder, "c", config_with(1, 32), 3, 0)});
  const Table ends = ends_of(runs, groups_of(runs));
  CHECK(ends.header == std::vector<std::string>{"run", "model", "parameters", "state", "steps", "tokens",
                                                "training loss", "best validation loss", "bits per byte",
                                                "time", "tokens/s"});
  REQUIRE(ends.rows.size() == 4);
  CHECK(joined(ends.rows[0]) ==
        "mean of 2 seeds|b|1.2k|2.0 KiB|40|4.0k|3.5000 (2.0000 to 5.0000)|4.5000 (3.0000 to 6.0000)|"
        "3.5000 (2.0000 to 5.0000)|14s (8s to 20s)|100");
  CHECK(ends.rows[1][0] == "a");
  CHECK(ends.rows[1][7] == "3.0000");
  CHECK(joined(ends.rows[3]) == "c|b|1.2k|2.0 KiB|0|-|-|-|-|-|-");
}

TEST_CASE("side by side: a run ends with the same numbers as in its own report") {
  const TempFolder folder;
  const std::string path = write_run(folder, "a", config_with(1), 2, 0);
  MetricsWriter writer(path + "/metrics.jsonl");
  for (int i = 1; i <= 45; ++i)
    writer.write(StepRecord{.step = i, .loss = 1 + 4.0 / i, .tokens_per_second = 100, .tokens = i});
  // A lower loss of texts that have grown since.
  writer.write(EvalRecord{.step = 20, .loss = 0.5, .tokens = 8});
  writer.write(RunRecord{.step = 30, .name = "a", .model = "a/b"});
  writer.write(EvalRecord{.step = 40, .loss = 0.75, .tokens = 8});
  writer.write(EvalRecord{.step = 45, .loss = 0.25, .tokens = 80, .whole = true});
  const std::vector<ReportedRun> runs = read_reported_runs({path});
  const Table ends = ends_of(runs, groups_of(runs));
  const auto cell = [&](const char* column) {
    const auto found = std::find(ends.header.begin(), ends.header.end(), column);
    REQUIRE(found != ends.header.end());
    return ends.rows.at(0)[static_cast<std::size_t>(found - ends.header.begin())];
  };
  ReportData data;
  data.metrics = runs[0].series.records();
  data.phase_began = 30;
  const std::string page = render_report(data);
  const auto tile = [&](const char* name) {
    const std::string mark = std::string(name) + "</div><div class=\"value\">";
    REQUIRE(contains(page, mark));
    return std::stod(page.substr(page.find(mark) + mark.size()));
  };
  CHECK(cell("training loss") == "1.0930");  // of the last four the upper middle one: 1 + 4 / 43
  CHECK(tile("Final training loss") == doctest::Approx(1.093).epsilon(1e-4));
  CHECK(cell("best validation loss") == "0.7500");
  CHECK(tile("Best validation loss") == 0.75);
  CHECK(cell("whole split") == "0.2500");
  CHECK(tile("Validation loss, whole split") == 0.25);
}

TEST_CASE("side by side: a run without a record of itself is known by its configuration") {
  const TempFolder folder;
  const ReportedRun run = read_reported_run(write_run(folder, "old", config_with(1), 2, 1, false));
  CHECK(run.facts.parameters > 0);
  CHECK(run.facts.state_bytes > 0);
  CHECK(run.facts.flops_per_token > 0);
  CHECK(run.facts.model == run.config.model.family + "/" + run.config.model.model);
}

TEST_CASE("side by side: runs of one name in two folders are called by their paths") {
  const TempFolder folder;
  const std::vector<ReportedRun> runs = read_reported_runs(
      {write_run(folder, "x/a", config_with(1), 2, 1), write_run(folder, "y/a", config_with(2), 2, 1) + "/"});
  CHECK(runs[0].name == folder.path("x/a"));
  CHECK(runs[1].name == folder.path("y/a") + "/");
}

TEST_CASE("side by side: the points are comma-separated values with quotes where they are needed") {
  const TempFolder folder;
  const std::vector<ReportedRun> runs =
      read_reported_runs({write_run(folder, "a, \"b\"", config_with(1), 2, 1)});
  CHECK(points_csv(runs) ==
        "run,measure,step,tokens,operations,seconds,value\n"
        "\"a, \"\"b\"\"\",train_loss,10,1000,15000,2,2\n"
        "\"a, \"\"b\"\"\",tokens_per_second,10,1000,15000,2,100\n"
        "\"a, \"\"b\"\"\",valid_loss,10,1000,15000,2,3\n"
        "\"a, \"\"b\"\"\",valid_bits_per_byte,10,1000,15000,2,2\n");
  const std::string file = folder.write("p.csv", points_csv(runs));
  CHECK(kPointsFile.is_one(file));
  CHECK_FALSE(kPointsFile.is_one(folder.write("mine.csv", "run,measure\n")));
}

TEST_CASE("side by side: the page escapes what runs are called and needs no evaluation") {
  const TempFolder folder;
  const std::vector<ReportedRun> runs = read_reported_runs(
      {write_run(folder, "<i>&", config_with(1), 2, 2), write_run(folder, "b", config_with(2), 2, 0)});
  const std::string page = side_by_side_page(runs, groups_of(runs));
  CHECK(contains(page, "&lt;i&gt;&amp;"));
  CHECK_FALSE(contains(page, "<i>&"));
  CHECK(contains(page, ">operations<"));
  CHECK(contains(page, "0123456789abcdef<"));
  const std::vector<ReportedRun> none = read_reported_runs({write_run(folder, "c", config_with(1), 2, 0)});
  CHECK(contains(side_by_side_page(none, groups_of(none)), "Nothing has been recorded yet."));
}

TEST_CASE("side by side: a folder means the runs in it, and one without runs is refused") {
  const TempFolder folder;
  write_run(folder, "seeds/b", config_with(1), 2, 1);
  write_run(folder, "seeds/a", config_with(2), 2, 1);
  CHECK(runs_in(folder.path("seeds"), "report") ==
        std::vector<std::string>{folder.path("seeds/a"), folder.path("seeds/b")});
  CHECK(contains(error_of<IoError>([&] { runs_in(folder.path(), "report"); }), "report: "));
  // One whose records are lost is not passed over in silence.
  folder.write("seeds/c/checkpoints/latest", "step-1\n");
  const std::string d = write_run(folder, "seeds/d", config_with(3), 2, 1);
  folder.write("seeds/d/metrics.jsonl", "junk\n");
  reset_warnings();
  CHECK(read_reported_runs(runs_in(folder.path("seeds"), "report")).size() == 2);
  std::string said;
  for (const std::string& warning : take_warnings()) said += warning + "\n";
  CHECK_MESSAGE(contains(said, "the run " + folder.path("seeds/c") + " is left out"), said);
  CHECK_MESSAGE(contains(said, "the run " + d + " is left out"), said);
}

TEST_CASE("side by side: a copy is listed apart and named, and a damaged run is left out") {
  const TempFolder folder;
  const std::string a = write_run(folder, "a", config_with(1), 2, 3), copy = folder.path("a.bak"),
                    damaged = write_run(folder, "c", config_with(2), 2, 3);
  std::filesystem::copy(a, copy, std::filesystem::copy_options::recursive);
  folder.write("c/config.json", "{\"model\": ");
  folder.write("foreign/metrics.jsonl", "{\"step\": 3}\n");
  reset_warnings();
  const std::vector<ReportedRun> runs = read_reported_runs({a, copy, damaged, folder.path("foreign")});
  REQUIRE(runs.size() == 2);
  const std::vector<std::string> warnings = take_warnings();
  REQUIRE(warnings.size() == 2);
  CHECK(contains(warnings[0], "the run " + damaged + " is left out"));
  CHECK(contains(warnings[1], "foreign is left out"));
  const std::vector<SeedGroup> groups = groups_of(runs);
  CHECK(groups.size() == 2);
  CHECK_FALSE(contains(joined(ends_of(runs, groups).rows[0]), "seeds"));
  const std::vector<std::string> said = listed_apart(runs);
  REQUIRE(said.size() == 1);
  CHECK(contains(said[0], "a.bak has the configuration and the seed of a"));
}

TEST_CASE("side by side: a run that has recorded nothing is in no mean, and that is said") {
  const TempFolder folder;
  const std::string a = write_run(folder, "a", config_with(1), 2, 3),
                    b = write_run(folder, "b", config_with(2), 4, 3),
                    begun = write_run(folder, "begun", config_with(3), 2, 0),
                    empty = write_run(folder, "empty", config_with(4), 2, 0, false);
  reset_warnings();
  const std::vector<ReportedRun> runs = read_reported_runs({a, b, begun, empty});
  REQUIRE(runs.size() == 3);
  const std::vector<std::string> warnings = take_warnings();
  REQUIRE(warnings.size() == 1);
  CHECK_MESSAGE(contains(warnings[0], "the run " + empty + " is left out"), warnings[0]);
  CHECK_MESSAGE(contains(warnings[0], "has no record"), warnings[0]);
  const std::vector<SeedGroup> groups = groups_of(runs);
  REQUIRE(groups.size() == 2);
  CHECK(groups[0].runs == std::vector<std::size_t>{0, 1});
  CHECK(ends_of(runs, groups).rows[0][0] == "mean of 2 seeds");
  const std::vector<std::string> said = listed_apart(runs);
  REQUIRE(said.size() == 1);
  CHECK(said[0] == "begun has recorded no step and no evaluation, and belongs to no mean");
}
