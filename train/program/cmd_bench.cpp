// `eddy bench`: ops, step and generate measure speed against the limits of this machine, taken in the same
// run; length measures steps against the length of the segment; staircase measures what more recurrent steps
// cost and bring.
#include <CLI/CLI.hpp>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "models/model.h"
#include "tensor/base/format.h"
#include "train/bench/generate.h"
#include "train/bench/length.h"
#include "train/bench/ops.h"
#include "train/bench/step.h"
#include "train/config/config_flags.h"
#include "train/config/device_precision.h"
#include "train/config/run_config.h"
#include "train/files/text_file.h"
#include "train/program/commands.h"
#include "train/program/options.h"
#include "train/program/output.h"
#include "train/reproduce/staircase_table.h"
#include "train/run/environment.h"

namespace eddy {
namespace {

constexpr const char* kOpsGroup = "bench ops";
constexpr const char* kStepGroup = "bench step";
constexpr const char* kGenerateGroup = "bench generate";
constexpr const char* kStaircaseGroup = "bench staircase";
constexpr const char* kLengthGroup = "bench length";
constexpr const char* kModelsGroup = "bench length and bench staircase";
constexpr const char* kPrecisionGroup = "bench step and bench length";
constexpr const char* kStepStaircaseGroup = "bench step and bench staircase";
constexpr const char* kBatchGroup = "bench step, bench generate, bench length and bench staircase";
constexpr const char* kCaptureGroup = "bench step and bench generate";
constexpr const char* kDeviceGroup =
    "bench ops, bench step, bench generate, bench length and bench staircase";
constexpr const char* kSpeedGroup = "bench ops, bench step, bench generate and bench length";
constexpr const char* kPageGroup = "bench generate, bench length and bench staircase";
// Vocabulary of a configuration that leaves it to the text: the characters of Shakespeare's plays.
constexpr std::int64_t kDefaultVocab = 65;

struct BenchFlags {
  std::string what, json_path, device = "cpu";
  double seconds = 0;
  OpsBenchOptions ops;
  std::string config_path, preset;
  double dropout = -1;
  std::int64_t batch = 0, steps = 0;  // 0: the default of the benchmark
  StepBenchOptions step;
  ModelConfig defaults;
  ConfigFlags keys;
  GenerateBenchOptions generate;
  StaircaseBenchOptions staircase;
  LengthBenchOptions length;
  std::int64_t memory_mib = 0;
  bool no_capture = false;
  std::string html_path;
};

// Returns a configuration by its short name or by its name in paper_configs().
ModelConfig preset_config(const std::string& name) {
  const std::string full = name == "unit"       ? "shakespeare_unit"
                           : name == "regular6" ? "shakespeare_regular_6"
                                                : name;
  std::vector<std::string> known{"unit", "regular6"};
  for (const NamedConfig& named : paper_configs()) {
    if (named.name == full) return named.config;
    known.push_back(named.name);
  }
  fail<ConfigError>("bench step: there is no preset '{}' (did you mean '{}'? one of {})", name,
                    nearest_match(name, known), fmt::join(known, ", "));
}

// Returns the batch of the paper where a thread takes only a second or two for it, else 16.
std::int64_t default_batch(const std::string& preset) {
  return preset == "cifar_block" ? 256 : 16;
}

// Refuses options of another benchmark, which would be ignored silently.
void refuse_options_of_another(const CLI::App& command, const std::string& what) {
  for (const CLI::Option* option : command.get_options()) {
    std::string group = option->get_group();
    if (group.starts_with("[")) group = kStepGroup;  // the configuration keys of a model
    if (option->count() > 0 && group.starts_with("bench ") &&
        group.find("bench " + what) == std::string::npos)
      fail<ConfigError>("bench {}: {} belongs to {}", what, option->get_name(false, true), group);
  }
}

template <class Bench>
void write_json(const BenchFlags& flags, const Bench& bench) {
  if (flags.json_path.empty()) return;
  nlohmann::json value{{"bench", flags.what}, {"environment", environment_lines()}};
  value.update(to_json(bench));
  replace_text_file(flags.json_path, value.dump(1) + "\n");
}

template <class Bench>
void show(const BenchFlags& flags, const Bench& bench) {
  print(to_text(bench));
  write_json(flags, bench);
}

int run_staircase(BenchFlags& flags) {
  if (flags.steps > 0) flags.staircase.steps = flags.steps;
  if (flags.batch > 0) flags.staircase.batch = flags.batch;
  flags.staircase.device = flags.device;
  const auto log = [](std::string_view text) {
    print(text);
    flush_output();  // training writes to standard output too, not through print()
  };
  // After every point, so that a long benchmark can be read while it runs and loses nothing.
  const auto keep = [&](const StaircaseBench& bench) {
    write_json(flags, bench);
    if (!flags.html_path.empty()) replace_text_file(flags.html_path, to_html(bench, environment_lines()));
  };
  const StaircaseBench bench = bench_staircase(flags.staircase, log, keep);
  print(to_text(bench));
  if (!bench.interrupted) return 0;
  keep(bench);
  print("interrupted: repeat the command to continue\n");
  return 130;
}

int run_length(BenchFlags& flags, const CLI::App& command) {
  LengthBenchOptions& options = flags.length;
  if (command.count("--models") > 0) options.models = flags.staircase.models;
  if (command.count("--dim") > 0) options.dim = flags.staircase.dim;
  if (command.count("--layers") > 0) options.layers = flags.staircase.layers;
  if (flags.batch > 0) options.batch = flags.batch;
  if (flags.seconds > 0) options.seconds = flags.seconds;
  options.memory_bytes = flags.memory_mib << 20;
  options.device = flags.device;
  options.precision = flags.step.precision;
  // After every point, so that a long benchmark can be read while it runs.
  const LengthBench bench = bench_length(options, [&](const LengthBench& so_far) {
    write_json(flags, so_far);
    if (!flags.html_path.empty()) replace_text_file(flags.html_path, to_html(so_far, environment_lines()));
  });
  print(to_text(bench));
  return 0;
}

int run_bench(BenchFlags& flags, const CLI::App& command) {
  refuse_options_of_another(command, flags.what);
  const std::string where = "bench " + flags.what;
  if (!flags.json_path.empty()) check_bench_output(where.c_str(), flags.json_path);
  if (!flags.html_path.empty()) check_page_output(where.c_str(), flags.html_path);
  if (flags.what == "ops") {
    if (flags.seconds > 0) flags.ops.seconds = flags.seconds;
    flags.ops.device =
        choose_device_precision({"bench ops", "--device", "--precision"}, flags.device, "f32").device;
    show(flags, bench_ops(flags.ops));
    return 0;
  }
  if (flags.what == "generate") {
    if (flags.seconds > 0) flags.generate.seconds = flags.seconds;
    flags.generate.device = flags.device;
    flags.generate.capture = !flags.no_capture;
    if (flags.batch > 0) flags.generate.batch = flags.batch;
    const GenerateBench bench = bench_generate(flags.generate);
    show(flags, bench);
    if (!flags.html_path.empty()) replace_text_file(flags.html_path, to_html(bench, environment_lines()));
    return 0;
  }
  if (flags.what == "length") return run_length(flags, command);
  if (flags.what == "staircase") return run_staircase(flags);
  ModelConfig& model = flags.step.model;
  model = !flags.config_path.empty() ? load_run_config(flags.config_path).model
                                     : preset_config(flags.preset.empty() ? "unit" : flags.preset);
  ConfigKeys keys = keys_of(model);
  flags.keys.apply(keys);
  if (flags.dropout >= 0) model.dropout = flags.dropout;
  if (model.vocab == 0) model.vocab = kDefaultVocab;
  validate(model);
  flags.step.batch = flags.batch > 0 ? flags.batch : default_batch(flags.preset);
  flags.step.steps = flags.steps;
  flags.step.capture = !flags.no_capture;
  flags.step.device = flags.device;
  if (flags.seconds > 0) flags.step.seconds = flags.seconds;
  show(flags, bench_step(flags.step));
  return 0;
}

void add_staircase_options(CLI::App& command, StaircaseBenchOptions& options) {
  const auto add = [&](const char* name, auto& target, const char* help) {
    return command.add_option(name, target, help)->group(kStaircaseGroup)->capture_default_str();
  };
  const auto size = CLI::Range(1, 1 << 20);
  add("--n", options.n, "Recurrent steps to compare")->delimiter(',')->check(size);
  add("--c", options.c, "Forward sizes to compare, in tokens; each divides the segment")
      ->delimiter(',')
      ->check(size);
  add("--models", options.models,
      "staircase: of transformer_xl, staircase, cached_staircase (M = 1), ladder, universal, feedback; "
      "length: any (one of each recurrent family, and regular)")
      ->group(kModelsGroup)
      ->delimiter(',');
  add("--data", options.data, "File or folder of text (default: the text task's own)")->check(not_empty());
  add("--tokenizer", options.tokenizer, "char or byte");
  add("--segment", options.segment, "Tokens of a segment: gradients stop at its ends")->check(size);
  add("--dim", options.dim, "Width of the model; the MLP is four times as wide")
      ->group(kModelsGroup)
      ->check(size);
  add("--layers", options.layers, "Layers (universal always has one)")->group(kModelsGroup)->check(size);
  add("--heads", options.heads, "Attention heads")->check(size);
  add("--learning-rate", options.learning_rate, "Learning rate after the warm-up")
      ->check(number_between(1e-9, 10));
  add("--seed", options.seed, "Seed of weights and data")->check(seed_number());
  add("--runs", options.runs, "Folder of the runs");
}

void add_length_options(CLI::App& command, BenchFlags& flags) {
  const auto length = CLI::Range(1, 1 << 24);
  command
      .add_option("--shortest", flags.length.shortest,
                  "Tokens of the shortest segment; lengths double from there")
      ->group(kLengthGroup)
      ->capture_default_str()
      ->check(length);
  command.add_option("--longest", flags.length.longest, "Tokens of the longest segment")
      ->group(kLengthGroup)
      ->capture_default_str()
      ->check(length);
  command
      .add_option("--memory-mib", flags.memory_mib,
                  "Stop a model at the length that needs more MiB (default: 4096; on a GPU its memory)")
      ->group(kLengthGroup)
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 30));
}

}  // namespace

