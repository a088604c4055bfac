// metrics.jsonl: what is written comes back; a crash or a resume leaves a file that reads well.
#include <doctest/doctest.h>
#include <sys/stat.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <string>

#include "tensor/base/error.h"
#include "tests/support/files.h"
#include "tests/support/tiny_run.h"
#include "train/app/report/report.h"
#include "train/files/text_file.h"
#include "train/record/metrics.h"
#include "train/record/metrics_summary.h"

namespace {

using namespace eddy;
using namespace eddy::training;
using namespace eddy::app;
using namespace eddy::test;

StepRecord step_at(std::int64_t step, double loss) {
  StepRecord record;
  record.step = step;
  record.loss = loss;
  return record;
}

std::int64_t drop_after(const std::filesystem::path& path, std::int64_t step) {
  MetricsSummary kept;
  return drop_metrics_after(path, step, kept);
}

}  // namespace

TEST_CASE("metrics: what an evaluation measured besides the loss comes back by name") {
  const TempFolder folder;
  const std::filesystem::path path = folder.path("metrics.jsonl");
  {
    MetricsWriter writer(path);
    writer.write(EvalRecord{3, "valid", 1.5, 10, {{"accuracy", 0.25}, {"word_perplexity", kNotMeasured}}});
    writer.write(EvalRecord{4, "valid", 1.25, 10});
  }
  const Metrics metrics = read_metrics(path);
  REQUIRE(metrics.evals.size() == 2);
  REQUIRE(metrics.evals[0].metrics.size() == 2);
  CHECK(metrics.evals[0].metrics[0] == std::pair<std::string, double>{"accuracy", 0.25});
  CHECK(metrics.evals[0].metrics[1].first == "word_perplexity");
  CHECK(std::isnan(metrics.evals[0].metrics[1].second));
  CHECK(metrics.evals[1].metrics.empty());
}

TEST_CASE("metrics: every field of every kind comes back as written") {
  const TempFolder folder;
  {
    MetricsWriter writer(folder.path("metrics.jsonl"));
    writer.write(RunRecord{0, "mine", "family/model", "text", 12345, 678, 9.5, "a \"text\"", "00ff"});
    writer.write(StepRecord{7, 2.5, 3e-4, 0.75, 12345.5, std::int64_t{1} << 40, std::int64_t{1} << 41, 81.25,
                            1840, 4096, 312, 65536, 9.5, 0.375});
    writer.write(EvalRecord{7, "test", 2.25, 1000, {}, false, 5000, true});
    writer.write(SampleRecord{7, "two\nlines \"quoted\" \\ \xf0\x9f\x8c\x8a", 3, 2});
    writer.write(EventRecord{8, "resumed"});
    writer.write(CommandRecord{8, "eddy train --resume 'a b'"});
  }
  const Metrics m = read_metrics(folder.path("metrics.jsonl"));
  REQUIRE(m.run);
  CHECK(m.run->step == 0);
  CHECK(m.run->name == "mine");
  CHECK(m.run->model == "family/model");
  CHECK(m.run->task == "text");
  CHECK(m.run->parameters == 12345);
  CHECK(m.run->state_bytes == 678);
  CHECK(m.run->flops_per_token == 9.5);
  CHECK(m.run->text == "a \"text\"");
  CHECK(m.run->text_sha256 == "00ff");
  REQUIRE(m.steps.size() == 1);
  const StepRecord& s = m.steps[0];
  CHECK(s.step == 7);
  CHECK(s.loss == 2.5);
  CHECK(s.learning_rate == 3e-4);
  CHECK(s.grad_norm == 0.75);
  CHECK(s.tokens_per_second == 12345.5);
  CHECK(s.memory_bytes == std::int64_t{1} << 40);
  CHECK(s.ms == 81.25);
  CHECK(s.graph_nodes == 1840);
  CHECK(s.saved_bytes == 4096);
  CHECK(s.graph_depth == 312);
  CHECK(s.progress == 0.375);
  CHECK(s.tokens == 65536);
  CHECK(s.seconds == 9.5);
  REQUIRE(m.evals.size() == 1);
  CHECK(m.evals[0].split == "test");
  CHECK(m.evals[0].loss == 2.25);
  CHECK(m.evals[0].tokens == 1000);
  CHECK(m.evals[0].metrics.empty());
  CHECK(m.evals[0].of == 5000);
  CHECK(m.evals[0].whole);
  REQUIRE(m.samples.size() == 1);
  CHECK(m.samples[0].text == "two\nlines \"quoted\" \\ \xf0\x9f\x8c\x8a");
  CHECK(known_words_text(m.samples[0]) == "2 of its 3 words stand in the training text");
  REQUIRE(m.events.size() == 1);
  CHECK(m.events[0].step == 8);
  REQUIRE(m.commands.size() == 1);
  CHECK(m.commands[0].step == 8);
  CHECK(m.commands[0].text == "eddy train --resume 'a b'");
}

