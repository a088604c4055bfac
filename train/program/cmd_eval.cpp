// `eddy eval`: the loss of a trained model on a text.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <iostream>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "tensor/format.h"
#include "train/checkpoint.h"
#include "train/corpus.h"
#include "train/dataset.h"
#include "train/evaluate.h"
#include "train/program/commands.h"
#include "train/program/output.h"
#include "train/sha256.h"

namespace eddy {
namespace {

struct EvalOptions {
  std::string run, data, split = "valid", checkpoint = "latest";
  std::int64_t batches = 0, batch = 0, sequence = 0;
  std::uint64_t seed = 1337;
};

// A line on the terminal that is written over, at most ten times a second; nothing when standard error is no
// terminal.
class PercentLine {
 public:
  PercentLine() : shown_(is_terminal(2)) {}
  ~PercentLine() {
    if (shown_) std::fputs("\r\x1b[K", stderr);
  }
  PercentLine(const PercentLine&) = delete;
  PercentLine& operator=(const PercentLine&) = delete;

  void update(std::int64_t done, std::int64_t total) {
    const auto now = std::chrono::steady_clock::now();
    if (!shown_ || now - last_ < std::chrono::milliseconds(100)) return;
    last_ = now;
    std::fprintf(stderr, "\reval: %.0f %%", 100.0 * static_cast<double>(done) / static_cast<double>(total));
    std::fflush(stderr);
  }

 private:
  bool shown_;
  std::chrono::steady_clock::time_point last_;
};

EvalResult measure(const LoadedRun& run, std::span<const std::int32_t> tokens, const EvalOptions& options,
                   std::int64_t batch, std::int64_t sequence) {
  PercentLine line;
  const EvalProgress progress = [&line](std::int64_t done, std::int64_t total) {
    line.update(done, total);
    return true;
  };
  if (options.batches == 0) return evaluate(*run.model, tokens, sequence, batch, progress);
  return evaluate_random(*run.model, tokens, options.seed, options.batches, batch, sequence, progress);
}

int run_eval(const EvalOptions& options) {
  const LoadedRun run = load_run(options.run, Dtype::f32, options.checkpoint);
  const RunConfig& config = run.config;
  const std::int64_t batch = options.batch > 0 ? options.batch : config.train.batch;
  std::int64_t sequence = options.sequence > 0 ? options.sequence : config.train.sequence;
  if (sequence == 0) sequence = config.model.context;

  const TextSource source = resolve_text(options.data.empty() ? config.data.path : options.data, std::cerr);
  if (options.data.empty() && !run.state.text_sha256.empty() &&
      sha256_hex(source.text.view()) != run.state.text_sha256)
    fail<ValueError>("eval: {} is not the text that {} was trained on (name the text by --data)", source.name,
                     options.run);
  Corpus corpus;
  corpus.tokens = run.tokenizer->encode(source.text.view());
  std::span<const std::int32_t> tokens = corpus.tokens;
  if (options.split != "all") {
    corpus = split_corpus(std::move(corpus.tokens), config.data.split, sequence);
    tokens = options.split == "train" ? corpus.train() : corpus.valid();
  }

  const EvalResult result = measure(run, tokens, options, batch, sequence);
  print_line("step: {}", run.step);
  print_line("data: {} ({})", source.name, options.split);
  print_line("loss: {:.6f} nats per token", result.loss);
  if (result.standard_error >= 0) print_line("standard error: {:.6f}", result.standard_error);
  print_line("bits per token: {:.6f}", result.bits_per_token());
  print_line("perplexity: {:.6g}", result.perplexity());
  print_line("tokens: {}", result.tokens);
  print_line("tokens/s: {:.0f}", static_cast<double>(result.tokens) / std::max(result.seconds, 1e-9));
  return 0;
}

}  // namespace

void add_eval_command(CLI::App& app, std::function<int()>& action) {
  CLI::App* command = app.add_subcommand("eval", "Loss of a trained model on a text");
  const auto options = std::make_shared<EvalOptions>();
  const CLI::Validator size = CLI::Range(std::int64_t{1}, std::int64_t{1'000'000'000}).description("");
  command->add_option("RUN", options->run, "Folder of a run, or of one checkpoint")->required();
  command->add_option("--data", options->data, "File or folder of text (default: the run's)");
  command->add_option("--split", options->split, "Part of the text, cut as the run cuts it")
      ->check(CLI::IsMember({"valid", "train", "all"}))
      ->capture_default_str();
  command->add_option("--batches", options->batches, "So many random batches; 0: every window once")
      ->check(CLI::Range(std::int64_t{0}, std::int64_t{1'000'000'000}).description(""))
      ->capture_default_str();
  command->add_option("--batch", options->batch, "Windows at a time (default: the run's)")->check(size);
  command->add_option("--sequence", options->sequence, "Tokens of a window (default: the run's)")
      ->check(size);
  command->add_option("--seed", options->seed, "Of the random batches")->capture_default_str();
  command->add_option("--checkpoint", options->checkpoint, "Which one of a run's folder")
      ->check(CLI::IsMember({"latest", "best"}))
      ->capture_default_str();
  command->callback([options, &action] { action = [options] { return run_eval(*options); }; });
}

}  // namespace eddy
