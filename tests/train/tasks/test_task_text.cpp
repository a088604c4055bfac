// Text tasks: what they refuse, how they measure, and whole runs that carry a state.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "tensor/base/error.h"
#include "tensor/files/safetensors.h"
#include "tests/support/errors.h"
#include "tests/support/files.h"
#include "tests/support/tasks.h"
#include "tests/support/threads.h"
#include "tests/support/tiny_run.h"
#include "train/record/metrics.h"
#include "train/run/checkpoint.h"
#include "train/tasks/block_sizes.h"
#include "train/tasks/task.h"
#include "train/text/text_measures.h"

namespace {

using namespace eddy;
using namespace eddy::training;
using namespace eddy::test;
namespace fs = std::filesystem;

// Documents of different lengths in two folders.
std::string write_documents(const TempFolder& folder) {
  for (int i = 0; i < 10; ++i)
    folder.write("docs/" + std::string(i % 2 == 0 ? "a" : "b/c") + "/" + std::to_string(i) + ".txt",
                 generate_stories(static_cast<std::uint64_t>(i), 60 + 37 * i));
  return folder.path("docs");
}

// A run of a model with a state.
TrainRequest stateful_run(const TempFolder& folder, const std::string& name, const std::string& order) {
  TrainRequest request = tiny_run(folder, name);
  RunConfig& config = request.config;
  config.model.family = "staircase";
  config.model.model = "lstm";
  config.model.layers = 2;
  config.data.order = order;
  config.data.tokenizer = "byte260";
  if (order == "documents") config.data.path = write_documents(folder);
  return request;
}

std::string refusal(const RunConfig& config) {
  return error_of<Error>([&] { static_cast<void>(task_of(config)); });
}

}  // namespace

TEST_CASE(
    "words_known_from: counts words as often as they stand in the text, by letters, and capitals count") {
  const auto check = [](const char* text, const char* other, std::int64_t words, std::int64_t known) {
    CAPTURE(text);
    const WordShare share = words_known_from(text, other);
    CHECK(share.words == words);
    CHECK(share.known == known);
  };
  check("", "the cat", 0, 0);
  check("12 -- 3!", "the cat", 0, 0);
  check("the cat, the dog", "", 4, 0);
  check("the cat, the dog: The", "cat's milk is the best", 5, 3);
  check("don't", "don", 2, 1);
  check("\xc3\xa4hre", "die \xc3\x84hre, eine \xc3\xa4hre", 1, 1);
}

TEST_CASE("count_words: white space of every kind parts words and no bytes break it") {
  CHECK(count_words("") == 0);
  CHECK(count_words(" \t\r\n") == 0);
  CHECK(count_words("one") == 1);
  CHECK(count_words("  one two\nthree\f") == 3);
  CHECK(count_words("a\xC2\xA0"
                    "b\xE3\x80\x80"
                    "c\xE2\x80\x83") == 3);
  CHECK(count_words("\xFF\xFE \x80") == 2);
  CHECK(count_words("caf\xC3") == 1);    // cut inside a character
  CHECK(count_words("a\xE2\x80") == 1);  // the beginning of a space is no space
  CHECK(count_words(std::string("a\0b c", 5)) == 2);
}

TEST_CASE("task: an unknown name is refused with the nearest one") {
  RunConfig config;
  config.data.name = "txt";
  CHECK(contains(refusal(config), "the nearest is \"text\""));
}

TEST_CASE("text task: the order of the data says whether a state is carried unless a key does") {
  const TempFolder folder;
  const auto carries = [&](const std::string& order, const std::string& carry) {
    RunConfig config = stateful_run(folder, "run", order).config;
    config.train.carry_state = carry;
    return task_of(config)->carries_state();
  };
  CHECK(!carries("windows", "auto"));
  CHECK(carries("stream", "auto"));
  CHECK(carries("documents", "auto"));
  CHECK(carries("windows", "always"));
  CHECK(!carries("stream", "never"));
  CHECK(!carries("documents", "never"));
}

TEST_CASE("text task: a segment is as long as the first of three keys that is set") {
  RunConfig config;
  config.model.context = 5;
  CHECK(segment_length(config) == 5);
  config.model.segment = 6;
  CHECK(segment_length(config) == 6);
  config.train.sequence = 7;
  CHECK(segment_length(config) == 7);
}

