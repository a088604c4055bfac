// Whole runs: what they learn, what they leave behind, that they go on to the bit, and what they refuse.
#include "train/config/run_config.h"
#include "train/run/trainer.h"

#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "autograd/tape.h"
#include "models/optimizer/adam.h"
#include "models/weights.h"
#include "ops/core/warnings.h"
#include "tensor/base/error.h"
#include "tensor/files/safetensors.h"
#include "tests/support/errors.h"
#include "tests/support/files.h"
#include "tests/support/threads.h"
#include "tests/support/tiny_run.h"
#include "tests/train/run/runs.h"
#include "train/record/metrics.h"
#include "train/run/checkpoint.h"
#include "train/run/digests.h"

namespace {

using namespace eddy;
using namespace eddy::training;
using namespace eddy::test;
namespace fs = std::filesystem;

// Whether two checkpoints hold the same parameters and moments, byte for byte.
bool same_bytes(const std::string& a, const std::string& b) {
  return bytes_of(a, "model.safetensors") == bytes_of(b, "model.safetensors") &&
         bytes_of(a, "optimizer.safetensors") == bytes_of(b, "optimizer.safetensors");
}

std::vector<double> values_of(const std::string& checkpoint) {
  std::vector<double> all;
  for (const auto& [name, tensor] : load_safetensors(checkpoint + "/model.safetensors"))
    for (const double value : raw::cast(tensor, Dtype::f64).to_vector<double>()) all.push_back(value);
  return all;
}

}  // namespace

TEST_CASE("train: a text that repeats itself is learned by heart") {
  const OneThread one;
  for (const std::string model : {"unit_forget", "regular"}) {
    CAPTURE(model);
    const TempFolder folder;
    TrainRequest request = tiny_run(folder, "run");
    std::string text;
    for (int i = 0; i < 100; ++i) text += "the cat sat; ";
    request.config.data.path = folder.write("cat.txt", text);
    request.config.model.model = model;
    request.config.model.dropout = 0;
    request.config.train.steps = 100;
    request.config.train.learning_rate = 1e-2;
    CHECK(train_quietly(request) == TrainEnd::finished);
    const Metrics metrics = metrics_of(request.run_dir);
    REQUIRE(metrics.steps.size() == 100);
    CHECK(metrics.steps.front().loss > 2);    // ln 10 is 2.3
    CHECK(metrics.steps.back().loss <= 0.3);  // only the first characters of a window are open
  }
}

TEST_CASE("train: a run leaves its config and tokenizer and metrics and report and checkpoint") {
  const OneThread one;
  const TempFolder folder;
  TrainRequest request = tiny_run(folder, "run");
  request.config.train.eval_every = 2;
  request.config.train.sample_every = 3;
  request.config.train.sample_tokens = 20;
  CHECK(train_quietly(request) == TrainEnd::finished);

  RunConfig written = load_run_config(request.run_dir + "/config.json");
  CHECK(written.model.vocab ==
        tokenizer_from_json(read_text_file(request.run_dir + "/tokenizer.json"))->vocab_size());
  written.model.vocab = 0;
  CHECK(written == request.config);

  const Metrics metrics = metrics_of(request.run_dir);
  REQUIRE(metrics.steps.size() == 6);
  for (std::size_t i = 0; i < 6; ++i) {
    const StepRecord& step = metrics.steps[i];
    CHECK(step.step == static_cast<std::int64_t>(i) + 1);
    CHECK(std::isfinite(step.loss));
    CHECK(step.learning_rate == 1e-3);
    CHECK(step.grad_norm > 0);
    CHECK(step.tokens_per_second > 0);
    CHECK(step.ms > 0);
    CHECK(step.memory_bytes > 0);
    CHECK(step.graph_nodes > 0);
    CHECK(step.saved_bytes > 0);
    CHECK(step.tokens == step.step * 4 * 16);
    CHECK(step.seconds > 0);
  }
  std::vector<std::int64_t> evaluated;
  for (const EvalRecord& eval : metrics.evals) {
    evaluated.push_back(eval.step);
    CHECK(std::isfinite(eval.loss));
    CHECK(eval.tokens == 2 * 4 * 16);
  }
  CHECK(evaluated == std::vector<std::int64_t>{0, 2, 4, 6});
  CHECK(metrics.samples.size() == 3);  // at the start, at step 3 and at the end

  const std::string report = read_text_file(request.run_dir + "/report.html");
  for (const char* part : {"<html", "unit_forget", "eddy train tiny.toml", "</html>"})
    CHECK_MESSAGE(contains(report, part), part);

  const LoadedRun loaded = load_run(request.run_dir);
  CHECK(loaded.step == 6);
  CHECK(loaded.state.tokens == 6 * 4 * 16);
  CHECK(loaded.checkpoint.filename() == "step-6");
}