TEST_CASE("metrics: a line is in the file as soon as it is written and starts with its kind") {
  const TempFolder folder;
  MetricsWriter writer(folder.path("m"));
  writer.write(EventRecord{3, "hello"});
  CHECK(read_text_file(folder.path("m")) == "{\"kind\":\"event\",\"step\":3,\"text\":\"hello\"}\n");
}

TEST_CASE("metrics: numbers that are not finite are written as null and read as NaN") {
  const TempFolder folder;
  {
    MetricsWriter writer(folder.path("m"));
    writer.write(step_at(1, std::nan("")));
    writer.write(step_at(2, INFINITY));
  }
  CHECK(read_text_file(folder.path("m")).find("\"loss\":null") != std::string::npos);
  const Metrics m = read_metrics(folder.path("m"));
  REQUIRE(m.steps.size() == 2);
  CHECK(std::isnan(m.steps[0].loss));
  CHECK(std::isnan(m.steps[1].loss));
}

TEST_CASE("metrics: a sample with invalid UTF-8 is written with replacement characters") {
  const TempFolder folder;
  MetricsWriter(folder.path("m"))
      .write(SampleRecord{1,
                          "a\xff"
                          "b\xc3"});
  CHECK(read_metrics(folder.path("m")).samples.at(0).text ==
        "a\xef\xbf\xbd"
        "b\xef\xbf\xbd");
}

TEST_CASE("metrics: the reader tolerates a file cut at any byte") {
  const TempFolder folder;
  {
    MetricsWriter writer(folder.path("m"));
    for (int step = 1; step <= 3; ++step) writer.write(step_at(step, 1.0 / step));
  }
  const std::string whole = read_text_file(folder.path("m"));
  for (std::size_t bytes = 0; bytes <= whole.size(); ++bytes) {
    const std::string part = whole.substr(0, bytes);
    replace_text_file(folder.path("cut"), part);
    const auto lines = static_cast<std::size_t>(std::count(part.begin(), part.end(), '\n'));
    CHECK(read_metrics(folder.path("cut")).steps.size() == lines);
  }
}

TEST_CASE("metrics: a writer removes a cut last line before it appends") {
  const TempFolder folder;
  replace_text_file(folder.path("m"), "{\"kind\":\"event\",\"step\":1,\"text\":\"a\"}\n{\"kind\":\"eve");
  MetricsWriter(folder.path("m")).write(EventRecord{2, "b"});
  const Metrics m = read_metrics(folder.path("m"));
  REQUIRE(m.events.size() == 2);
  CHECK(m.events[1].text == "b");
}

TEST_CASE("metrics: a resume drops the lines of later steps and keeps the bytes of the others") {
  const TempFolder folder;
  {
    MetricsWriter writer(folder.path("m"));
    writer.write(step_at(1, 3));
    writer.write(step_at(2, 2));
    writer.write(EvalRecord{2, "valid", 2, 10});
  }
  const std::string until_2 = read_text_file(folder.path("m"));
  {
    MetricsWriter writer(folder.path("m"));
    writer.write(step_at(3, 1));
    writer.write(SampleRecord{3, "late"});
  }
  replace_text_file(folder.path("m"), read_text_file(folder.path("m")) + "{\"kind\":\"st");
  CHECK(drop_after(folder.path("m"), 2) == 3);
  CHECK(read_text_file(folder.path("m")) == until_2);
  CHECK(drop_after(folder.path("m"), 2) == 0);
  CHECK(folder.entries() == 1);
}

TEST_CASE("metrics: a resume without a file drops nothing and makes no file") {
  const TempFolder folder;
  CHECK(drop_after(folder.path("none"), 5) == 0);
  CHECK(folder.entries() == 0);
}

TEST_CASE("metrics: unknown kinds and fields are passed over and survive a resume") {
  const TempFolder folder;
  const std::string line = "{\"kind\":\"later\",\"step\":1,\"list\":[1,{\"a\":2}]}\n";
  replace_text_file(folder.path("m"), line + "{\"kind\":\"step\",\"step\":2,\"loss\":1.5,\"new\":true}\n");
  const Metrics m = read_metrics(folder.path("m"));
  REQUIRE(m.steps.size() == 1);
  CHECK(m.steps[0].loss == 1.5);
  CHECK(std::isnan(m.steps[0].grad_norm));
  CHECK(drop_after(folder.path("m"), 1) == 1);
  CHECK(read_text_file(folder.path("m")) == line);
}

