// `eddy inspect`: what a trained model's memory does on a text or on streams of its task, as a page.
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <iostream>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "tensor/base/format.h"
#include "train/app/inspect/inspected_stream.h"
#include "train/app/inspect/inspection.h"
#include "train/app/inspect/inspection_page.h"
#include "train/app/program/commands.h"
#include "train/app/report/comparison.h"
#include "train/app/views/html_page.h"
#include "train/config/run_config.h"
#include "train/fetch/named_data.h"
#include "train/files/output_file.h"
#include "train/record/percent_line.h"
#include "train/run/checkpoint.h"
#include "train/text/text_files.h"
#include "train/words/human_text.h"
#include "train/words/program_name.h"

namespace eddy::app {
using namespace training;
namespace {

struct InspectFlags {
  RunOptions run;
  std::string text, out = "inspect.html", attention;
  std::int64_t tokens = 0, keys = 12, seed = 1;
  bool replace_unknown = false;
};

constexpr std::int64_t kTextTokens = 100'000, kTaskTokens = 2'048;

// FROM:TO as two numbers; false for anything else.
bool read_range(const std::string& text, std::int64_t& from, std::int64_t& to) {
  const char *const first = text.data(), *const last = first + text.size();
  const auto [colon, wrong] = std::from_chars(first, last, from);
  if (wrong != std::errc() || colon == last || *colon != ':') return false;
  const auto [end, also] = std::from_chars(colon + 1, last, to);
  return also == std::errc() && end == last && from >= 0 && to > from;
}

CLI::Validator token_range() {
  return {[](std::string& text) {
            std::int64_t from = 0, to = 0;
            return read_range(text, from, to)
                       ? std::string()
                       : fmt::format("{:?} is no range of tokens FROM:TO, such as 0:500", text);
          },
          ""};
}

// What --text names, and what it is called on the page: one file, or standard input.
std::string read_text(const InspectFlags& flags, std::string& name) {
  if (flags.text == "-") {
    name = "standard input";
    return read_standard_input("inspect: --text -");
  }
  const std::string path = local_data(flags.text, std::cerr);
  std::error_code unseen;
  if (!std::filesystem::exists(path, unseen))
    fail<IoError>(
        "inspect: --text {}: there is no such file (it is looked for from the working directory; words are given on "
        "standard input: printf %s {} | {} inspect {} --text -)",
        flags.text, shell_quoted(flags.text), program_name(), shell_quoted(flags.run.path));
  const TextFiles files = list_text_files(path);
  if (files.folder || files.files.size() != 1)
    fail<ValueError>("inspect: {} is a folder (name one file)", flags.text);
  name = printable(std::filesystem::path(files.files.front().path).filename().string());
  return text_of(files.files.front());
}

// The text as tokens of the run.
std::vector<std::int32_t> tokens_of(const InspectFlags& flags, const LoadedRun& run, std::string& name) {
  std::string text = read_text(flags, name);
  constexpr const char* kWayOut = "--replace-unknown takes another character in its place";
  if (flags.replace_unknown) {
    std::vector<std::string> replaced;
    text = run.tokenizer->with_known(text, replaced);
    if (!replaced.empty())
      say(fmt::format("warning: the vocabulary of {} lacks {}: each is replaced", run.tokenizer->vocab_size(),
                      fmt::join(replaced, ", ")));
  }
  try {
    return run.tokenizer->encode(text);
  } catch (const ValueError& error) {
    fail<ValueError>("inspect: {}: {}; {}", flags.text, error.what(), kWayOut);
  } catch (const FormatError& error) {
    fail<FormatError>("inspect: {}: {}; {}", flags.text, error.what(), kWayOut);
  }
}

int run_inspect(const InspectFlags& flags, const CLI::App& command) {
  check_output("inspect", flags.out, kPageFile);
  const LoadedRun run = load_run("inspect", flags.run);
  const bool task = !run.tokenizer;
  for (const char* const flag : {"--text", "--replace-unknown"})
    if (task && command.count(flag) > 0)
      fail<ValueError>("inspect: {} was trained on the task {}, which has no text (leave out {})",
                       flags.run.path, run.config.data.name, flag);
  if (!task && flags.text.empty())
    fail<ValueError>(
        "inspect: --text is required: {} was trained on text (a file, or '-' for standard input)",
        flags.run.path);
  if (!task && command.count("--seed") > 0)
    fail<ValueError>("inspect: --seed has no effect on a text, of which nothing is drawn (leave out --seed)");
  InspectOptions options;
  options.kept = flags.keys;
  if (!flags.attention.empty()) read_range(flags.attention, options.from, options.to);

  InspectedText about;
  InspectedStream stream;
  TokenText text_of_token;
  if (task) {
    const auto read = [&](std::int64_t seed) {
      return task_stream(run, flags.run.path, flags.tokens > 0 ? flags.tokens : kTaskTokens, seed);
    };
    TaskStream streams = read(flags.seed);
    if (command.count("--seed") > 0 && read(flags.seed + 1).stream.tokens == streams.stream.tokens)
      fail<ValueError>(
          "inspect: --seed has no effect on the task {}, whose streams are fixed (leave out --seed)",
          run.config.data.name);
    stream = std::move(streams.stream);
    text_of_token = std::move(streams.token_text);
    about.answer_text = std::move(streams.answer_text);
    about.text = "its task, " + streams.name;
    about.tokens_in_all = std::ssize(stream.tokens);
  } else {
    std::vector<std::int32_t> ids = tokens_of(flags, run, about.text);
    about.tokens_in_all = std::ssize(ids);
    ids.resize(static_cast<std::size_t>(
        std::min(about.tokens_in_all, flags.tokens > 0 ? flags.tokens : kTextTokens)));
    stream = text_stream(ids, reading_of(run, 1));
    text_of_token = token_text(*run.tokenizer);
  }
  Inspection inspection;
  {
    PercentLine line("inspect");
    inspection = inspect_stream(*run.model, stream, options, std::ref(line));
  }
  about.run = flags.run.path;
  const TokenReading reading{.segment = stream.segment, .carry_state = stream.carried};
  about.about = describe_reading(run, reading, flags.run.precision);
  about.recurrent = run.model->is_recurrent();
  const std::string page =
      render_inspection(about, run.model->full_config(), text_of_token, stream.tokens, inspection);

  print_line("step: {}", run.step);
  print_line("tokens: {}{}", inspection.tokens,
             about.tokens_in_all > inspection.tokens
                 ? fmt::format(", the first of {} (--tokens reads more)", about.tokens_in_all)
                 : "");
  print_line("loss: {:.6f} nats per {}", inspection.loss, task ? "answer" : "token");
  if (!std::isfinite(inspection.loss)) say(diverged_text(flags.run));
  if (std::isfinite(inspection.loss_cleared))
    print_line(
        "loss without the state: {:.6f}{}", inspection.loss_cleared,
        inspection.apart > 0 ? fmt::format(", which begins anew every {} tokens", inspection.apart) : "");
  if (task) {
    const auto [right, answers] = right_answers(inspection);
    print_line("right: {} of {} {}", right, answers, plural(answers, "answer"));
  }
  if (!inspection.states.rows.empty())
    print_line("memory: {} first of {} shown numbers of the state", inspection.states.rows.front().name(),
               inspection.states.rows.size());
  if (!inspection.attention.empty())
    print_line("attention: of the tokens {}:{}", inspection.attention.front().from,
               inspection.attention.front().to);
  // Behind the numbers, which a full disk does not take.
  write_output_file("inspect", flags.out, page, kPageFile);
  print_line("page: {}, {}", flags.out, human_bytes(static_cast<std::int64_t>(page.size())));
  return 0;
}

Described describe_inspect(CLI::App& command) {
  const auto flags = std::make_shared<InspectFlags>();
  add_run_argument(command, flags->run.path);
  add_option(
      command, "--text", flags->text,
      "The text: a file, or '-' for standard input; a run on a task reads fresh streams of its task instead",
      not_empty());
  add_option(command, "--out", flags->out, "Page to write", not_empty());
  command
      .add_option(
          "--tokens", flags->tokens,
          fmt::format(
              "Read at most so many tokens of the text, or at least so many of a task (default: {}, of a "
              "task {})",
              kTextTokens, kTaskTokens))
      ->transform(whole_number(2, 10'000'000));
  add_option(command, "--seed", flags->seed,
             "Seed of a task's streams, added to train.seed; 0: the seed of training",
             whole_number(0, 1'000'000'000));
  add_option(
      command, "--attention", flags->attention,
      "FROM:TO, the tokens whose attention the page keeps (default: from the first one on, about 4 MB of it)",
      token_range());
  add_option(command, "--keys", flags->keys, "Keys to keep of each token and head, the largest ones",
             whole_number(1, 255));
  command.add_flag("--replace-unknown", flags->replace_unknown,
                   "Replace characters of the text that the vocabulary lacks");
  add_checkpoint_option(command, flags->run.checkpoint, "Checkpoint of the run");
  add_precision_option(command, flags->run.precision);
  add_device_option(command, flags->run.device);
  return {[flags, &command] { return run_inspect(*flags, command); }};
}

}  // namespace

Command commands::inspect() {
  return {"inspect", "Write a page that shows what a model's memory does on a text or a task",
          Computes::products, Results::printed, describe_inspect};
}

}  // namespace eddy::app