TEST_CASE("train: a resumed run equals an unbroken one to the bit") {
  for (const std::string model : {"unit_forget", "regular"})
    for (const std::int64_t threads : {1, 2}) {
      CAPTURE(model);
      CAPTURE(threads);
      const Threads keep(thread_count());
      const TempFolder folder;
      TrainRequest whole = tiny_run(folder, "whole"), part = tiny_run(folder, "part");
      for (TrainRequest* request : {&whole, &part}) {
        request->config.model.model = model;
        request->config.model.layers = 2;
        request->config.train.threads = threads;
        request->config.train.accumulate = 2;
        request->config.train.schedule = "constant";
        request->config.train.warmup = 3;
        request->config.train.eval_every = 5;
      }
      whole.config.train.steps = 20;
      part.config.train.steps = 10;
      CHECK(train_quietly(whole) == TrainEnd::finished);
      CHECK(train_quietly(part) == TrainEnd::finished);
      CHECK(!same_bytes(latest_of(whole.run_dir), latest_of(part.run_dir)));
      CHECK(train_quietly(resumed(part, 20)) == TrainEnd::finished);
      CHECK(same_bytes(latest_of(whole.run_dir), latest_of(part.run_dir)));

      const Metrics a = metrics_of(whole.run_dir), b = metrics_of(part.run_dir);
      REQUIRE(a.steps.size() == 20);
      REQUIRE(b.steps.size() == 20);
      for (std::size_t i = 0; i < 20; ++i) CHECK(a.steps[i].loss == b.steps[i].loss);
      CHECK(contains(events_of(part.run_dir), "resumed at step 10"));
    }
}

TEST_CASE("train: the number of threads changes no bit") {
  const Threads keep(thread_count());
  const TempFolder folder;
  std::vector<std::string> bytes;
  for (const std::int64_t threads : {1, 2, 3}) {
    TrainRequest request = tiny_run(folder, "run" + std::to_string(threads));
    request.config.train.threads = threads;
    request.config.train.steps = 3;
    CHECK(train_quietly(request) == TrainEnd::finished);
    bytes.push_back(bytes_of(latest_of(request.run_dir), "model.safetensors"));
  }
  CHECK(bytes[1] == bytes[0]);
  CHECK(bytes[2] == bytes[0]);
}

TEST_CASE("train: two batches of eight rows give the step of one batch of sixteen") {
  const OneThread one;
  const TempFolder folder;
  std::vector<std::vector<double>> values;
  for (const std::int64_t accumulate : {1, 2}) {
    TrainRequest request = tiny_run(folder, "run" + std::to_string(accumulate));
    request.config.model.dropout = 0;  // micro-batches draw masks of their own
    request.config.train.precision = "f64";
    request.config.train.batch = 16 / accumulate;
    request.config.train.accumulate = accumulate;
    CHECK(train_quietly(request) == TrainEnd::finished);
    values.push_back(values_of(latest_of(request.run_dir)));
  }
  REQUIRE(values[0].size() == values[1].size());
  double error = 0;  // a sum, so that a NaN shows
  for (std::size_t i = 0; i < values[0].size(); ++i) error += std::abs(values[0][i] - values[1][i]);
  // Gradients differ by 1e-17; where they are that small, Adam divides by no less than eps = 1e-8 and moves
  // by 1e-3 of it.
  CHECK(error <= 1e-11 * static_cast<double>(values[0].size()));
}

TEST_CASE("train: nothing of the tape stays behind and memory is flat from step to step") {
  const OneThread one;
  const TempFolder folder;
  TrainRequest request = tiny_run(folder, "run");
  request.config.train.steps = 200;
  const GraphStats before = graph_stats();
  CHECK(train_quietly(request) == TrainEnd::finished);
  CHECK(graph_stats().saved_bytes == before.saved_bytes);
  CHECK(graph_stats().nodes == before.nodes);
  const Metrics metrics = metrics_of(request.run_dir);
  REQUIRE(metrics.steps.size() == 200);
  for (const StepRecord& step : metrics.steps) {
    CHECK(step.saved_bytes == metrics.steps.front().saved_bytes);
    CHECK(step.graph_nodes == metrics.steps.front().graph_nodes);
    CHECK(step.graph_depth == metrics.steps.front().graph_depth);
  }
  CHECK(metrics.steps.back().memory_bytes == metrics.steps[2].memory_bytes);
}

