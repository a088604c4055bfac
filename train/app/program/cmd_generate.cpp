// `eddy generate`: writes text from a trained model, token by token.
#include <fmt/ranges.h>
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tensor/base/format.h"
#include "train/app/program/commands.h"
#include "train/config/run_config.h"
#include "train/generate/generate.h"
#include "train/generate/session.h"
#include "train/process/stop_signal.h"
#include "train/run/checkpoint.h"
#include "train/words/human_text.h"

namespace eddy::app {
using namespace training;
namespace {

struct GenerateOptions {
  RunOptions run;
  std::string prompt, session, save_session;
  bool replace_unknown = false;
  std::int64_t tokens = 200;
  SampleOptions sample;
};

// Returns the sampling of a session with what was given on the command line in its place.
SampleOptions with_flags(SampleOptions kept, const SampleOptions& given, const CLI::App& command) {
  if (command.count("--temperature") > 0) kept.temperature = given.temperature;
  if (command.count("--top-k") > 0) kept.top_k = given.top_k;
  if (command.count("--top-p") > 0) kept.top_p = given.top_p;
  if (command.count("--seed") > 0) kept.seed = given.seed;
  return kept;
}

// Replaces what the vocabulary lacks, and says what that was.
std::string with_known(const Tokenizer& tokenizer, const std::string& prompt) {
  constexpr std::size_t kNamed = 10;
  std::vector<std::string> replaced;
  std::string known = tokenizer.with_known(prompt, replaced);
  if (replaced.empty()) return known;
  const std::size_t more = replaced.size() - std::min(kNamed, replaced.size());
  replaced.resize(replaced.size() - more);
  say(fmt::format("warning: the vocabulary of {} lacks {}{}: each is replaced, and the prompt is {:?}",
                  tokenizer.vocab_size(), fmt::join(replaced, ", "),
                  more > 0 ? fmt::format(" and {} more", more) : "",
                  known.size() <= 200 ? known : known.substr(0, 200) + "..."));
  return known;
}

std::vector<std::int32_t> encoded_prompt(const Tokenizer& tokenizer, const std::string& prompt) {
  constexpr const char* kWayOut = "--replace-unknown takes another character in its place";
  try {
    return tokenizer.encode(prompt);
  } catch (const ValueError& error) {
    fail<ValueError>("generate: the prompt: {}; {}", error.what(), kWayOut);
  } catch (const FormatError& error) {
    fail<FormatError>("generate: the prompt: {}; {}", error.what(), kWayOut);
  }
}

int run_generate(const GenerateOptions& options, const CLI::App& command) {
  validate(options.sample);
  const bool saving = !options.save_session.empty();
  if (saving) check_output("generate", options.save_session, kSessionFile);
  // From here on a stop waits until the session is saved.
  std::optional<StopOnSignal> signals;
  if (saving) signals.emplace();
  const LoadedRun run = load_text_run("generate", options.run, " (generate writes text)");
  std::string prompt = options.prompt == "-" ? read_standard_input("generate: the prompt") : options.prompt;
  if (options.replace_unknown) prompt = with_known(*run.tokenizer, prompt);
  const std::vector<std::int32_t> ids = encoded_prompt(*run.tokenizer, prompt);

  Session session;
  if (!options.session.empty()) session = load_session(options.session, *run.model);
  session.sample =
      options.session.empty() ? options.sample : with_flags(session.sample, options.sample, command);

  // A file or a pipe gets the bytes as they are; a terminal gets printable text.
  const bool terminal = is_terminal(1);
  TerminalText safe;
  const auto show = [&](std::string_view bytes) {
    print_bytes(terminal ? safe.take(bytes) : std::string(bytes));
    flush_output();
  };
  // A reader that leaves, or a full disk, ends the text as a signal does.
  const auto stop = [&] { return saving && (stop_requested() || output_is_lost()); };
  const GenerateResult read =
      generate(*run.model, *run.tokenizer, session.text, ids, 0, session.sample, {}, stop);
  if (!read.stopped.empty()) {
    say(fmt::format("stopped: {}; no session is saved", read.stopped));
    return 130;
  }
  if (run.step == 0) say("step 0: nothing was trained (the text is noise, unless the weights were imported)");
  // On a terminal the text begins with its prompt; a file or a pipe gets what the model wrote alone.
  if (terminal) show(prompt);
  const GenerateResult result =
      generate(*run.model, *run.tokenizer, session.text, {}, options.tokens, session.sample, show, stop);
  if (saving) save_session(options.save_session, *run.model, session);
  if (terminal) print(safe.finish() + "\n");
  flush_output();

  if (!result.stopped.empty())
    say(fmt::format("stopped: {}{}", result.stopped, saving ? "; saved in " + options.save_session : ""));
  if (!result.uncaptured.empty()) say(result.uncaptured);
  say(fmt::format("generated: {} {}, {:.0f} tokens/s; prompt: {} {} in {}; state: {}; {}{}", result.drawn,
                  plural(result.drawn, "token"),
                  static_cast<double>(result.drawn) / std::max(result.seconds, 1e-9), ids.size(),
                  plural(ids.size(), "token"), human_duration(read.prompt_seconds),
                  human_bytes(result.state_bytes), options.run.precision,
                  precision_note(run.config.train.precision, options.run.precision)));
  return saving && stop_requested() ? 130 : 0;
}

Described describe_generate(CLI::App& command) {
  const auto options = std::make_shared<GenerateOptions>();
  add_run_argument(command, options->run.path);
  command.add_option(
      "--prompt", options->prompt,
      "Text to continue; '-' reads standard input (default: a new line). On a terminal it is shown "
      "before what the model writes");
  command.add_flag("--replace-unknown", options->replace_unknown,
                   "Replace characters of the prompt that the vocabulary lacks, with a warning");
  add_option(command, "--tokens", options->tokens, "Number of tokens to write",
             whole_number(0, 1'000'000'000'000));
  add_sampling_options(command, options->sample);
  add_option(command, "--session", options->session,
             "Continue a text that --save-session saved; sampling flags override the saved ones",
             not_empty());
  add_option(command, "--save-session", options->save_session,
             "File to save the state of the text in, after the last token or a stop; may be the file "
             "of --session",
             not_empty());
  add_checkpoint_option(command, options->run.checkpoint, "Checkpoint of the run");
  add_precision_option(command, options->run.precision);
  add_device_option(command, options->run.device);
  return {[options, &command] { return run_generate(*options, command); }};
}

}  // namespace

Command commands::generate() {
  return {"generate", "Write text from a trained model", Computes::products, Results::printed,
          describe_generate};
}

}  // namespace eddy::app
