// Mutations of every file that a run reads: whatever the bytes, the answer is a result or an eddy::Error. Fixed seed,
// so a failure repeats; run with the sanitizers on.
#include <doctest/doctest.h>

#include <array>
#include <filesystem>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "tensor/files/strict_json.h"
#include "tests/fuzz/mutations.h"
#include "tests/support/files.h"
#include "tests/support/tiny_run.h"
#include "train/app/reproduce/run.h"
#include "train/files/output_file.h"
#include "train/files/text_encoding.h"
#include "train/files/text_file.h"
#include "train/generate/session.h"
#include "train/record/metrics.h"
#include "train/record/metrics_summary.h"
#include "train/run/checkpoint.h"
#include "train/run/digests.h"
#include "train/run/run_folder.h"
#include "train/tasks/cifar.h"
#include "train/text/sentencepiece_tokenizer.h"
#include "train/text/text_files.h"
#include "train/text/vocabulary_training.h"

using namespace eddy;
using namespace eddy::training;
using namespace eddy::app;
using namespace eddy::test;
namespace fs = std::filesystem;

namespace {

constexpr int kMutants = 250;

std::string mutate_run_file(std::string text, Random& random) {
  static const std::array<std::string, 22> kPieces = {"{",
                                                      "}",
                                                      "[",
                                                      "]",
                                                      "\"",
                                                      ":",
                                                      ",",
                                                      "null",
                                                      "-1",
                                                      "1e400",
                                                      "99999999999999999999",
                                                      "nan",
                                                      "\\ud800",
                                                      "step-0",
                                                      "../",
                                                      "\n",
                                                      "\r",
                                                      "\xff\xfe",
                                                      "\xEF\xBB\xBF",
                                                      std::string(1, '\0'),
                                                      std::string(8, '\xff'),
                                                      std::string(4096, '[')};
  if (below(random, 6) == 0) text.resize(below(random, text.size() + 1));
  return mutate_text(std::move(text), random, kPieces);
}

// Reads mutants of a file; its own bytes come first and are read well, and stand there again at the end.
void fuzz(const std::string& file, const std::function<void()>& read) {
  CAPTURE(file);
  const std::string good = read_bytes(file);
  REQUIRE(survives(read));
  Random random(20261125);
  int accepted = 0;
  for (int i = 0; i < kMutants; ++i) {
    CAPTURE(i);
    write_bytes(file, mutate_run_file(good, random));
    accepted += survives(read) ? 1 : 0;
  }
  CHECK(accepted < kMutants);  // or the mutations test nothing
  write_bytes(file, good);
}

// A run with a state and two checkpoints.
TrainRequest run_in(const TempFolder& folder) {
  TrainRequest request = tiny_run(folder, "run");
  request.config.model.family = "staircase";
  request.config.model.model = "lstm";
  request.config.data.order = "stream";
  request.config.train.steps = 2;
  request.config.train.eval_every = 1;
  train_quietly(request);
  return request;
}

}  // namespace

TEST_CASE("no mutation of a run's files does more than raise an eddy error") {
  const TempFolder folder;
  const TrainRequest request = run_in(folder);
  const std::string run = request.run_dir, checkpoint = latest_of(run);
  const RunConfig config = load_config_of_run(run);
  // The weights of another configuration, whose sizes may be any, are not asked for.
  const auto load = [&] {
    if (!(load_config_of_run(run) == config)) return;
    const LoadedRun loaded = load_run(run);
    TaskArguments arguments;
    arguments.config = config;
    expect_data_of(loaded, arguments);
    make_task(std::move(arguments))->load(json_of_text(loaded.state.task, "state.json"), "state.json");
  };
  for (const bool digests : {true, false}) {
    if (!digests) fs::remove(checkpoint + "/digests");
    // Without digests no training goes on: there the mutant gets its own, and is read.
    const auto redigest = [&] {
      if (!digests) write_digests(checkpoint);
    };
    fuzz(checkpoint + "/state.json", load);
    fuzz(checkpoint + "/model.safetensors", load);
    fuzz(checkpoint + "/recurrent.safetensors", [&] {
      redigest();
      static_cast<void>(load_recurrent(checkpoint));
    });
    const LoadedRun loaded = load_run(run);
    fuzz(checkpoint + "/optimizer.safetensors", [&] {
      redigest();
      load_optimizer(checkpoint, *make_optimizer(loaded.model->params(), config.train));
    });
    if (digests) fuzz(checkpoint + "/digests", load);
  }
  fuzz(run + "/checkpoints/latest", [&] { static_cast<void>(find_checkpoint(run, "latest")); });
  fuzz(run + "/checkpoints/best", [&] { static_cast<void>(find_checkpoint(run, "best")); });
  fuzz(run + "/config.json", [&] { static_cast<void>(load_run_config(run + "/config.json")); });
  fuzz(run + "/tokenizer.json", [&] {
    static_cast<void>(tokenizer_from_json(read_text_file(run + "/tokenizer.json"), "tokenizer.json"));
  });
}