TEST_CASE("train: the last checkpoints and the best one are kept") {
  const OneThread one;
  const TempFolder folder;
  TrainRequest request = tiny_run(folder, "run");
  TrainConfig& t = request.config.train;
  t.steps = 20;
  t.checkpoint_every = 2;
  t.eval_every = 4;
  t.keep = 3;
  t.learning_rate = 0.3;  // far too large: the validation loss goes up and down
  CHECK(train_quietly(request) == TrainEnd::finished);

  std::int64_t best_step = -1;
  double best = std::numeric_limits<double>::infinity(), first = 0;
  for (const EvalRecord& eval : metrics_of(request.run_dir).evals) {
    if (eval.step == 0) first = eval.loss;
    if (eval.loss < best) {
      best = eval.loss;
      best_step = eval.step;
    }
  }
  CAPTURE(first);
  const LoadedRun latest = load_run(request.run_dir);
  CHECK(latest.step == 20);
  CHECK(latest.state.best_step == best_step);
  CHECK(latest.state.best_loss == best);
  std::vector<std::string> expected{"latest", "step-16", "step-18", "step-20"};
  if (best_step > 0) {
    CHECK(load_run(request.run_dir, Dtype::f32, "best").step == best_step);
    expected.emplace_back("best");
    if (best_step < 16) expected.push_back("step-" + std::to_string(best_step));
  }
  std::sort(expected.begin(), expected.end());
  CHECK(checkpoints_of(request.run_dir) == expected);
}

TEST_CASE("train: a best checkpoint that is old stays when newer ones go") {
  const OneThread one;
  const TempFolder folder;
  TrainRequest request = tiny_run(folder, "run");
  TrainConfig& t = request.config.train;
  t.steps = 4;
  t.eval_every = 4;
  t.checkpoint_every = 1;
  t.keep = 1;
  CHECK(train_quietly(request) == TrainEnd::finished);
  REQUIRE(load_run(request.run_dir, Dtype::f32, "best").step == 4);
  TrainRequest worse = resumed(request, 12);  // moves by 10 in a step: worse for sure
  worse.config.train.learning_rate = 10;
  CHECK(train_quietly(worse) == TrainEnd::finished);
  // The loss of step 5 is that of the weights of step 4, so these two are the last good ones.
  CHECK(checkpoints_of(request.run_dir) ==
        std::vector<std::string>{"best", "latest", "step-12", "step-4", "step-5"});
  CHECK(load_run(request.run_dir, Dtype::f32, "best").step == 4);
  CHECK(load_run(request.run_dir).state.best_step == 4);
}

TEST_CASE("train: init-from starts from the parameters of a run with fresh steps and moments") {
  const OneThread one;
  const TempFolder folder;
  const TrainRequest teacher = tiny_run(folder, "teacher");
  CHECK(train_quietly(teacher) == TrainEnd::finished);
  TrainRequest request = tiny_run(folder, "run");
  request.init_from = teacher.run_dir;
  request.config.model.dropout = 0.3;  // may differ
  request.config.train.learning_rate = 0;
  request.config.train.steps = 2;
  // Other text with fewer characters: the tokenizer is the teacher's.
  request.config.data.path = folder.write("short.txt", std::string(generate_stories(3, 300)));
  CHECK(train_quietly(request) == TrainEnd::finished);
  CHECK(bytes_of(latest_of(request.run_dir), "model.safetensors") ==
        bytes_of(latest_of(teacher.run_dir), "model.safetensors"));
  CHECK(load_run(request.run_dir).step == 2);
  CHECK(load_safetensors(latest_of(request.run_dir) + "/optimizer.safetensors").at("steps").item_int() == 2);
  CHECK(read_text_file(request.run_dir + "/tokenizer.json") ==
        read_text_file(teacher.run_dir + "/tokenizer.json"));
}

