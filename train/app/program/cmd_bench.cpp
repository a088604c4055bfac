// `eddy bench`: each benchmark is a command of its own, with its own options. All show a table, and write
// their numbers as JSON and as a page: those of `speed` have their place in a folder, where later calls add rows.
// With --dry-run each checks its options and models, and lists what it would measure.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "models/eddy/registry.h"
#include "tensor/base/format.h"
#include "tensor/files/strict_json.h"
#include "train/app/measure/generate.h"
#include "train/app/measure/length.h"
#include "train/app/measure/ops.h"
#include "train/app/measure/speed.h"
#include "train/app/measure/step.h"
#include "train/app/program/commands.h"
#include "train/app/views/html_page.h"
#include "train/config/config_flags.h"
#include "train/config/new_config.h"
#include "train/config/run_config.h"
#include "train/files/output_file.h"
#include "train/files/text_file.h"
#include "train/record/percent_line.h"
#include "train/words/human_text.h"
#include "train/words/program_name.h"

namespace eddy::app {
using namespace training;
namespace {

// Vocabulary of a configuration that leaves it to the text: the characters of Shakespeare's plays.
constexpr std::int64_t kDefaultVocab = 65;
constexpr std::int64_t kMostLength = 1 << 24;

// A file that --json wrote.
const OutputKind kNumbersFile{"a file of numbers of Eddy's benchmarks", [](const std::string& path) {
                                constexpr std::uintmax_t kMostBytes = std::uintmax_t{1} << 26;
                                if (std::filesystem::file_size(path) > kMostBytes) return false;
                                const nlohmann::json old = parse_strict_json(read_text_file(path)).value;
                                return old.is_object() && old.contains("bench") &&
                                       old.contains("environment");
                              }};

using Keep = std::function<void(const Measurement&)>;

// What a benchmark would measure: a row of its table, or the points of one model.
struct PlannedRow {
  std::string name, about;
};
using PlannedRows = std::vector<PlannedRow>;

void add_dry_run(CLI::App& command, bool& dry_run) {
  command.add_flag("--dry-run", dry_run, "Check the options, list what would be measured, and exit");
}

int show_plan(const PlannedRows& rows) {
  for (const auto& [name, about] : rows) print_line("[{}]{}", name, about.empty() ? "" : " " + about);
  return 0;
}

// "1,793,280 parameters".
std::string size_of(const ModelConfig& model) {
  return grouped(count_parameters(model).count()) + " parameters";
}

// Adds what every benchmark takes. Returns what runs: `measure` does the work; a long one passes what it has so far to
// `keep`, so that the files can be read while it runs. `plan` says what it would measure.
std::function<int()> benchmark(CLI::App& command, std::function<PlannedRows()> plan,
                               std::function<Measurement(const Keep&)> measure) {
  struct Files {
    std::string json, html;
    bool dry_run = false;
  };
  const auto files = std::make_shared<Files>();
  const std::string where = "bench " + command.get_name();
  const CLI::App* const app = command.get_parent()->get_parent();
  add_option(command, "--json", files->json, "Also write the numbers to this file", not_empty());
  add_option(command, "--html", files->html, "Also write a page with plots and tables to this file",
             not_empty());
  add_dry_run(command, files->dry_run);
  return [=] {
    if (!files->json.empty()) check_output(where, files->json, kNumbersFile);
    if (!files->html.empty()) check_output(where, files->html, kPageFile);
    check_two_files(where, "--json", files->json, "--html", files->html);
    if (files->dry_run) return show_plan(plan());
    if (is_terminal(2)) {
      const PlannedRows rows = plan();
      say(rows.size() == 1 ? fmt::format("{}: measures {} {}", where, rows[0].name, rows[0].about)
                           : fmt::format("{}: measures {} rows, from {} to {}", where, rows.size(),
                                         rows.front().name, rows.back().name));
    }
    const Keep keep = [&](const Measurement& so_far) {
      if (!files->json.empty())
        write_output_file(where, files->json, to_json(so_far, command_line_of(*app)).dump(1) + "\n",
                          kNumbersFile);
      if (!files->html.empty()) write_output_file(where, files->html, to_html(so_far), kPageFile);
    };
    const Measurement measurement = measure(keep);
    print(to_text(measurement));
    keep(measurement);
    return 0;
  };
}

void add_seconds(CLI::App& command, double& seconds, const char* help) {
  add_option(command, "--seconds", seconds, help, number_between(1e-3, 1e6));
}

// Adds an option whose 0 stands for a default that `help` names.
void add_size(CLI::App& command, const char* name, std::int64_t& size, std::int64_t most, const char* help) {
  command.add_option(name, size, help)->transform(whole_number(1, most));
}

Described describe_bench_ops(CLI::App& command) {
  struct Flags {
    OpsBenchOptions options;
    std::string device = value_name(DeviceChoice::cpu), precision = value_name(Precision::f32);
  };
  const auto flags = std::make_shared<Flags>();
  std::function<int()> run = benchmark(
      command,
      [flags] {
        PlannedRows rows{{"host_cost", "of one op"}, {"adamw", ""}, {"norm", "of a gradient"}};
        for (const std::string& op : benched_ops(flags->options.filter)) rows.push_back({op, ""});
        return rows;
      },
      [flags](const Keep&) {
        const DevicePrecision placement = choose_device_precision({"bench ops", "--device", "--precision"},
                                                                  flags->device, flags->precision);
        if (placement.dtype != Dtype::f32)
          fail<ConfigError>(
              "bench ops: --precision {}: tensors are f32 (f32, tf32, or bf16 where a CPU rounds)",
              flags->precision);
        flags->options.device = placement.device;
        flags->options.matmul = placement.matmul;
        PercentLine line("bench ops");
        flags->options.progress = std::ref(line);
        return bench_ops(flags->options);
      });
  command.add_option("--filter", flags->options.filter, "Only ops whose name contains this");
  add_seconds(command, flags->options.seconds,
              "Seconds for each op, forward and again with its backward pass");
  add_device_option(command, flags->device);
  add_precision_option(command, flags->precision);
  return {std::move(run)};
}

// Returns a configuration by its short name or by its name in paper_configs().
ModelConfig preset_config(const std::string& name) {
  const std::string full = name == "unit"       ? "shakespeare_unit"
                           : name == "regular6" ? "shakespeare_regular_6"
                                                : name;
  return preset_model(full, "bench step", {"unit", "regular6"});
}

struct StepFlags {
  StepBenchOptions options;
  std::string config, preset = "unit", recompute = value_name(Recompute::none);
  double dropout = -1;
  std::int64_t batch = 0;
  bool no_capture = false;
  ModelConfig defaults;
  ConfigFlags keys;