TEST_CASE(
    "text task: windows draw block sizes, and a model without blocks or with a carried state takes none") {
  const TempFolder folder;
  RunConfig config = tiny_run(folder, "run").config;
  config.model.family = "recurrent_transformer";
  config.model.model = "block_forget";
  config.data.extensions.get<BlockKeys>() = {2, 5};
  const std::unique_ptr<Task> task = task_of(config);
  bool drawn[6] = {};
  for (std::int64_t step = 0; step < 40; ++step) {
    const std::int64_t block = task->next(step, 0).block;
    REQUIRE(block >= 2);
    REQUIRE(block <= 5);
    drawn[block] = true;
    CHECK(task->next(step, 1).block == block);  // one size for all of a step
  }
  CHECK(std::count(drawn, drawn + 6, true) == 4);
  config.data.order = "stream";
  CHECK(contains(refusal(config), "drawn for windows without a carried state"));
  config.data.order = "windows";
  config.model.model = "regular";
  CHECK(contains(refusal(config), "regular has no blocks"));
  config.data.extensions.get<BlockKeys>() = {};
  CHECK(task_of(config)->next(0, 0).block == 0);
}

TEST_CASE("text task: data that do not fit are refused") {
  const TempFolder folder;
  RunConfig config = stateful_run(folder, "run", "stream").config;
  config.train.eval_every = 1;  // what is evaluated needs a validation part
  config.data.path = folder.write("short.txt", std::string(200, 'a'));
  config.train.batch = 12;  // spans of 15
  CHECK(contains(refusal(config), "has 15 tokens, and a segment needs 17"));
  config.data.path = fs::path(folder.write("shards/sub/small.txt", std::string(16, 'b')))
                         .parent_path()
                         .parent_path()
                         .string();
  folder.write("shards/small.txt", std::string(16, 'b'));
  CHECK(contains(refusal(config), "is longer than a segment of 16 tokens"));

  config = stateful_run(folder, "run", "documents").config;
  config.train.eval_every = 1;
  RunConfig bad = config;
  bad.data.path.clear();
  CHECK(contains(refusal(bad), "data.path is empty"));
  bad = config;
  bad.data.path = folder.path("nothing");
  CHECK(contains(refusal(bad), "no such file or folder"));
  bad = config;
  bad.data.path = folder.write("alone.txt", "only one");
  CHECK(contains(refusal(bad), "has 1 text"));
  bad = config;
  bad.data.tokenizer = "char";
  CHECK(contains(refusal(bad), "mask_token_zero"));
  bad.model.mask_token_zero = false;
  CHECK_NOTHROW(static_cast<void>(task_of(bad)));
  bad.data.path = folder.path("mixed");
  folder.write("mixed/a.txt", "good");
  folder.write("mixed/b.txt", "bad \xFF");
  CHECK(contains(refusal(bad), "mixed/b.txt is not UTF-8: byte 0xff at offset 4"));
  bad.data.order = "windows";  // in which the files are one text
  folder.write("mixed/a.txt", std::string(100, 'a'));
  CHECK(contains(refusal(bad), "mixed/b.txt is not UTF-8: byte 0xff at offset 4"));
  bad = config;
  bad.data.split = 1;
  CHECK(contains(refusal(bad), "data.split is 1"));
  bad = config;
  bad.data.order = "windows";
  bad.data.offset = "random";
  CHECK(contains(error_of<ConfigError>([&] { validate(bad); }), "only a stream has an offset"));
}

TEST_CASE("text task: files in subfolders are documents and the last ones validate") {
  const TempFolder folder;
  RunConfig config = stateful_run(folder, "run", "documents").config;
  folder.write("docs/.hidden/x.txt", "not this");
  folder.write("docs/empty.txt", "");
  folder.write("docs/table.csv", "nor this");
  config.data.split = 0.8;
  std::ostringstream said;
  TaskArguments arguments;
  arguments.config = config;
  arguments.messages = &said;
  CHECK(contains(make_task(std::move(arguments))->summary(), "8 training and 2 validation documents"));
  CHECK(contains(said.str(), "13 files: 10 read"));
  CHECK(
      contains(said.str(), ", left out: .hidden/ (hidden), empty.txt (empty), table.csv (not .txt or .md)"));
  config.data.split = 0.01;  // at least one of each
  CHECK(contains(task_of(config)->summary(), "1 training and 9 validation documents"));
}