TEST_CASE("train: bad steps are skipped and named and end the run when there are too many") {
  const OneThread one;
  const TempFolder folder;
  const TrainRequest teacher = tiny_run(folder, "teacher");
  CHECK(train_quietly(teacher) == TrainEnd::finished);
  const std::string weights = latest_of(teacher.run_dir) + "/model.safetensors";
  auto tensors = load_safetensors(weights);
  tensors.at("layers.0.mlp.up.weight").mutable_data<float>()[3] = std::numeric_limits<float>::quiet_NaN();
  save_safetensors(weights, tensors);
  write_digests(latest_of(teacher.run_dir));

  for (const std::int64_t allowed : {0, 3}) {
    CAPTURE(allowed);
    TrainRequest request = tiny_run(folder, "run" + std::to_string(allowed));
    request.init_from = teacher.run_dir;
    request.config.train.max_bad_steps = allowed;
    request.config.train.steps = 50;
    request.config.train.log_every = 1000;
    request.config.train.sample_tokens = 5;
    CHECK(train_quietly(request) == TrainEnd::too_many_bad_steps);
    const std::int64_t tried = std::max<std::int64_t>(allowed, 1);
    const LoadedRun loaded = load_run(request.run_dir);
    CHECK(loaded.step == tried);
    const auto saved = load_safetensors(latest_of(request.run_dir) + "/model.safetensors");
    for (const auto& [name, tensor] : saved) {
      CAPTURE(name);
      std::vector<float> was = tensors.at(name).to_vector<float>(), is = tensor.to_vector<float>();
      if (name == "layers.0.mlp.up.weight") was[3] = is[3] = 0;
      CHECK(was == is);
    }
    CHECK(load_safetensors(latest_of(request.run_dir) + "/optimizer.safetensors").at("steps").item_int() ==
          0);
    const std::string events = events_of(request.run_dir);
    CHECK(contains(events,
                   "step 0 skipped: the loss is not finite; parameter layers.0.mlp.up.weight holds a NaN"));
    CHECK(contains(events, "no sample at step 0: sample_token: logit 0 of"));
    CHECK(contains(events, "stopped: " + std::to_string(tried)));
    CHECK(metrics_of(request.run_dir).steps.size() ==
          static_cast<std::size_t>(tried));  // bad steps are always logged
    CHECK(fs::exists(request.run_dir + "/report.html"));
  }
}

TEST_CASE("train: a run whose bad steps are allowed none goes on while steps are good") {
  const OneThread one;
  const TempFolder folder;
  TrainRequest request = tiny_run(folder, "run");
  request.config.train.max_bad_steps = 0;
  CHECK(train_quietly(request) == TrainEnd::finished);
  CHECK(load_run(request.run_dir).step == 6);
}

TEST_CASE("train: the minutes end a run with a checkpoint that goes on to the bit") {
  const OneThread one;
  const TempFolder folder;
  TrainRequest request = tiny_run(folder, "run"), whole = tiny_run(folder, "whole");
  request.config.train.minutes = 1e-9;
  CHECK(train_quietly(request) == TrainEnd::time_over);
  CHECK(load_run(request.run_dir).step == 0);
  CHECK(contains(events_of(request.run_dir), "stopped after"));
  TrainRequest rest = resumed(request, 6);
  rest.config.train.minutes = 0;
  CHECK(train_quietly(rest) == TrainEnd::finished);
  CHECK(train_quietly(whole) == TrainEnd::finished);
  CHECK(same_bytes(latest_of(request.run_dir), latest_of(whole.run_dir)));
}

TEST_CASE("train: a folder or file that exists is refused and stays as it is") {
  const TempFolder folder;
  TrainRequest request = tiny_run(folder, "run");
  fs::create_directories(request.run_dir);
  folder.write("run/notes.txt", "mine");
  CHECK(contains(error_of<IoError>([&] { train_quietly(request); }), "exists"));
  CHECK(read_text_file(folder.path("run/notes.txt")) == "mine");
  CHECK(std::distance(fs::directory_iterator(request.run_dir), {}) == 1);
  request.run_dir = folder.write("file", "mine");
  CHECK(contains(error_of<IoError>([&] { train_quietly(request); }), "exists"));
  CHECK(read_text_file(request.run_dir) == "mine");
}