  // Puts the model and the batch that the flags name into `options`.
  // errors: ConfigError; IoError.
  void complete() {
    ModelConfig& model = options.model;
    if (config.empty()) {
      model = preset_config(preset);
      ConfigKeys of_model = keys_of(model);
      keys.apply(of_model);
      const auto gave = [&](const char* key) { return keys.given().contains(key); };
      imply_names(model, gave("model.family"), gave("model.model"));
    } else {
      NewConfig gathered;
      gathered.merge_file(config);
      gathered.merge_flags(keys.given());
      model = gathered.completed().model;
    }
    if (dropout >= 0) model.dropout = dropout;
    if (model.vocab == 0) model.vocab = kDefaultVocab;
    validate(model);
    // The batch of the paper where a thread takes only a second or two for it.
    options.batch = batch > 0 ? batch : preset == "cifar_block" ? 256 : 16;
    options.capture = !no_capture;
    options.recompute = recompute_named(recompute);
  }
};

Described describe_bench_step(CLI::App& command) {
  const auto flags = std::make_shared<StepFlags>();
  std::function<int()> run = benchmark(
      command,
      [flags] {
        flags->complete();
        const StepBenchOptions& o = flags->options;
        const std::int64_t sequence = o.sequence > 0 ? o.sequence : o.model.context;
        return PlannedRows{
            {o.model.model, fmt::format("{} x {} tokens, {}", o.batch, sequence, size_of(o.model))}};
      },
      [flags](const Keep&) {
        flags->complete();
        Measurement measured;
        naming_flags({{"train.sequence", "--sequence"}, {"train.batch", "--batch"}}, [&] {
          measured = measurement_of(bench_step(flags->options));
          return 0;
        });
        return measured;
      });
  StepBenchOptions& options = flags->options;
  CLI::Option* const config = add_option(command, "--config", flags->config,
                                         "Model of this configuration (TOML or JSON)", not_empty());
  command
      .add_option("--preset", flags->preset,
                  fmt::format("unit, regular6, or a name that `{} models` lists", program_name()))
      ->capture_default_str()
      ->excludes(config);
  add_size(command, "--batch", flags->batch, 1'000'000,
           "Sequences of a step (default: 16, cifar_block: 256)");
  add_size(command, "--sequence", options.sequence, 100'000'000,
           "Tokens of a sequence (default: model.context)");
  add_seconds(command, options.seconds, "Seconds for all steps");
  add_size(command, "--steps", options.steps, 100'000'000, "Timed steps, instead of --seconds");
  command.add_option("--dropout", flags->dropout, "Short for --model.dropout")
      ->check(number_between(0, 0.999));
  add_option(command, "--recompute", flags->recompute,
             "What the backward pass computes again, as train.recompute: compare time and peak memory",
             CLI::IsMember(value_names<Recompute>()));
  command.add_flag(
      "--profile", options.profile,
      "Also show time, work and floor of each op and module, from as many further steps, and time the "
      "products and the attention of a step alone");
  add_device_option(command, options.device);
  add_precision_option(command, options.precision);
  command.add_flag("--no-capture", flags->no_capture,
                   "On a GPU: launch each kernel instead of replaying steps from CUDA graphs");
  flags->keys.add_to(command, keys_of(flags->defaults));
  return {std::move(run)};
}

Described describe_bench_generate(CLI::App& command) {
  struct Flags {
    GenerateBenchOptions options;
    bool no_capture = false;
  };
  const auto flags = std::make_shared<Flags>();
  std::function<int()> run = benchmark(
      command,
      [flags] {
        PlannedRows rows;
        for (const std::string& name : flags->options.configs) {
          ModelConfig model = paper_config(name, "bench generate");
          if (model.vocab == 0) model.vocab = kDefaultVocab;
          rows.push_back({name, size_of(model)});
        }
        return rows;
      },
      [flags](const Keep&) {
        flags->options.capture = !flags->no_capture;
        return bench_generate(flags->options);
      });
  GenerateBenchOptions& options = flags->options;
  command
      .add_option("--configs", options.configs,
                  fmt::format("Models to compare, by names that `{} models` lists", program_name()))
      ->delimiter(',')
      ->capture_default_str();
  add_size(command, "--min-length", options.min_length, kMostLength,
           "Tokens before the timed one, at the first point (default: 256, on a GPU 1000)");
  add_size(command, "--max-length", options.max_length, kMostLength,
           "The same at the last point (default: 65536, on a GPU 100000)");
  add_option(command, "--batch", options.batch, "Sequences side by side", whole_number(1, 1'000'000));
  add_seconds(command, options.seconds, "Seconds for all lengths together");
  add_device_option(command, options.device);
  add_precision_option(command, options.precision);
  command.add_flag("--no-capture", flags->no_capture,
                   "On a GPU: launch each kernel instead of replaying tokens from CUDA graphs");
  return {std::move(run)};
}

Described describe_bench_length(CLI::App& command) {
  struct Flags {
    LengthBenchOptions options;
    std::int64_t memory_mib = 0;
  };
  const auto flags = std::make_shared<Flags>();
  std::function<int()> run = benchmark(
      command,
      [flags] {
        const LengthBenchOptions& o = flags->options;
        validate(o);
        PlannedRows rows;
        for (const std::string& name : o.models) {
          const ModelConfig model = length_model(o, name, o.shortest);
          rows.push_back({name, fmt::format("{} to {} tokens, {}", grouped(o.shortest), grouped(o.longest),
                                            size_of(model))});
        }
        return rows;
      },
      [flags](const Keep& keep) {
        flags->options.memory_bytes = flags->memory_mib << 20;
        return bench_length(flags->options, keep);
      });
  LengthBenchOptions& options = flags->options;
  command.add_option("--models", options.models, "Models to compare")->delimiter(',')->capture_default_str();
  add_option(command, "--shortest", options.shortest,
             "Tokens of the shortest segment; lengths double from there", whole_number(1, kMostLength));
  add_option(command, "--longest", options.longest, "Tokens of the longest segment",
             whole_number(1, kMostLength));
  add_option(command, "--dim", options.dim, "Width of the models", whole_number(1, 1 << 20));
  add_option(command, "--layers", options.layers, "Layers (universal always has one)",
             whole_number(1, 1 << 20));
  add_option(command, "--batch", options.batch, "Sequences of a step", whole_number(1, 1'000'000));
  add_seconds(command, options.seconds, "Seconds for each length");
  add_size(command, "--memory-mib", flags->memory_mib, std::int64_t{1} << 30,
           "Stop a model at the length that needs more MiB (default: 4096; on a GPU its memory)");
  add_device_option(command, options.device);
  add_precision_option(command, options.precision);
  return {std::move(run)};
}

Described describe_bench_speed(CLI::App& command) {
  const auto options = std::make_shared<SpeedOptions>();
  const auto dry_run = std::make_shared<bool>(false);
  command.add_option("--rows", options->rows, "Names of rows, separated by commas (default: all)")
      ->delimiter(',');
  command.add_option("--scale", options->scale, "paper, or small, which shrinks the rows for a CPU")
      ->capture_default_str();
  command.add_option("--runs", options->runs, "Folder of the results")->capture_default_str();
  command.add_option("--device", options->device, "Where to compute (default: cuda, at scale small cpu)")
      ->check(CLI::IsMember(value_names<DeviceChoice>()));
  command
      .add_option("--seconds", options->seconds,
                  "Seconds of timed steps for each row (default: 10, at scale small three steps)")
      ->check(number_between(1e-3, 1e6));
  command.add_flag(
      "--profile", options->profile,
      "Also show where the time of each row goes, and time its products and its attention alone");
  add_dry_run(command, *dry_run);
  const CLI::App* const app = command.get_parent()->get_parent();
  return {[options, dry_run, app] {
    if (*dry_run) {
      PlannedRows rows;
      for (const SpeedRow& row : wanted_speed_rows(*options))
        rows.push_back({row.name, fmt::format("{}, {}", row.title, size_of(row.model))});
      return show_plan(rows);
    }
    keep_on_without_output();
    options->command = command_line_of(*app);
    const std::vector<SpeedResult> results = bench_speed(*options, print_now);
    const bool failed =
        std::any_of(results.begin(), results.end(), [](const SpeedResult& row) { return !row.bench; });
    return failed ? 3 : 0;
  }};
}

Described describe_bench(CLI::App&) {
  return {
      nullptr,
      {{"ops", "Measure every op, forward and backward, against the rate of a large product and of memory",
        Computes::products, Results::printed, describe_bench_ops},
       {"step", "Measure a whole training step of a model on random tokens, against the time of its products",
        Computes::products, Results::printed, describe_bench_step},
       {"generate", "Measure the next token of models after texts of growing length", Computes::products,
        Results::printed, describe_bench_generate},
       {"length", "Measure training steps on segments of growing length, for one model of each family",
        Computes::products, Results::printed, describe_bench_length},
       {"speed",
        "Measure training steps of models of all families, beside figures given for PyTorch on a GPU",
        Computes::products, Results::files, describe_bench_speed}}};
}

}  // namespace

Command commands::bench() {
  return {"bench", "Measure ops, training steps or generation against the limits of this machine",
          Computes::nothing, Results::printed, describe_bench};
}

}  // namespace eddy::app
