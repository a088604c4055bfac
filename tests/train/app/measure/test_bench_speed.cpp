// The table of step times: its rows are the ones meant, all of them run where they are shrunk, one that fails
// does not end the others, and the files hold what the text says.
#include <doctest/doctest.h>

#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

#include "models/eddy/registry.h"
#include "ops/backends.h"
#include "tensor/base/error.h"
#include "tensor/memory/allocator.h"
#include "train/app/measure/speed.h"
#include "train/files/text_file.h"

using namespace eddy;
using namespace eddy::training;
using namespace eddy::app;
namespace fs = std::filesystem;

namespace {

SpeedOptions quick(const std::string& name) {
  SpeedOptions options;
  options.scale = "small";
  options.runs = (fs::temp_directory_path() / ("eddy_speed_" + name)).string();
  options.product_size = 32;
  options.memory_bytes = 1 << 16;
  fs::remove_all(options.runs);
  return options;
}

}  // namespace

TEST_CASE("the rows of the speed table have the sizes they are named for") {
  for (const SpeedRow& row : speed_rows(false)) {
    CAPTURE(row.name);
    const std::int64_t parameters = count_parameters(row.model).count();
    if (row.name == "gpt2_124m") CHECK(parameters == 124'439'808);
    if (row.name == "rec_fixed_skip") CHECK(parameters == 193'362'040);
    if (row.name == "memory_llama") CHECK(parameters == 12'190'752);
    if (row.name.starts_with("rec") || row.name.starts_with("slide") || row.name.starts_with("xl"))
      CHECK(row.batch * row.sequence == 32'768);
    CHECK(row.title.find(std::to_string(row.sequence)) != std::string::npos);
  }
  const SpeedRow unit = speed_rows(false).at(3);
  CHECK(unit.best.ms == doctest::Approx(65536 / 1.97e6 * 1e3));
  CHECK(unit.aim.text == ">= 4 M tokens/s");
}

TEST_CASE("every row of the speed table runs shrunk on a CPU and is written as text and JSON and a page") {
  SpeedOptions options = quick("all");
  std::string said;
  const std::vector<SpeedResult> results =
      bench_speed(options, [&said](std::string_view text) { said += text; });
  CHECK(results.size() == speed_rows(true).size());
  for (const SpeedResult& result : results) {
    CAPTURE(result.row.name);
    CHECK(result.failure == "");
    REQUIRE(result.bench.has_value());
    CHECK(result.bench->step.runs == 3);
    CHECK(result.bench->dropout == 0);
    CHECK(std::isfinite(result.bench->loss));
    CHECK(said.find(result.row.title) != std::string::npos);
  }
  const fs::path folder = fs::path(options.runs) / "speed-small";
  const nlohmann::json written = nlohmann::json::parse(read_text_file(folder / "result.json"));
  REQUIRE(written["rows"].size() == results.size());
  CHECK(written["rows"][0]["name"] == "rec_fixed_skip");
  CHECK(written["rows"][0]["pytorch_given"].is_null());  // of other sizes
  CHECK(written["rows"][0]["measured"]["step_ms"]["median"].get<double>() > 0);
  CHECK(read_text_file(folder / "index.html").find("copy_4128, shrunk") != std::string::npos);
  fs::remove_all(options.runs);
}

TEST_CASE("a row of the speed table that fails is reported and the others go on") {
  SpeedOptions options = quick("fails");
  options.rows = {"staircase_text", "unit_256"};
  std::string said;
  const auto says = [&said](std::string_view text) { said += text; };
  const std::vector<SpeedResult> free = bench_speed(options, says);
  REQUIRE(free.size() == 2);
  REQUIRE((free[0].bench && free[1].bench));
  REQUIRE(free[0].bench->peak_bytes < free[1].bench->peak_bytes);
  // Room for the recurrence of one position, not for the window of chunks.
  Allocator& memory = allocator(kCpu);
  memory.set_limit((free[0].bench->peak_bytes + free[1].bench->peak_bytes) / 2);
  const std::vector<SpeedResult> results = bench_speed(options, says);
  memory.set_limit(0);
  REQUIRE(results.size() == 2);
  CHECK(results[0].row.name == "unit_256");  // in the table's order
  CHECK(results[0].bench.has_value());
  CHECK(!results[1].bench.has_value());
  CHECK(results[1].failure.find("memory") != std::string::npos);
  CHECK(said.find("failed: ") != std::string::npos);
  fs::remove_all(options.runs);
}

TEST_CASE("rows of the speed table that were measured before stay beside the new ones") {
  SpeedOptions options = quick("again");
  const auto says = [](std::string_view) {};
  const fs::path folder = fs::path(options.runs) / "speed-small";
  const auto written = [&] { return nlohmann::json::parse(read_text_file(folder / "result.json")); };
  const auto names = [&] {
    const nlohmann::json whole = written();
    std::string all;
    for (const nlohmann::json& row : whole["rows"]) all += row["name"].get<std::string>() + ' ';
    return all;
  };
  options.rows = {"staircase_text", "unit_256"};
  bench_speed(options, says);
  const nlohmann::json before = written();
  options.rows = {"regular_6"};
  CHECK(bench_speed(options, says).size() == 1);
  CHECK(names() == "unit_256 staircase_text regular_6 ");  // in the table's order
  CHECK(written()["rows"][0] == before["rows"][0]);
  CHECK(read_text_file(folder / "index.html").find("staircase_text, shrunk") != std::string::npos);
  options.rows = {"unit_256"};
  bench_speed(options, says);
  CHECK(names() == "unit_256 staircase_text regular_6 ");
  CHECK(written()["rows"][0] != before["rows"][0]);
  // Rows of another machine say nothing about this one.
  nlohmann::json other = written();
  other["environment"][3] = "processor: another";
  replace_text_file(folder / "result.json", text_with_digest(other, 1));
  bench_speed(options, says);
  CHECK(names() == "unit_256 ");
  other = written();
  other["rows"][0]["title"] = "another";
  replace_text_file(folder / "result.json", other.dump());
  CHECK_THROWS_WITH_AS(bench_speed(options, says), doctest::Contains("is not what was written"), FormatError);
  replace_text_file(folder / "result.json", "{\"rows\": 3");  // damaged, or the user's
  CHECK_THROWS_AS(bench_speed(options, says), IoError);
  CHECK(read_text_file(folder / "result.json") == "{\"rows\": 3");
  fs::remove_all(options.runs);
}

TEST_CASE("the profiles of all rows are one table in the form of the documents, beside the rows' own") {
  SpeedOptions options = quick("profiles");
  options.profile = true;
  options.command = "eddy bench speed --profile";
  const auto says = [](std::string_view) {};
  options.rows = {"regular_6"};
  bench_speed(options, says);
  options.rows = {"unit_256"};
  bench_speed(options, says);
  const fs::path folder = fs::path(options.runs) / "speed-small";
  const nlohmann::json measured =
      nlohmann::json::parse(read_text_file(folder / "result.json")).at("measured");
  REQUIRE(measured.size() == 2);
  for (const nlohmann::json& table : measured) {
    CHECK(table["command"] == "eddy bench speed --profile");
    CHECK(table["date"].get<std::string>().size() == 10);
    CHECK(table["machine"].get<std::string>().find("thread") != std::string::npos);
    REQUIRE(table["rows"].size() == table["rows_are"].size());
    for (const nlohmann::json& row : table["rows"]) CHECK(row.size() == table["columns"].size());
  }
  const nlohmann::json &rows = measured[0], &by_op = measured[1];
  CHECK(rows["rows_are"] == nlohmann::json({"unit_256", "regular_6"}));  // in the table's order
  CHECK(rows["columns"][7] == "products ms");
  CHECK(rows["rows"][1][7] != "-");
  CHECK(rows["rows"][1][9] != "-");
  CHECK(rows["rows"][0][9] == "-");  // its attention is in the recurrence
  CHECK(by_op["columns"][1] == "op");
  CHECK(by_op["rows_are"].front() == "unit_256");
  CHECK(by_op["rows_are"].back() == "regular_6");
  CHECK(by_op["rows"].back()[1] == "sum");
  CHECK(read_text_file(folder / "index.html").find("Where the time goes, by op") != std::string::npos);
  fs::remove_all(options.runs);
}

TEST_CASE("the speed table refuses what it cannot mean") {
  SpeedOptions options = quick("refused");
  options.rows = {"unit_25"};
  const auto says = [](std::string_view) {};
  CHECK_THROWS_WITH_AS(bench_speed(options, says), doctest::Contains("nearest: unit_256"), ConfigError);
  options.rows = {};
  options.scale = "tiny";
  CHECK_THROWS_WITH_AS(bench_speed(options, says), doctest::Contains("paper or small"), ConfigError);
  options.scale = "paper";
  options.device = "cpu";
  CHECK_THROWS_WITH_AS(bench_speed(options, says), doctest::Contains("--rows"), ConfigError);
  options.device = "";
  if (cuda_status() == "not in this build")
    CHECK_THROWS_WITH_AS(bench_speed(options, says), doctest::Contains("--scale small"), DeviceError);
  CHECK(!fs::exists(options.runs));
}