TEST_CASE("train: what does not fit is refused before a folder is made") {
  const OneThread one;
  const TempFolder folder;
  const TrainRequest teacher = tiny_run(folder, "teacher");
  CHECK(train_quietly(teacher) == TrainEnd::finished);
  const TrainRequest good = tiny_run(folder, "run");
  TrainRequest bad = good;
  bad.config.model.vocab = 5;
  CHECK(contains(error_of<ConfigError>([&] { train_quietly(bad); }), "model.vocab is 5"));
  bad = good;
  bad.config.train.sequence = 10'000;
  CHECK(contains(error_of<ValueError>([&] { train_quietly(bad); }), "too few tokens"));
  bad = good;
  bad.config.data.path = folder.path("missing.txt");
  CHECK(contains(error_of<IoError>([&] { train_quietly(bad); }), "missing.txt"));
  bad = good;
  bad.config.model.heads = 3;
  CHECK(contains(error_of<ConfigError>([&] { train_quietly(bad); }), "heads"));
  bad = good;
  bad.config.model.model = "no_such_model";
  CHECK(!error_of<ConfigError>([&] { train_quietly(bad); }).empty());
  bad = good;
  bad.config.model.readout = "last";
  CHECK(contains(error_of<ConfigError>([&] { train_quietly(bad); }), "readout"));
  bad = good;
  bad.config.train.device = "cuda";
  CHECK(!error_of<DeviceError>([&] { train_quietly(bad); }).empty());
  bad = good;
  bad.init_from = folder.path("no_run");
  CHECK(contains(error_of<IoError>([&] { train_quietly(bad); }), "no_run"));
  bad = good;
  bad.init_from = teacher.run_dir;
  bad.config.model.dim = 32;
  CHECK(contains(error_of<ConfigError>([&] { train_quietly(bad); }), "dim 32 for 16"));
  bad = good;
  bad.run_dir.clear();
  bad.resume = latest_of(teacher.run_dir);
  CHECK(contains(error_of<ValueError>([&] { train_quietly(bad); }), "is a checkpoint"));
  CHECK(!fs::exists(good.run_dir));
  bad = good;
  bad.run_dir.clear();
  CHECK(contains(error_of<ValueError>([&] { train_quietly(bad); }), "no folder"));
}

TEST_CASE("train: resuming refuses what is no run") {
  const TempFolder folder;
  const TrainRequest request = tiny_run(folder, "run");
  CHECK(contains(error_of<IoError>([&] { train_quietly(resumed(request, 10)); }), "is not a folder"));
  fs::create_directories(request.run_dir);
  CHECK(contains(error_of<IoError>([&] { train_quietly(resumed(request, 10)); }), "holds no checkpoint"));
}

TEST_CASE("train: a damaged checkpoint is an error that names the file") {
  const OneThread one;
  const TempFolder folder;
  const TrainRequest request = tiny_run(folder, "run");
  CHECK(train_quietly(request) == TrainEnd::finished);
  const std::string checkpoint = latest_of(request.run_dir);
  for (const std::string name : {"model.safetensors", "optimizer.safetensors", "state.json"}) {
    CAPTURE(name);
    const std::string whole = bytes_of(checkpoint, name.c_str());
    for (const std::size_t length : {std::size_t{0}, std::size_t{7}, whole.size() / 2}) {
      CAPTURE(length);
      replace_text_file(fs::path(checkpoint) / name, whole.substr(0, length));
      CHECK(contains(error_of<Error>([&] { train_quietly(resumed(request, 10)); }), name));
    }
    fs::remove(fs::path(checkpoint) / name);
    CHECK(!error_of<Error>([&] { train_quietly(resumed(request, 10)); }).empty());
    replace_text_file(fs::path(checkpoint) / name, whole);
  }
  CHECK(train_quietly(resumed(request, 8)) == TrainEnd::finished);
}

TEST_CASE("train: a checkpoint with what its settings leave out is refused by the setting's name") {
  const OneThread one;
  const TempFolder folder;
  TrainRequest request = tiny_run(folder, "scales");
  ModelConfig& model = request.config.model;
  model.family = "block_recurrent";
  model.model = "slide";
  model.window = 8;
  model.qk_norm = false;
  CHECK(train_quietly(request) == TrainEnd::finished);
  const auto rewrite = [](const std::string& checkpoint, const char* file, const char* name,
                          const Tensor& tensor) {
    const std::string path = checkpoint + "/" + file;
    std::map<std::string, Tensor> tensors = load_safetensors(path);
    tensors.insert_or_assign(name, tensor);
    save_safetensors(path, tensors);
    write_digests(checkpoint);
  };
  rewrite(latest_of(request.run_dir), "model.safetensors", "layers.0.attn.scale", Tensor::full({2}, 1));
  const std::string resuming = error_of<FormatError>([&] { train_quietly(resumed(request, 10)); });
  const std::string loading = error_of<FormatError>([&] { static_cast<void>(load_run(request.run_dir)); });
  for (const std::string& problem : {resuming, loading}) {
    CHECK(contains(problem, "layers.0.attn.scale [2] is not in the model"));
    CHECK(contains(problem, "model.qk_norm = false"));
  }

  request = tiny_run(folder, "rows");
  ModelConfig& feedback = request.config.model;
  feedback.family = "staircase";
  feedback.model = "feedback";
  feedback.span = 4;
  feedback.feedback_self = true;
  request.config.data.order = "stream";
  CHECK(train_quietly(request) == TrainEnd::finished);
  const std::string checkpoint = latest_of(request.run_dir);
  CHECK(load_recurrent(checkpoint).get("mem").shape() == Shape{4, 3, 16});
  rewrite(checkpoint, "recurrent.safetensors", "mem", Tensor::zeros({4, 4, 16}));
  CHECK(contains(error_of<ShapeError>([&] { train_quietly(resumed(request, 10)); }),
                 "model.feedback_self = true carries 3"));
}