TEST_CASE("metrics: a whole line that is no record is passed over and named and survives a resume") {
  const TempFolder folder;
  const std::string good = "{\"kind\":\"event\",\"step\":1,\"text\":\"a\"}\n";
  const std::string late = "{\"kind\":\"event\",\"step\":9,\"text\":\"b\"}\n";
  const std::string deep(100000, '[');
  for (const std::string& bad :
       {std::string("nonsense"), std::string("[1]"), std::string("{\"kind\":\"step\"}"),
        std::string("{\"step\":1}"), std::string("{\"kind\":3,\"step\":1}"),
        std::string("{\"kind\":\"step\",\"step\":1.5}"),
        std::string("{\"kind\":\"step\",\"step\":18446744073709551615}"),
        std::string("{\"kind\":\"step\",\"step\":1,\"loss\":\"x\"}"), std::string(3, '\0'), deep}) {
    CAPTURE(bad.substr(0, 60));
    replace_text_file(folder.path("m"), good + bad + "\n" + late);
    const Metrics metrics = read_metrics(folder.path("m"));
    CHECK(metrics.events.size() == 2);
    CHECK(metrics.steps.empty());
    CHECK(metrics.foreign == 1);
    CHECK(metrics.first_foreign.starts_with("line 2: "));
    drop_after(folder.path("m"), 8);
    const std::string left = read_text_file(folder.path("m"));
    CHECK(left.starts_with(good));
    CHECK(left.find(late) == std::string::npos);
    if (bad != "{\"step\":1}" && !bad.starts_with("{\"kind\":\"step\",\"step\":1844"))
      CHECK(left == good + bad + "\n");
  }
}

TEST_CASE("metrics: a line is read alike in the form in which it is written and in any other") {
  const TempFolder folder;
  {
    MetricsWriter writer(folder.path("m"));
    writer.write(StepRecord{7, 2.5e-300, kNotMeasured, -0.75, 12345.5, std::int64_t{1} << 62,
                            std::int64_t{1} << 61, 81.25, 1840, 4096, 3});
  }
  const std::string plain = read_text_file(folder.path("m"));
  std::string other = plain;
  other.insert(1, " ");
  replace_text_file(folder.path("m"), plain + other);
  const Metrics m = read_metrics(folder.path("m"));
  REQUIRE(m.steps.size() == 2);
  for (const StepRecord& s : m.steps) {
    CHECK(s.step == 7);
    CHECK(s.loss == 2.5e-300);
    CHECK(std::isnan(s.learning_rate));
    CHECK(s.grad_norm == -0.75);
    CHECK(s.memory_bytes == std::int64_t{1} << 62);
    CHECK(s.resident_bytes == std::int64_t{1} << 61);
    CHECK(s.graph_depth == 3);
  }
}

TEST_CASE("metrics: the progress of the steps after one comes back in order") {
  const TempFolder folder;
  CHECK(progress_after(folder.path("none"), 0).empty());
  {
    MetricsWriter writer(folder.path("m"));
    for (const std::int64_t step : {1, 2, 3, 5}) {
      StepRecord record = step_at(step, 2);
      if (step != 3) record.progress = static_cast<double>(step) / 7;
      writer.write(record);
      writer.write(EventRecord{step, "said"});
    }
  }
  const std::vector<StepProgress> after = progress_after(folder.path("m"), 1);
  REQUIRE(after.size() == 3);
  CHECK(after[0].step == 2);
  CHECK(after[0].progress == 2.0 / 7);
  CHECK(std::isnan(after[1].progress));
  CHECK(after[2].step == 5);
  CHECK(after[2].progress == 5.0 / 7);
  // They are not lost with the lines of their steps, however often a run is killed.
  for (int time = 0; time < 3; ++time) {
    MetricsSummary kept;
    drop_metrics_after(folder.path("m"), 1, kept, progress_after(folder.path("m"), 1));
    CHECK(kept.metrics().steps.size() == 1);
    CHECK(kept.metrics().foreign == 0);
    const std::vector<StepProgress> again = progress_after(folder.path("m"), 1);
    REQUIRE(again.size() == 3);
    CHECK(again[0].progress == 2.0 / 7);
    CHECK(std::isnan(again[1].progress));
    CHECK(again[2].step == 5);
  }
  CHECK(progress_after(folder.path("m"), 5).empty());
}

