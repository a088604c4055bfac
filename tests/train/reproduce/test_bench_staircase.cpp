// The benchmark of the staircase: which points there are, that each is trained once and kept, and that text,
// JSON and page hold the numbers.
#include "train/reproduce/staircase_table.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <csignal>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "autograd/tape.h"
#include "models/model.h"
#include "ops/loss/cross_entropy.h"
#include "tensor/base/error.h"
#include "tests/support/errors.h"
#include "tests/support/files.h"
#include "tests/support/processes.h"
#include "tests/support/threads.h"
#include "train/run/metrics.h"
#include "train/text/stories/story_generator.h"

namespace {

using namespace eddy;
using namespace eddy::test;

std::vector<std::string> names_of(const StaircaseBench& bench) {
  std::vector<std::string> names;
  for (const StaircaseBenchPoint& point : bench.points) names.push_back(point.name);
  return names;
}

StaircaseBenchOptions tiny(const TempFolder& folder) {
  StaircaseBenchOptions options;
  options.models = {"transformer_xl", "staircase"};
  options.n = {2};
  options.c = {4};
  options.data = folder.write("text.txt", generate_stories(3, 3000));
  options.steps = 3;
  options.batch = 2;
  options.segment = 8;
  options.dim = 8;
  options.layers = 1;
  options.heads = 2;
  options.runs = folder.path("runs");
  return options;
}

struct Told {
  StaircaseBench bench;
  std::string text;
  int kept = 0;
};

Told bench_quietly(const StaircaseBenchOptions& options) {
  const OneThread one;
  const Quiet quiet;
  Told told;
  told.bench = bench_staircase(
      options, [&](std::string_view text) { told.text += text; },
      [&](const StaircaseBench&) { ++told.kept; });
  return told;
}

TEST_CASE("bench staircase takes every N with every C and leaves out what is cached nowhere") {
  StaircaseBenchOptions options;
  options.models = {"transformer_xl", "staircase", "cached_staircase", "universal"};
  options.n = {1, 2};
  options.c = {16, 32};
  CHECK(names_of(plan_staircase_bench(options)) ==
        std::vector<std::string>{"transformer_xl", "staircase-n1-c16", "staircase-n1-c32", "staircase-n2-c16",
                                 "staircase-n2-c32", "cached_staircase-n2-c16", "cached_staircase-n2-c32",
                                 "universal-n1", "universal-n2"});
  for (const StaircaseBenchPoint& point : plan_staircase_bench(options).points) {
    CHECK(!point.done);
    if (point.c > 0) CHECK(point.config.model.span == point.n * point.c);
    if (point.model == "cached_staircase") CHECK(point.config.model.cache_after == 1);
    if (point.model == "universal") CHECK(point.config.model.layers == 1);
  }
}

TEST_CASE("bench staircase trains each point once and shows its numbers") {
  const TempFolder folder;
  StaircaseBenchOptions options = tiny(folder);
  const Told first = bench_quietly(options);
  REQUIRE(first.bench.points.size() == 2);
  CHECK(first.kept == 2);
  CHECK(!first.bench.interrupted);
  for (const StaircaseBenchPoint& point : first.bench.points) {
    CAPTURE(point.name);
    CHECK(point.done);
    CHECK(point.steps == 3);
    CHECK(point.bits > 0);
    CHECK(point.bits < 8);
    CHECK(point.best_ms > 0);
    CHECK(point.best_ms <= point.batch_ms);
    CHECK(point.saved_bytes > 0);
    CHECK(point.peak_bytes >= point.saved_bytes);
  }
  // A larger grid goes on from what is there.
  options.n = {1, 2};
  const Told second = bench_quietly(options);
  REQUIRE(names_of(second.bench) ==
          std::vector<std::string>{"transformer_xl", "staircase-n1-c4", "staircase-n2-c4"});
  CHECK(second.bench.points[2].bits == first.bench.points[1].bits);
  CHECK(contains(second.text, "== 2 of 3, staircase-n1-c4 =="));
  CHECK(!contains(second.text, "== 1 of 3"));
  CHECK(!contains(second.text, "== 3 of 3"));

  const std::string text = to_text(second.bench), page = to_html(second.bench, {"a machine <&>"});
  for (const char* part : {"bits/char", "x 1.00", "Transformer-XL, 2x deep, 218M", "by formula"})
    CHECK(contains(text, part));
  for (const char* part : {"<svg", "staircase, N 2", "Memory kept", "&lt;&amp;&gt;", "kept/needed"})
    CHECK(contains(page, part));
  const nlohmann::json json = to_json(second.bench);
  CHECK(json["points"].size() == 3);
  CHECK(json["points"][2]["bits_per_character"] == second.bench.points[2].bits);
  CHECK(json["points"][2]["config"]["model"]["steps"] == 2);
  // Transformer-XL sees the same keys in both counts; the staircase's formula takes the causal half too.
  CHECK(json["points"][0]["flops_per_token"] == json["points"][0]["formula_flops_per_token"]);
  CHECK(json["points"][2]["flops_per_token"] < json["points"][2]["formula_flops_per_token"]);
  CHECK(json["points"][2]["kept_bytes_per_token"] > json["points"][2]["needed_bytes_per_token"]);
  CHECK(json["paper"][0]["perplexity"] == 26.5);

  options.steps = 2;
  CHECK(contains(error_of<ConfigError>([&] { static_cast<void>(bench_quietly(options)); }),
                 "was trained for 3 steps, more than --steps 2"));

  options.dim = 16;
  const std::string other = error_of<ConfigError>([&] { static_cast<void>(bench_quietly(options)); });
  CHECK(contains(other, "another configuration"));
  CHECK(other.starts_with("bench staircase: "));
}

TEST_CASE("bench staircase goes on with a point that was killed") {
  const TempFolder folder;
  StaircaseBenchOptions options = tiny(folder);
  options.models = {"staircase"};
  options.steps = 1500;
  const std::string run = options.runs + "/bench-staircase/staircase-n2-c4";
  Child child([&] { return bench_quietly(options).bench.interrupted ? 1 : 0; });
  REQUIRE(wait_until([&] { return std::filesystem::exists(run + "/checkpoints/latest"); }));
  child.signal(SIGKILL);
  CHECK(child.wait() == -SIGKILL);
  const Told told = bench_quietly(options);
  REQUIRE(told.bench.points.size() == 1);
  CHECK(told.bench.points[0].steps == 1500);
  bool resumed = false;
  for (const EventRecord& event : read_metrics(run + "/metrics.jsonl").events)
    resumed = resumed || contains(event.text, "resumed at step");
  CHECK(resumed);
}

TEST_CASE("bench staircase shows points that were not run") {
  const std::string text = to_text(plan_staircase_bench({}));
  CHECK(contains(text, "not run"));
  CHECK(contains(to_html(plan_staircase_bench({}), {}), "not run"));
}

TEST_CASE("bench staircase refuses lists and models that make no sense") {
  const auto error = [](auto&& change) {
    StaircaseBenchOptions options;
    change(options);
    return error_of<ConfigError>([&] { static_cast<void>(plan_staircase_bench(options)); });
  };
  CHECK(contains(error([](auto& o) { o.n = {2, 2}; }), "--n 2,2"));
  CHECK(contains(error([](auto& o) { o.c = {0}; }), "--c 0"));
  CHECK(contains(error([](auto& o) { o.c = {}; }), "--c"));
  CHECK(contains(error([](auto& o) { o.c = {48}; }), "model.chunk must divide the segment"));
  CHECK(contains(error([](auto& o) { o.models = {"staircas"}; }), "nearest: staircase"));
  CHECK(contains(error([](auto& o) { o.models = {}; }), "no models"));
  CHECK(contains(error([](auto& o) { o.models = {"staircase", "staircase"}; }), "each once"));
  CHECK(contains(error([](auto& o) { o.tokenizer = "words"; }), "char or byte"));
  CHECK(contains(error([](auto& o) { o.seed = -1; }), "--seed -1"));
  CHECK(contains(error([](auto& o) {
                   o.models = {"cached_staircase"};
                   o.n = {1};
                 }),
                 "nothing to measure"));
}

// Sizes of which none divides another.
ModelConfig odd_sizes(const std::string& model) {
  ModelConfig c;
  c.family = "staircase";
  c.model = model;
  c.vocab = 13;
  c.n_out = 11;
  c.dim = 10;
  c.heads = 3;
  c.head_dim = 5;
  c.mlp_dim = 17;
  c.layers = model == "universal" ? 1 : 2;
  c.repeats = 3;
  c.chunk = 3;
  c.steps = 4;
  c.cache_after = model == "staircase" ? 0 : 2;
  c.span = model.ends_with("staircase") ? 12 : 5;
  c.segment = c.context = model.ends_with("staircase") ? 15 : 7;
  return c;
}

// Multiply-adds of one segment of 5 chunks in the middle of a text, counted row by row and key by key.
double counted_macs(std::int64_t passes, bool all_keys, bool frozen_again) {
  const std::int64_t chunks = 5, chunk = 3, steps = 4, width = 10, inner = 15, mlp = 17, layers = 2;
  std::int64_t queries = 0, pairs = 0, projected = 0;
  for (std::int64_t row = 0; row < chunks + passes - 1; ++row)
    for (std::int64_t j = row - passes + 1; j <= std::min(row, chunks - 1); ++j) {
      if (j < 0) {  // of the carried state: keys and values alone
        projected += chunk;
        continue;
      }
      for (std::int64_t i = 0; i < chunk; ++i) {
        ++queries;
        for (std::int64_t seen = row - steps + 1; seen <= (all_keys ? row : j); ++seen)
          pairs += seen < j || all_keys ? chunk : i + 1;
      }
    }
  const std::int64_t frozen = chunks * chunk * (passes == steps ? 0 : frozen_again ? steps - passes : 1);
  return static_cast<double>(layers * (queries * (4 * width * inner + 2 * width * mlp) + 3 * inner * pairs +
                                       (projected + frozen) * 2 * width * inner) +
                             chunks * chunk * width * 11);
}

TEST_CASE("a token's work is what its rows and keys add up to and the formula takes full windows") {
  for (const std::int64_t passes : {4, 2}) {
    CAPTURE(passes);
    const StaircaseCosts costs = staircase_costs(odd_sizes(passes == 4 ? "staircase" : "cached_staircase"));
    CHECK(std::abs(costs.flops - 2 * counted_macs(passes, false, false) / 15) <= 1e-9 * costs.flops);
    CHECK(std::abs(costs.formula_flops - 2 * counted_macs(passes, true, true) / 15) <=
          1e-9 * costs.formula_flops);
  }
  // Every query sees 5 keys; keys and values of the 5 memories are made again in a segment of 7.
  const double layer = 8 * 10 * 15 + 4 * 10 * 17 + 6 * 5 * 15, memory = 4 * 10 * 15 * 5 / 7.0, head = 220;
  for (const std::string model : {"transformer_xl", "ladder", "universal"}) {
    CAPTURE(model);
    const StaircaseCosts costs = staircase_costs(odd_sizes(model));
    const double calls = model == "transformer_xl" ? 2 : model == "ladder" ? 6 : 3;
    CHECK(std::abs(costs.formula_flops - (calls * (layer + memory) + head)) <= 1e-9 * costs.formula_flops);
    CHECK(std::abs(costs.flops - costs.formula_flops) <= 1e-9 * costs.flops);
  }
  ModelConfig feedback = odd_sizes("feedback");
  CHECK(staircase_costs(feedback).formula_flops == 2 * layer + head);
  CHECK(staircase_costs(feedback).flops == 2 * layer + head + 2 * 3 * 10);  // three states are mixed
  feedback.feedback_memory = "last";
  CHECK(staircase_costs(feedback).flops == 2 * layer + head);
  CHECK(!error_of<ConfigError>([] { static_cast<void>(staircase_costs(odd_sizes("lstm"))); }).empty());
}

TEST_CASE("the graph keeps what the backward pass of a token needs and little more") {
  for (const char* name :
       {"staircase", "cached_staircase", "transformer_xl", "ladder", "universal", "feedback"})
    for (const std::int64_t passes : {1, 2}) {
      CAPTURE(name);
      CAPTURE(passes);
      ModelConfig config = odd_sizes(name);
      config.dim = 48;
      config.heads = 4;
      config.head_dim = 12;
      config.mlp_dim = 150;
      config.span = config.steps * config.chunk;
      config.segment = config.context = 15;
      if (config.model == "cached_staircase") config.cache_after = passes;
      config.repeats = passes;
      const auto model = make_model(config);
      model->params().initialize(1);
      ForwardInput input;
      input.tokens = Tensor::zeros({3, 15}, Dtype::i64);
      const std::int64_t before = graph_stats().saved_bytes;
      const Tensor loss = cross_entropy(model->forward(input).logits, input.tokens);
      const double kept =
          static_cast<double>(graph_stats().saved_bytes - before - model->params().values().bytes()) /
          (3 * 15);
      const double ratio = kept / staircase_costs(config).needed_bytes;
      CAPTURE(ratio);
      CHECK(ratio > 1);
      CHECK(ratio < 1.35);
    }
}

}  // namespace
