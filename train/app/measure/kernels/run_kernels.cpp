// Tries the right kernels of each choice on steps of the run itself, one choice after the other; keeps the fastest.
#include "train/app/measure/kernels/run_kernels.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "ops/backends.h"
#include "ops/core/product_algorithms.h"
#include "ops/core/warnings.h"
#include "tensor/base/error.h"
#include "tensor/base/format.h"
#include "tensor/memory/allocator.h"
#include "train/app/measure/bench.h"
#include "train/app/measure/step_trial.h"
#include "train/files/digest.h"
#include "train/files/folders.h"
#include "train/files/text_file.h"

namespace eddy::app {
using namespace training;
using namespace detail;
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

// A choice in a list of kernels: the one that it takes, and those that may stand in its place.
struct Choice {
  std::string_view name;
  std::vector<std::string> kernels;
  std::string taken{};
};
using Choices = std::vector<Choice>;

bool passed(const KernelVerdict& verdict, const std::string& trial) {
  return std::any_of(verdict.trials.begin(), verdict.trials.end(),
                     [&](const KernelTrial& t) { return t.name == trial && t.passed(); });
}

// The verdict's choices. One of which a kernel was asked for has no others.
Choices choices_of(const KernelVerdict& verdict) {
  Choices choices;
  const std::string list = "," + verdict.kernels() + ",";
  for (std::size_t i = 0; i < std::size(kKernelRecords); ++i) {
    const KernelRecord& record = kKernelRecords[i];
    Choice& choice = choices.emplace_back(Choice{record.name, kernels_in(record.timed)});
    const std::string before = fmt::format(",{}=", choice.name);
    const std::size_t begin = list.find(before) + before.size();
    choice.taken = list.substr(begin, list.find(',', begin) - begin);
    std::erase_if(choice.kernels, [&](const std::string& kernel) {
      return kernel == choice.taken ||
             (kernel != "plain" && !passed(verdict, fmt::format("{}={}", record.part_of, kernel)));
    });
    if (kernel_choice(static_cast<KernelOp>(i)).asked) choice.kernels.clear();
  }
  return choices;
}

bool is_open(const Choices& choices) {
  return std::any_of(choices.begin(), choices.end(), [](const Choice& c) { return !c.kernels.empty(); });
}

std::string list_of(const Choices& choices) {
  std::string list;
  for (const Choice& choice : choices)
    list += fmt::format("{}{}={}", list.empty() ? "" : ",", choice.name, choice.taken);
  return list;
}

// What a step is, to be known again, with the kernels that were asked for.
std::string description_of(const PlannedRun& run) {
  const TrainConfig& t = run.config.train;
  std::string text = fmt::format("{} {} {} {} {} {} {} {}", training::to_json(run.config.model).dump(),
                                 t.precision, t.capture, to_string(run.batch.tokens.shape()), t.accumulate,
                                 t.micro_batches, t.recompute, run.carries_state);
  for (std::size_t i = 0; i < std::size(kKernelRecords); ++i)
    if (const auto [kernel, asked] = kernel_choice(static_cast<KernelOp>(i)); asked)
      text += fmt::format(" {}={}", kKernelRecords[i].name, kernel_name(kernel));
  return text;
}

// The seconds of the best of some steps, of a model of its own.
std::optional<double> seconds_of_step(const PlannedRun& run, const DevicePrecision& placement) {
  constexpr double kTimed = 0.3;
  std::optional<double> seconds;
  try {
    StepTrial trial(steps_of_run(run), placement);
    trial.warm_up();
    seconds = measure([&] { static_cast<void>(trial.step()); }, kTimed).best;
  } catch (const Error&) {  // it does not fit the memory, or its numbers do not stay finite
  }
  allocator(placement.device).trim();
  return seconds;
}

// While alive, warnings of trials are not those of the run.
class WarningsOfTrials {
 public:
  WarningsOfTrials() : before_(take_warnings()) {}
  ~WarningsOfTrials() {
    reset_warnings();
    for (const std::string& warning : before_) add_warning(warning);
  }
  WarningsOfTrials(const WarningsOfTrials&) = delete;
  WarningsOfTrials& operator=(const WarningsOfTrials&) = delete;