void add_bench_command(CLI::App& app, std::function<int()>& action) {
  CLI::App* command = app.add_subcommand("bench",
                                         "Measure ops, training steps or generation against this machine's "
                                         "limits, or what recurrent steps bring");
  const auto flags = std::make_shared<BenchFlags>();
  command
      ->add_option(
          "what", flags->what,
          "ops: every op; step: a training step of a model; generate: the next token after growing texts; "
          "length: training steps on growing segments, by family; staircase: quality, time and memory by "
          "recurrent steps and forward size")
      ->required()
      ->check(CLI::IsMember({"ops", "step", "generate", "length", "staircase"}));
  command->add_option("--json", flags->json_path, "Also write the numbers to this file")->check(not_empty());
  command
      ->add_option("--seconds", flags->seconds,
                   "Seconds to measure: ops: each op (0.2); step: all steps (20); generate: all lengths "
                   "(30); length: each length (1)")
      ->check(number_between(1e-3, 1e6))
      ->group(kSpeedGroup);
  command->add_option("--device", flags->device, "Where to compute (default: cpu)")
      ->check(CLI::IsMember({"cpu", "cuda"}))
      ->group(kDeviceGroup);
  command->add_option("--filter", flags->ops.filter, "Only ops whose name contains this")->group(kOpsGroup);

  const auto step_option = [&](const char* name, auto& target, const char* help) {
    return command->add_option(name, target, help)->group(kStepGroup);
  };
  CLI::Option* config =
      step_option("--config", flags->config_path, "Model of this configuration (TOML or JSON)")
          ->check(not_empty());
  step_option("--preset", flags->preset, "unit (default), regular6, or a name that `eddy models` lists")
      ->excludes(config);
  command
      ->add_option(
          "--batch", flags->batch,
          "Sequences of a step (default: 16, cifar_block: 256); generate: sequences side by side (1)")
      ->check(CLI::Range(1, 1'000'000))
      ->group(kBatchGroup);
  step_option("--sequence", flags->step.sequence, "Tokens of a sequence (default: model.context)")
      ->check(CLI::Range(1, 100'000'000));
  command
      ->add_option("--steps", flags->steps,
                   "step: timed steps, instead of --seconds; staircase: training steps (200)")
      ->check(CLI::Range(1, 100'000'000))
      ->group(kStepStaircaseGroup);
  step_option("--dropout", flags->dropout, "Short for --model.dropout")->check(number_between(0, 0.999));
  step_option("--precision", flags->step.precision, "Arithmetic; bf16 on the CPU is a slow check")
      ->check(CLI::IsMember({"f32", "bf16", "tf32", "f64"}))
      ->group(kPrecisionGroup);
  command
      ->add_flag("--profile", flags->step.profile,
                 "Also show time, work and floor of each op and module, from as many further steps")
      ->group(kStepGroup);
  command
      ->add_flag("--no-capture", flags->no_capture,
                 "On a GPU: launch each kernel instead of replaying steps or tokens from CUDA graphs")
      ->group(kCaptureGroup);
  flags->keys.add_to(*command, keys_of(flags->defaults));

  const auto generate_option = [&](const char* name, auto& target, const char* help) {
    return command->add_option(name, target, help)->group(kGenerateGroup);
  };
  generate_option("--configs", flags->generate.configs, "Configurations of the papers to compare")
      ->delimiter(',')
      ->capture_default_str();
  generate_option("--min-length", flags->generate.min_length,
                  "Tokens before the timed one, at the first point (256, on a GPU 1000)")
      ->check(CLI::Range(1, 1 << 24));
  generate_option("--max-length", flags->generate.max_length,
                  "The same at the last point (65536, on a GPU 100000)")
      ->check(CLI::Range(1, 1 << 24));
  command->add_option("--html", flags->html_path, "Also write a page with plots to this file")
      ->check(not_empty())
      ->group(kPageGroup);
  add_staircase_options(*command, flags->staircase);
  add_length_options(*command, *flags);
  command->callback(
      [flags, command, &action] { action = [flags, command] { return run_bench(*flags, *command); }; });
}

}  // namespace eddy