TEST_CASE("no mutation of metrics does more than raise an eddy error or leave lines out") {
  const TempFolder folder;
  const std::string metrics = run_in(folder).run_dir + "/metrics.jsonl", good = read_bytes(metrics);
  Random random(20261126);
  for (int i = 0; i < kMutants; ++i) {
    CAPTURE(i);
    write_bytes(metrics, mutate_run_file(good, random));
    survives([&] {
      static_cast<void>(read_metrics(metrics));
      MetricsSummary kept;
      drop_metrics_after(metrics, 1, kept);
      MetricsWriter(metrics).write(EventRecord{1, "an event"});
    });
  }
}

TEST_CASE("no mutation of a session does more than raise an eddy error") {
  const TempFolder folder;
  const LoadedRun run = load_run(run_in(folder).run_dir);
  Session session;
  generate(*run.model, *run.tokenizer, session.text, {}, 3, session.sample);
  const std::string file = folder.path("text.session");
  save_session(file, *run.model, session);
  fuzz(file, [&] { static_cast<void>(load_session(file, *run.model)); });
  fuzz(file, [&] {
    static_cast<void>(session_problem(file));
    refuse_foreign_file("fuzz", file, kSessionFile);
  });
}

TEST_CASE("no mutation of a result does more than raise an eddy error") {
  const TempFolder folder;
  ReproduceTable table;
  table.folder = "table";
  ReproduceRow row;
  row.name = "row";
  row.weights_of = "another row";
  const nlohmann::json result{{"config", to_json(RunConfig())},
                              {"seconds", 1.5},
                              {"values", {{"loss", 1.25}, {"step_ms", nullptr}}},
                              {"ended", "finished"},
                              {"step", 2},
                              {"measured_step", 2},
                              {"tokens", 128},
                              {"parameters", 4096},
                              {"device", "cpu"},
                              {"measured", "valid"},
                              {"remarks", {"a remark"}}};
  const std::string file = folder.write("table/row/result.json", text_with_digest(result, 1));
  const auto read = [&] { static_cast<void>(row_state(table, row, folder.path())); };
  fuzz(file, read);
  // What stands behind the digest, where it is right.
  fuzz(file, [&] {
    const JsonResult mutated = parse_strict_json(read_text_file(file));
    if (mutated.ok() && mutated.value.is_object())
      replace_text_file(file, text_with_digest(mutated.value, 1));
    read();
  });
}

TEST_CASE("no mutation of a vocabulary's file does more than raise an eddy error") {
  const TempFolder folder;
  const std::string text = generate_stories(1, 20000);
  VocabularyOptions options;
  options.size = 512;
  const std::string file =
      folder.write("v.model", train_vocabulary({{"a.txt", folder.write("a.txt", text)}}, options).model);
  fuzz(file, [&] {
    const std::unique_ptr<Tokenizer> tokenizer = read_sentencepiece(file);
    TokenCover cover;
    const auto ids = tokenizer->encode(text.substr(0, 300) + "\xff \U0001f600\n", cover);
    static_cast<void>(tokenizer->decode(ids));
  });
}

TEST_CASE("no mutation of data does more than raise an eddy error") {
  const TempFolder folder;
  std::string wide = "\xff\xfe";
  for (const char c : generate_stories(1, 300)) wide += c + std::string(1, '\0');
  const std::string text = folder.write("data/a.txt", wide);
  fuzz(text, [&] { static_cast<void>(read_text(folder.path("data"))); });
  const std::string images = folder.write("batch.bin", std::string(3 * 3073, '\3'));
  fuzz(images, [&] {
    GreyImages read;
    read_cifar_file(images, read);
  });
}