TEST_CASE("text task: measuring leaves the positions of training alone") {
  const OneThread one;
  const TempFolder folder;
  for (const std::string order : {"stream", "documents"}) {
    CAPTURE(order);
    RunConfig config = tiny_run(folder, "run").config;
    config.data.order = order;
    config.data.tokenizer = "byte260";
    if (order == "documents") config.data.path = write_documents(folder);
    const std::unique_ptr<Task> task = task_of(config);
    const std::unique_ptr<Model> model = model_for(*task, config.model);
    for (int t = 0; t < 3; ++t) static_cast<void>(task->next(0, t));
    const nlohmann::json before = task->save();
    EvalOptions options;
    options.batch = 3;
    const double loss = task->evaluate(*model, options).loss;
    CHECK(std::isfinite(loss));
    CHECK(task->save() == before);
    CHECK(task->evaluate(*model, options).loss == loss);
  }
}

TEST_CASE("text task: a document's loss is the mean over its segments for a model without a state") {
  const OneThread one;
  const TempFolder folder;
  RunConfig config = tiny_run(folder, "run").config;
  config.data.order = "documents";
  config.data.tokenizer = "byte260";
  config.data.path = write_documents(folder);
  const std::unique_ptr<Task> task = task_of(config);
  const std::unique_ptr<Model> model = model_for(*task, config.model);
  const std::string text = read_text_file(folder.path("docs/b/c/9.txt"));  // the last by name
  const std::int64_t segment = segment_length(config);
  const std::unique_ptr<Tokenizer> tokenizer = make_tokenizer("byte260", "");
  const std::vector<std::int32_t> ids = tokenizer->encode(text);
  double nats = 0;
  std::int64_t count = 0;
  for (std::size_t begin = 0; begin + 1 < ids.size(); begin += static_cast<std::size_t>(segment)) {
    const std::size_t length = std::min(ids.size() - begin, static_cast<std::size_t>(segment));
    const std::vector<std::int32_t> part(ids.begin() + static_cast<std::ptrdiff_t>(begin),
                                         ids.begin() + static_cast<std::ptrdiff_t>(begin + length));
    ForwardInput input;
    input.tokens = Tensor::from(part, {1, static_cast<std::int64_t>(length)});
    const std::vector<double> logits = raw::contiguous(model->forward(input).logits).to_vector<double>();
    const std::size_t classes = logits.size() / length;
    for (std::size_t t = 0; t + 1 < length; ++t) {
      double sum = 0;
      for (std::size_t k = 0; k < classes; ++k) sum += std::exp(logits[t * classes + k]);
      nats += std::log(sum) - logits[t * classes + static_cast<std::size_t>(part[t + 1])];
      ++count;
    }
  }
  EvalOptions options;
  options.by_position = true;
  const EvalResult result = task->evaluate(*model, options);
  CHECK(result.tokens == count);
  CHECK(std::abs(result.loss - nats / static_cast<double>(count)) <= 1e-12);
  // Bytes: a token is a byte, and all of them together stand for the whole text.
  CHECK(std::abs(extra(result, "bits_per_byte") - result.bits_per_token()) <= 1e-12);
  CHECK(std::isnan(extra(result, "word_perplexity")));  // a byte is no word
  double by_position = 0;
  std::int64_t counted = 0;
  for (std::size_t i = 0; i < result.position_loss.size(); ++i) {
    by_position += result.position_loss[i];
    counted += result.position_count[i];
    const bool last = static_cast<std::int64_t>(i) % segment == segment - 1;
    CHECK(result.position_count[i] == (last ? 0 : 1));
  }
  CHECK(counted == count);
  CHECK(std::abs(by_position - nats) <= 1e-10);
}

TEST_CASE("text task: a stream is measured with a state of its own that can be cleared") {
  const OneThread one;
  const TempFolder folder;
  RunConfig config = stateful_run(folder, "run", "stream").config;
  const std::unique_ptr<Task> task = task_of(config);
  const std::unique_ptr<Model> model = model_for(*task, config.model);
  EvalOptions options;
  options.batch = 2;
  const EvalResult carried = task->evaluate(*model, options);
  CHECK(carried.loss == task->evaluate(*model, options).loss);
  options.clear_state = true;
  const EvalResult cleared = task->evaluate(*model, options);
  CHECK(cleared.tokens == carried.tokens);
  CHECK(cleared.loss != carried.loss);
  options.clear_state = false;
  options.split = Split::test;
  CHECK(contains(error_of<ValueError>([&] { static_cast<void>(task->evaluate(*model, options)); }),
                 "no split"));
  options.split = Split::all;
  options.batches = 2;
  CHECK(task->evaluate(*model, options).tokens == 2 * 2 * 16);
}