TEST_CASE("train: a pointer to nothing is an error") {
  const OneThread one;
  const TempFolder folder;
  const TrainRequest request = tiny_run(folder, "run");
  CHECK(train_quietly(request) == TrainEnd::finished);
  for (const char* wrong : {"step-7\n", "../../elsewhere\n", "step-\n", "step-99999999999999999999\n"}) {
    CAPTURE(wrong);
    replace_text_file(request.run_dir + "/checkpoints/latest", wrong);
    CHECK(contains(error_of<FormatError>([&] { static_cast<void>(load_run(request.run_dir)); }),
                   "no checkpoint"));
  }
}

TEST_CASE("save_checkpoint: saving the same state twice gives the same bytes") {
  const OneThread one;
  const TempFolder folder;
  const TrainRequest request = tiny_run(folder, "run");
  CHECK(train_quietly(request) == TrainEnd::finished);
  const LoadedRun run = load_run(request.run_dir);
  Adam optimizer(run.model->params(), run.config.train);
  load_optimizer(run.checkpoint, optimizer);
  State recurrent;
  recurrent.set("layers.0.k", Tensor::full({2, 3}, 1.5));
  const auto save = [&](const std::string& to) {
    return save_checkpoint(to, run.config, run.tokenizer.get(), *run.model, optimizer.save(), recurrent,
                           run.state, false, 2)
        .string();
  };
  for (const char* name : {"a", "b"}) fs::create_directory(folder.path(name));
  const std::string a = save(folder.path("a")), b = save(folder.path("b"));
  CHECK(save(folder.path("a")) == a);  // over the first one
  for (const char* name :
       {"model.safetensors", "optimizer.safetensors", "recurrent.safetensors", "state.json"})
    CHECK_MESSAGE(bytes_of(a, name) == bytes_of(b, name), name);
  CHECK(same_bytes(a, run.checkpoint.string()));
  CHECK(checkpoints_of(folder.path("a")) == std::vector<std::string>{"latest", "step-6"});
  const State back = load_recurrent(a);
  CHECK(back.size() == 1);
  CHECK(back.get("layers.0.k").to_vector<float>() == std::vector<float>(6, 1.5F));
  CHECK(load_recurrent(run.checkpoint).empty());
}

TEST_CASE("train: a rate that rises again because train.steps was raised is said") {
  const OneThread one;
  const TempFolder folder;
  TrainRequest request = tiny_run(folder, "run");
  request.config.train.schedule = "cosine";
  CHECK(train_quietly(request) == TrainEnd::finished);
  const auto events_after = [&](const TrainRequest& again) {
    reset_warnings();
    CHECK(train_quietly(again) == TrainEnd::finished);
    return events_of(request.run_dir);
  };
  TrainRequest constant = resumed(request, 8);
  constant.config.train.schedule = "constant";
  CHECK(!contains(events_after(constant), "learning rate"));
  const std::string events = events_after(resumed(request, 20));
  CHECK(contains(events, "the learning rate goes back up at step 8, from "));
}

TEST_CASE("trainer: weights go on with a longer context where the model does not depend on it") {
  const OneThread one;
  const TempFolder folder;
  const TrainRequest teacher = tiny_run(folder, "teacher");
  CHECK(train_quietly(teacher) == TrainEnd::finished);
  TrainRequest longer = tiny_run(folder, "longer");
  longer.init_from = teacher.run_dir;
  longer.config.model.context *= 2;
  CHECK(train_quietly(longer) == TrainEnd::finished);
}