 private:
  std::vector<std::string> before_;
};

// The seconds of a step in f32 and in bf16.
struct StepsCompared {
  double f32 = 0, bf16 = 0;
};

// Those that such a file has for these steps.
std::optional<StepsCompared> kept_steps(const fs::path& file, const std::string& steps) {
  std::error_code error;
  if (file.empty() || !fs::exists(file, error)) return {};
  try {
    const json kept = read_json_file(file);
    if (kept.at("steps").get<std::string>() != steps) return {};
    return StepsCompared{kept.at("f32_seconds").get<double>(), kept.at("bf16_seconds").get<double>()};
  } catch (const json::exception&) {  // as if there were none
  } catch (const Error&) {
  }
  return {};
}

// Where what is found out about these steps is kept; "" without a folder.
fs::path file_of_steps(const ProveOptions& options, const KernelVerdict& verdict, const std::string& steps) {
  if (options.cache.empty()) return {};
  return verdict_file(options.cache, verdict.gpu, verdict.build + "\n" + steps);
}

// Keeps what was found out in such a file.
void keep_in(const fs::path& file, const json& found) {
  if (file.empty()) return;
  make_folders(file.parent_path());
  replace_text_file(file, found.dump(1) + "\n");
}

// Takes the kernels and the algorithms that such a file has for these steps.
// Returns whether there are any that may run.
bool takes_kept(const fs::path& file, const std::string& steps) {
  std::error_code error;
  if (file.empty() || !fs::exists(file, error)) return false;
  try {
    const json kept = read_json_file(file);
    if (kept.at("steps").get<std::string>() != steps) return false;
    set_product_algorithms(kept.at("algorithms").get<ProductAlgorithms>());
    set_automatic_kernels(kept.at("kernels").get<std::string>());
    return true;
  } catch (const json::exception&) {  // as if there were none
  } catch (const Error&) {
  }
  return false;
}

// The algorithms of shapes that were timed for this GPU and this build,
// in a file of their own: each shape is timed once.
class KeptProducts {
 public:
  KeptProducts(const ProveOptions& options, const KernelVerdict& verdict)
      : verdict_(verdict),
        file_(file_of_steps(options, verdict, kWhat)),
        kept_(read(file_)),
        timing_(kept_) {}

  // Keeps what was timed, and says what that was.
  std::string keep() const {
    const ProductAlgorithms known = timing_.known();
    if (known != kept_)
      keep_in(file_,
              {{"gpu", verdict_.gpu}, {"build", verdict_.build}, {"steps", kWhat}, {"algorithms", known}});
    return timing_.summary();
  }

 private:
  static constexpr const char* kWhat = "products";  // of all steps

  static ProductAlgorithms read(const fs::path& file) {
    std::error_code error;
    if (file.empty() || !fs::exists(file, error)) return {};
    try {
      return read_json_file(file).at("algorithms").get<ProductAlgorithms>();
    } catch (const json::exception&) {  // as if there were none
    } catch (const Error&) {
    }
    return {};
  }

  const KernelVerdict& verdict_;
  fs::path file_;
  ProductAlgorithms kept_;
  ProductTiming timing_;
};

}  // namespace

std::string fastest_kernels(const KernelVerdict& verdict, const StepSeconds& seconds_of) {
  Choices best = choices_of(verdict);
  if (!is_open(best)) return list_of(best);
  std::optional<double> least = seconds_of(list_of(best));
  for (std::size_t i = 0; i < best.size(); ++i)
    for (const std::string& kernel : std::vector(best[i].kernels)) {
      Choices tried = best;
      tried[i].taken = kernel;
      const std::optional<double> seconds = seconds_of(list_of(tried));
      if (!seconds || (least && *seconds > kWorthIt * *least)) continue;
      least = seconds;
      best = tried;
    }
  return list_of(best);
}

