// What a release wrote is read for ever: tests/fixtures/ keeps a run of each,
// and docs/formats.md says what its files are.
#include <doctest/doctest.h>

#include <cmath>
#include <cstddef>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "tests/support/errors.h"
#include "tests/support/files.h"
#include "tests/support/program.h"
#include "tests/train/app/program/trained_runs.h"
#include "train/record/run_series.h"

namespace {

using namespace eddy;
using namespace eddy::training;
using namespace eddy::test;
using namespace eddy::test::program;
namespace fs = std::filesystem;

constexpr const char* kReleases[] = {"0.1.0"};

// What other kernels may change of a loss, in nats: within four steps they differ in the sixth digit.
constexpr double kLossTolerance = 1e-3;

// A copy of the run of a release.
struct Kept {
  TempFolder folder;

  explicit Kept(const std::string& version) {
    fs::copy(EDDY_SOURCE_DIR "/tests/fixtures/run-" + version, folder.path(), fs::copy_options::recursive);
  }
};

}  // namespace

TEST_CASE("formats: the run and the session of each release are whole") {
  if (!has_program()) return;
  for (const char* version : kReleases) {
    CAPTURE(version);
    const Kept kept(version);
    for (const Words& file : {Words{"run", "--all"}, Words{"text.session"}}) {
      const Ended ended = run(kept.folder, Words{"check"} + file);
      CHECK_MESSAGE(ended.status == 0, ended.out);
    }
  }
}

TEST_CASE("formats: the run of each release has the loss that it had") {
  if (!has_program()) return;
  for (const char* version : kReleases) {
    CAPTURE(version);
    const Kept kept(version);
    const RunSeries series = RunSeries::read(kept.folder.path("run/metrics.jsonl"));
    REQUIRE(series.whole() != nullptr);
    const Ended ended = run(kept.folder, {"eval", "run"});
    REQUIRE_MESSAGE(ended.status == 0, ended.err);
    constexpr std::string_view kLine = "\nloss: ";
    const std::size_t at = ended.out.find(kLine);
    REQUIRE(at != std::string::npos);
    const double loss = std::stod(ended.out.substr(at + kLine.size()));
    CAPTURE(loss);
    CHECK(std::abs(loss - series.whole()->loss) <= kLossTolerance);
  }
}

TEST_CASE("formats: the session of each release goes on as its prompt does") {
  if (!has_program()) return;
  for (const char* version : kReleases) {
    CAPTURE(version);
    const Kept kept(version);
    const Ended whole = run(
        kept.folder, {"generate", "run", "--prompt", "two and three are ", "--seed", "5", "--tokens", "32"});
    const Ended rest = run(kept.folder, {"generate", "run", "--session", "text.session", "--tokens", "20"});
    CHECK_MESSAGE(whole.status == 0, whole.err);
    CHECK_MESSAGE(rest.status == 0, rest.err);
    // Numbers of the state that other kernels wrote differ in the seventh digit, which moves no draw of 20.
    REQUIRE(whole.out.size() == 32);
    CHECK(whole.out.substr(12) == rest.out);
  }
}

TEST_CASE("formats: the run of each release is resumed with the losses that it had") {
  if (!has_program()) return;
  for (const char* version : kReleases) {
    CAPTURE(version);
    const Kept kept(version);
    const Ended ended =
        run(kept.folder, {"train", "--resume", "run", "--train.steps", "44", "--train.log_every", "1"});
    REQUIRE_MESSAGE(ended.status == 0, ended.err);
    const auto losses = [&](const char* file) {
      return RunSeries::read(kept.folder.path(file)).steps(&StepRecord::loss);
    };
    const Series now = losses("run/metrics.jsonl"), then = losses("resumed.jsonl");
    REQUIRE(now.y.size() == then.y.size());
    CHECK(now.x == then.x);
    CHECK(now.x.back() == 44);
    for (std::size_t i = 0; i < now.y.size(); ++i) {
      CAPTURE(now.x[i]);
      CAPTURE(now.y[i]);
      CHECK(std::abs(now.y[i] - then.y[i]) <= kLossTolerance);
    }
  }
}