TEST_CASE("train: a resumed run with a state equals an unbroken one to the bit") {
  const OneThread one;
  for (const std::string order : {"stream", "documents", "windows"}) {
    CAPTURE(order);
    const TempFolder folder;
    TrainRequest whole = stateful_run(folder, "whole", order), part = stateful_run(folder, "part", order);
    for (TrainRequest* request : {&whole, &part}) {
      request->config.train.carry_state = "always";
      request->config.train.accumulate = 2;
      request->config.train.steps = 14;
      request->config.data.offset = order == "stream" ? "random" : "zero";
    }
    CHECK(train_quietly(whole) == TrainEnd::finished);
    part.config.train.steps = 5;
    CHECK(train_quietly(part) == TrainEnd::finished);
    CHECK(!load_recurrent(latest_of(part.run_dir)).empty());
    CHECK(train_quietly(resumed(part, 14)) == TrainEnd::finished);
    const std::string a = latest_of(whole.run_dir), b = latest_of(part.run_dir);
    for (const char* file : {"model.safetensors", "optimizer.safetensors", "recurrent.safetensors"})
      CHECK_MESSAGE(bytes_of(a, file) == bytes_of(b, file), file);
    CHECK(load_run(a).state.task == load_run(b).state.task);
  }
}

TEST_CASE("train: evaluation in between changes nothing of a run with a state") {
  const OneThread one;
  const TempFolder folder;
  TrainRequest with = stateful_run(folder, "with", "stream"),
               without = stateful_run(folder, "without", "stream");
  with.config.train.eval_every = 2;
  CHECK(train_quietly(with) == TrainEnd::finished);
  CHECK(train_quietly(without) == TrainEnd::finished);
  for (const char* file : {"model.safetensors", "optimizer.safetensors", "recurrent.safetensors"})
    CHECK_MESSAGE(bytes_of(latest_of(with.run_dir), file) == bytes_of(latest_of(without.run_dir), file),
                  file);
  const Metrics metrics = read_metrics(with.run_dir + "/metrics.jsonl");
  REQUIRE(metrics.evals.size() == 4);
  REQUIRE(!metrics.evals.front().metrics.empty());
  CHECK(metrics.evals.front().metrics.front().first == "bits_per_byte");
  CHECK(contains(read_text_file(with.run_dir + "/report.html"), "Bits per byte"));
}

TEST_CASE("train: the state carried changes what is learned and a key turns it off") {
  const OneThread one;
  const TempFolder folder;
  TrainRequest carried = stateful_run(folder, "carried", "stream");
  TrainRequest cleared = stateful_run(folder, "cleared", "stream");
  cleared.config.train.carry_state = "never";
  CHECK(train_quietly(carried) == TrainEnd::finished);
  CHECK(train_quietly(cleared) == TrainEnd::finished);
  CHECK(bytes_of(latest_of(carried.run_dir), "model.safetensors") !=
        bytes_of(latest_of(cleared.run_dir), "model.safetensors"));
  CHECK(load_recurrent(latest_of(cleared.run_dir)).empty());
}

TEST_CASE("train: what a resumed stream may not change is refused") {
  const OneThread one;
  const TempFolder folder;
  const TrainRequest request = stateful_run(folder, "run", "stream");
  CHECK(train_quietly(request) == TrainEnd::finished);
  const TrainRequest good = resumed(request, 8);
  TrainRequest bad = good;
  bad.config.train.batch = 3;
  CHECK(contains(error_of<ConfigError>([&] { train_quietly(bad); }), "resume with the same"));
  bad = good;
  bad.config.data.order = "windows";
  CHECK(contains(error_of<ConfigError>([&] { train_quietly(bad); }), "another task"));
  bad = good;
  bad.config.data.path = folder.write("other.txt", generate_stories(9, 4000));
  CHECK(contains(error_of<ConfigError>([&] { train_quietly(bad); }), "is not the text"));
  CHECK(train_quietly(good) == TrainEnd::finished);
}
