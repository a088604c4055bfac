// `eddy generate`: writes text from a trained model, token by token.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tensor/base/format.h"
#include "train/config/device_precision.h"
#include "train/generate/generate.h"
#include "train/generate/session.h"
#include "train/page/human_text.h"
#include "train/program/commands.h"
#include "train/program/number_options.h"
#include "train/program/output.h"
#include "train/program/path_options.h"
#include "train/run/checkpoint.h"
#include "train/run/stop_signal.h"

namespace eddy {
namespace {

struct GenerateOptions {
  std::string run, prompt, checkpoint = "latest", device = "cpu", precision = "f32";
  std::int64_t tokens = 200;
  SampleOptions sample;
  std::string session, save_session;
};

// The sampling flags: those given on the command line override those of a session.
struct SampleFlags {
  const CLI::Option* temperature = nullptr;
  const CLI::Option* top_k = nullptr;
  const CLI::Option* top_p = nullptr;
  const CLI::Option* seed = nullptr;
};

SampleOptions with_flags(SampleOptions kept, const SampleOptions& given, const SampleFlags& flags) {
  if (flags.temperature->count() > 0) kept.temperature = given.temperature;
  if (flags.top_k->count() > 0) kept.top_k = given.top_k;
  if (flags.top_p->count() > 0) kept.top_p = given.top_p;
  if (flags.seed->count() > 0) kept.seed = given.seed;
  return kept;
}

// Calls `write`. The error of a text that cannot go on names the session it was taken from if that is the
// cause.
template <class Write>
GenerateResult blaming_session(const std::string& session, const Write& write) {
  try {
    return write();
  } catch (const NonFiniteError& error) {
    const std::string part = session.empty() ? "" : not_finite_in_session(session);
    if (part.empty()) throw;
    fail<FormatError>("session: {} is damaged: its {} is not finite (begin the text again, or take a copy)",
                      session, part);
  }
}

// An endless prompt (`yes |`) must not fill the memory.
constexpr std::size_t kLongestPrompt = std::size_t{1} << 24;

std::string read_standard_input() {
  std::string text;
  char part[4096];
  for (std::size_t bytes; (bytes = std::fread(part, 1, sizeof part, stdin)) > 0;) {
    text.append(part, bytes);
    if (text.size() > kLongestPrompt)
      fail<ValueError>("generate: the prompt is longer than {} (shorten it)",
                       human_bytes(static_cast<std::int64_t>(kLongestPrompt)));
  }
  if (std::ferror(stdin) != 0)
    fail<IoError>("generate: cannot read standard input: {}", std::strerror(errno));
  return text;
}

int run_generate(const GenerateOptions& options, const SampleFlags& flags) {
  validate(options.sample);
  const bool saving = !options.save_session.empty();
  if (saving) {
    check_output("generate", options.save_session);
    if (!can_write_session(options.save_session))
      fail<IoError>(
          "generate: {} exists and is no session (--save-session replaces nothing else: name another file)",
          options.save_session);
  }
  const auto [device, dtype] =
      choose_device_precision({"generate", "--device", "--precision"}, options.device, options.precision);
  const LoadedRun run = load_run(options.run, dtype, options.checkpoint, device);
  if (!run.tokenizer)
    fail<ValueError>("generate: {} was trained on the task {}, which has no text (generate writes text)",
                     options.run, run.config.data.name);
  const std::string prompt = options.prompt == "-" ? read_standard_input() : options.prompt;
  const std::vector<std::int32_t> ids = run.tokenizer->encode(prompt);

  Session session;
  if (!options.session.empty()) session = load_session(options.session, *run.model);
  session.sample =
      options.session.empty() ? options.sample : with_flags(session.sample, options.sample, flags);

  // A file or a pipe gets the bytes as they are; a terminal gets printable text.
  const bool terminal = is_terminal(1);
  TerminalText safe;
  const auto show = [&](std::string_view bytes) {
    print(terminal ? safe.take(bytes) : std::string(bytes));
    flush_output();
  };
  const double prompt_seconds =
      blaming_session(options.session, [&] {
        return generate(*run.model, *run.tokenizer, session.text, ids, 0, session.sample);
      }).prompt_seconds;
  // From here on an interrupt waits until the session is saved.
  std::optional<StopOnSignal> signals;
  if (saving) signals.emplace();
  const GenerateResult result = blaming_session(options.session, [&] {
    return generate(*run.model, *run.tokenizer, session.text, {}, options.tokens, session.sample, show,
                    [&] { return saving && stop_requested(); });
  });
  if (terminal) print(safe.finish() + "\n");
  flush_output();
  if (saving) save_session(options.save_session, *run.model, session);

  if (!result.stopped.empty())
    fmt::print(stderr, "stopped: {}{}\n", result.stopped, saving ? "; saved in " + options.save_session : "");
  if (!result.uncaptured.empty()) fmt::print(stderr, "{}\n", result.uncaptured);
  fmt::print(stderr, "generated: {} tokens, {:.0f} tokens/s; prompt: {} tokens in {}; state: {}; {}{}\n",
             result.drawn, static_cast<double>(result.drawn) / std::max(result.seconds, 1e-9), ids.size(),
             human_duration(prompt_seconds), human_bytes(result.state_bytes), options.precision,
             precision_note(run.config.train.precision, options.precision));
  return saving && stop_requested() ? 130 : 0;
}

}  // namespace

void add_generate_command(CLI::App& app, std::function<int()>& action) {
  CLI::App* command = app.add_subcommand("generate", "Write text from a trained model");
  const auto options = std::make_shared<GenerateOptions>();
  command->add_option("RUN", options->run, "Folder of a run, or of one checkpoint")->required();
  command->add_option("--prompt", options->prompt,
                      "Text to continue; '-' reads standard input (default: a new line)");
  command->add_option("--tokens", options->tokens, "Number of tokens to write")
      ->check(CLI::Range(std::int64_t{0}, std::int64_t{1'000'000'000'000}).description(""))
      ->capture_default_str();
  SampleFlags flags;
  flags.temperature =
      command
          ->add_option("--temperature", options->sample.temperature,
                       "Below 1: more predictable; above 1: more random; 0: always the most probable token")
          ->capture_default_str();
  flags.top_k =
      command->add_option("--top-k", options->sample.top_k, "Sample from the k most probable tokens; 0: all")
          ->check(CLI::Range(std::int64_t{0}, std::int64_t{1'000'000'000}).description(""))
          ->capture_default_str();
  flags.top_p = command
                    ->add_option("--top-p", options->sample.top_p,
                                 "Sample from the fewest tokens whose probabilities sum to this")
                    ->capture_default_str();
  flags.seed = command
                   ->add_option("--seed", options->sample.seed,
                                "Seed of the sampling: the same seed gives the same text")
                   ->check(seed_number())
                   ->capture_default_str();
  command
      ->add_option("--session", options->session,
                   "Continue a text that --save-session saved; sampling flags override the saved ones")
      ->check(not_empty());
  command
      ->add_option("--save-session", options->save_session,
                   "File to save the state of the text in, after the last token or Ctrl-C; may be the file "
                   "of --session")
      ->check(not_empty());
  add_checkpoint_option(*command, options->checkpoint, "Which checkpoint of a run");
  command->add_option("--precision", options->precision, "Arithmetic; bf16 on the CPU is a slow check")
      ->check(CLI::IsMember({"f32", "bf16", "tf32", "f64"}))
      ->capture_default_str();
  command->add_option("--device", options->device, "Where to compute")
      ->check(CLI::IsMember({"cpu", "cuda"}))
      ->capture_default_str();
  command->callback(
      [options, flags, &action] { action = [options, flags] { return run_generate(*options, flags); }; });
}

}  // namespace eddy