TEST_CASE("metrics: of very many records those at even distances stay and what stands out") {
  MetricsSummary summary;
  constexpr std::int64_t kSteps = 300'000;
  for (std::int64_t step = 1; step <= kSteps; ++step) {
    StepRecord record = step_at(step, step == 123'457 ? 50 : 2);
    record.grad_norm = step == 200'003 ? 1e6 : 1;
    record.memory_bytes = step == 77'777 ? 99 : 7;
    if (step == 250'001) record.loss = kNotMeasured;
    summary.add(record);
    summary.add(EvalRecord{step, "valid", step == 4'321 ? 1.0 : 2.0, 10});
    summary.add(SampleRecord{step, "text"});
    summary.add(EventRecord{step, "event"});
  }
  const Metrics m = summary.metrics();
  CHECK(m.steps.size() > 4000);
  CHECK(m.steps.size() < 9000);
  CHECK(m.evals.size() < 5000);
  CHECK(m.samples.size() < 70);
  CHECK(m.events.size() + static_cast<std::size_t>(m.earlier_events) == kSteps);
  CHECK(m.steps.front().step == 1);
  for (std::size_t i = 0; i < 20; ++i)
    CHECK(m.steps[m.steps.size() - 20 + i].step == kSteps - 19 + static_cast<std::int64_t>(i));
  for (const std::int64_t step : {123'457, 200'003, 250'001}) {
    const auto is_it = [&](const StepRecord& record) { return record.step == step; };
    CHECK((std::any_of(m.steps.begin(), m.steps.end(), is_it) ||
           std::any_of(m.peaks.begin(), m.peaks.end(), is_it)));
  }
  CHECK(
      std::any_of(m.steps.begin(), m.steps.end(), [](const StepRecord& r) { return r.memory_bytes == 99; }));
  CHECK(std::any_of(m.evals.begin(), m.evals.end(), [](const EvalRecord& e) { return e.step == 4'321; }));
  CHECK(m.evals.back().step == kSteps);
  CHECK(m.samples.front().step == 1);
  CHECK(m.samples.back().step == kSteps);
  ReportData data;
  data.metrics = m;
  const std::string page = render_report(data);
  CHECK(page.find("median of the last 20 records") != std::string::npos);
  CHECK(page.find("The last 200 of 300000 events.") != std::string::npos);
}

TEST_CASE("metrics: the file follows the umask") {
  const TempFolder folder;
  const mode_t before = ::umask(002);
  { MetricsWriter writer(folder.path("m")); }
  ::umask(before);
  CHECK(std::filesystem::status(folder.path("m")).permissions() == std::filesystem::perms(0664));
}

TEST_CASE("metrics: a missing folder is an IoError for the writer and the reader") {
  const TempFolder folder;
  CHECK_THROWS_AS(MetricsWriter(folder.path("no/m")), IoError);
  CHECK_THROWS_AS(read_metrics(folder.path("no/m")), IoError);
}

TEST_CASE("replace_text_file: a failed replacement leaves no neighbour and the target as it was") {
  const TempFolder folder;
  std::filesystem::create_directories(folder.path("target/inside"));  // a folder cannot be replaced by a file
  CHECK_THROWS_AS(replace_text_file(folder.path("target"), "text"), IoError);
  CHECK(folder.entries() == 1);
  CHECK(std::filesystem::is_directory(folder.path("target/inside")));
}

TEST_CASE("metrics: those of a run begin with what it trains, and a resumed run does not say it again") {
  const TempFolder folder;
  TrainRequest request = tiny_run(folder, "run");
  request.config.train.tensorboard = true;
  train_quietly(request);
  train_quietly(resumed(request, 8));
  const std::string lines = read_text_file(folder.path("run/metrics.jsonl"));
  CHECK(lines.starts_with("{\"kind\":\"run\",\"step\":0,\"name\":\"run\",\"model\":\""));
  CHECK(lines.find("{\"kind\":\"run\"", 1) == std::string::npos);
  const Metrics metrics = read_metrics(folder.path("run/metrics.jsonl"));
  REQUIRE(metrics.run);
  CHECK(metrics.run->task == "text");
  CHECK(metrics.run->text == request.config.data.path.text());
  CHECK(metrics.run->text_sha256.size() == 64);
  CHECK(metrics.run->parameters > 0);
  CHECK(metrics.run->state_bytes > 0);
  CHECK(metrics.run->flops_per_token > 0);
  // A file of events for each process that trained.
  const std::filesystem::directory_iterator files(folder.path("run/tensorboard"));
  CHECK(std::distance(begin(files), end(files)) == 2);
}