void choose_kernels_of_run(const PlannedRun& run, const ProveOptions& options) {
  if (run.placement.device == kCpu) return;
  const auto [algorithms, asked] = kernel_choice(KernelOp::algorithms);
  const bool must_time = asked && algorithms == Kernel::timed;
  std::optional<KernelVerdict> verdict;
  if (has_automatic_kernels()) verdict = prove_kernels(options);
  if (!verdict && must_time) verdict.emplace(KernelVerdict{gpu_identity(), program_digest(), "", {}});
  if (!verdict || !(must_time || is_open(choices_of(*verdict)))) return;
  const std::string steps = description_of(run);
  const fs::path file = file_of_steps(options, *verdict, steps);
  if (takes_kept(file, steps)) return;
  const auto say = [&](const std::string& line) {
    if (options.say) options.say("kernels: " + line);
  };
  say("steps of this run are timed with each that is right (once for such a run)");
  const WarningsOfTrials warnings;
  KeptProducts products(options, *verdict);
  std::map<std::string, ProductAlgorithms> tried_with;  // each tries its own
  const auto seconds_of = [&](const std::string& tried) {
    set_automatic_kernels(tried);
    set_product_algorithms({});
    const std::optional<double> seconds = seconds_of_step(run, run.placement);
    tried_with[tried] = product_algorithms();
    const std::string what = describe(gpu_kernels().value());
    say(seconds ? fmt::format("{:.3g} ms a step with {}", *seconds * 1e3, what)
                : fmt::format("no step with {}", what));
    return seconds;
  };
  const std::string kernels = fastest_kernels(*verdict, seconds_of);
  if (must_time && !tried_with.contains(kernels)) static_cast<void>(seconds_of(kernels));
  set_automatic_kernels(kernels);
  set_product_algorithms(tried_with[kernels]);
  const std::string taken = describe(gpu_kernels().value());
  if (const std::string what = products.keep(); !what.empty()) say(what);
  say("taken: " + taken);
  keep_in(file, {{"gpu", verdict->gpu},
                 {"build", verdict->build},
                 {"steps", steps},
                 {"kernels", taken},
                 {"algorithms", product_algorithms()}});
}

std::string bf16_text() {
  return "precision: f32, without the GPU's tensor cores; --train.precision bf16 multiplies on them, on an H200 up to 15 times as "
         "fast, and takes less memory";
}

std::string bf16_text(const PlannedRun& run, const ProveOptions& options) {
  if (!has_automatic_kernels()) return bf16_text();
  const std::optional<KernelVerdict> verdict = prove_kernels(options);
  if (!verdict) return bf16_text();
  const std::string steps = description_of(run) + " beside bf16";
  const fs::path file = file_of_steps(options, *verdict, steps);
  std::optional<StepsCompared> compared = kept_steps(file, steps);
  if (!compared) {
    const WarningsOfTrials warnings;
    const DevicePrecision in_bf16 =
        choose_device_precision({"train", "train.device", "train.precision"}, value_name(DeviceChoice::cuda),
                                value_name(Precision::bf16));
    const std::optional<double> f32 = seconds_of_step(run, run.placement),
                                bf16 = seconds_of_step(run, in_bf16);
    if (!f32 || !bf16) return bf16_text();
    compared = {*f32, *bf16};
    keep_in(file, {{"gpu", verdict->gpu},
                   {"build", verdict->build},
                   {"steps", steps},
                   {"f32_seconds", *f32},
                   {"bf16_seconds", *bf16}});
  }
  return fmt::format(
      "precision: f32, {:.3g} ms a step here; --train.precision bf16 makes it {:.3g} ms, by the GPU's tensor cores, and takes "
      "less memory",
      compared->f32 * 1e3, compared->bf16 * 1e3);
}

}  // namespace eddy::app
