// What a training step enqueues on a GPU, counted without one: launches, operations, bytes and memory of the
// rows of `eddy bench speed`, at their full sizes. The step's host code and that of cuda/ run as usual;
// kernels, products and copies within the GPU are counted and not computed.
//
//   count_gpu_steps                               all rows
//   count_gpu_steps --rows slide_13l --kernels    and the counts of each op and each kernel
//   count_gpu_steps --alignment                   and the products whose rows are not aligned to 16 bytes
//   count_gpu_steps --weights                     and what gradients of weights on a second stream would save at most
//   count_gpu_steps --preset copy --batch 64 --vocab 16 --dropout    a configuration of the papers
//   count_gpu_steps --preset shakespeare_unit --token                the launches of generating one token
//
// It also prints a lower bound of the step's time: the sum over kernels of the longer of operations and bytes
// at the given rates, plus the time of the launches. A step would take this if each kernel reached its
// roofline; none does.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "ops/backends.h"
#include "ops/cost/recorded_calls.h"
#include "tensor/base/error.h"
#include "tensor/base/format.h"
#include "tensor/memory/allocator.h"
#include "tests/emulation/emulation.h"
#include "train/app/measure/profile.h"
#include "train/app/measure/speed.h"
#include "train/app/measure/step_trial.h"
#include "train/app/views/table.h"
#include "train/config/run_config.h"
#include "train/generate/generate.h"
#include "train/words/human_text.h"

using namespace eddy;
using namespace eddy::training;
using namespace eddy::app;

namespace {

struct Options {
  std::vector<std::string> rows;
  bool kernels = false, alignment = false, weights = false, dropout = false, token = false;
  std::string precision = "bf16";
  std::string preset;  // in place of rows
  std::int64_t batch = 1, sequence = 0, vocab = 256;
  double bf16 = 700e3, tf32 = 350e3;  // GFLOP/s of products
  double memory = 4000;               // GB/s
  double launch = 1.5;                // us
};

using Cells = std::vector<std::string>;

// Counts kernels by the slot, or the copy, that launches them.
class KernelCounts final : public KernelObserver {
 public:
  struct Sum {
    std::int64_t calls = 0;
    double flops = 0, bytes = 0, seconds = 0;
    void operator+=(const Sum& part) {
      calls += part.calls;
      flops += part.flops;
      bytes += part.bytes;
      seconds += part.seconds;
    }
  };

  explicit KernelCounts(const Options& options) : options_(options) {}
  void kernel_begins() override {}
  void kernel_done(const char* name, const Cost& cost) override {
    const double rate = cost.half ? options_.bf16 : options_.tf32;
    const Sum one{1, cost.flops, cost.bytes,
                  std::max(cost.flops / rate, cost.bytes / options_.memory) * 1e-9};
    named[name] += one;
    all += one;
  }

  std::map<std::string, Sum> named;
  Sum all;

 private:
  const Options& options_;
};

Cells cells(const std::string& name, std::int64_t calls, double flops, double bytes, double seconds) {
  return {name, std::to_string(calls), table_number(flops * 1e-12), table_number(bytes * 1e-9),
          table_number(seconds * 1e3)};
}

void print_kernels(const KernelCounts& counts) {
  std::vector<std::pair<std::string, KernelCounts::Sum>> named(counts.named.begin(), counts.named.end());
  std::stable_sort(named.begin(), named.end(),
                   [](const auto& a, const auto& b) { return a.second.seconds > b.second.seconds; });
  Table table{{"kernel", "calls", "TFLOP", "GB", "roofline, ms"}, {}, "lr"};
  for (const auto& [name, sum] : named)
    table.rows.push_back(cells(name, sum.calls, sum.flops, sum.bytes, sum.seconds));
  std::printf("%s\n", to_text(table).c_str());
}

void print_ops(const char* head, std::vector<ProfileRow> rows) {
  std::stable_sort(rows.begin(), rows.end(), [](const auto& a, const auto& b) { return a.floor > b.floor; });
  Table table{{head, "calls", "TFLOP", "GB", "roofline, ms"}, {}, "lr"};
  for (const ProfileRow& row : rows)
    if (row.floor > 0) table.rows.push_back(cells(row.name, row.calls, row.flops, row.bytes, row.floor));
  std::printf("%s\n", to_text(table).c_str());
}

void print_counts(const char* head, const std::map<std::string, std::int64_t>& counts) {
  Table table{{head, "times"}, {}, "lr"};
  for (const auto& [name, times] : counts)
    if (times > 0) table.rows.push_back({name, std::to_string(times)});
  std::printf("%s\n", to_text(table).c_str());
}

// What a step would save if its products for gradients of weights, dy^T x, ran on a second stream, at most: the time
// that kernels of the backward pass wait for memory while tensor cores have nothing to do, as far as those products
// fill it; and beside that the launches of those products.
Cells count_weights(const SpeedRow& row, const Options& options, StepTrial& trial, Device device,
                    const KernelCounts& counts) {
  std::vector<RecordedCall> calls;
  {
    RecordCalls recorded(device);
    static_cast<void>(trial.step_uncaptured());
    calls = recorded.take();
  }
  double products = 0, idle = 0;
  std::int64_t launched = 0;
  for (const RecordedCall& call : calls) {
    const auto* const product = std::get_if<detail::GemmArgs>(&call);
    if (product == nullptr || !product->transpose_a) continue;
    const Cost cost = cost_of(call);
    products +=
        std::max(cost.flops / (cost.half ? options.bf16 : options.tf32), cost.bytes / options.memory) * 1e-9;
    ++launched;
  }
  for (const auto& [name, sum] : counts.named)
    if (name.ends_with("_backward") || name.ends_with("_sums") || name == "add_into")
      idle += std::max(0.0, sum.seconds - sum.flops / options.bf16 * 1e-9);
  return {row.title,
          std::to_string(launched),
          table_number(products * 1e3),
          table_number(idle * 1e3),
          table_number(std::min(products, idle) * 1e3),
          table_number(static_cast<double>(launched) * options.launch * 1e-3)};
}

// Returns the launches of one step, with those of a graph one by one.
std::map<std::string, std::int64_t> launches_of(StepTrial& trial) {
  synchronize(cuda_device());
  const std::map<std::string, std::int64_t> before = emulation::launches();
  static_cast<void>(trial.step());
  synchronize(cuda_device());
  std::map<std::string, std::int64_t> counts = emulation::launches();
  for (const auto& [name, times] : before) counts[name] -= times;
  return counts;
}

// A configuration of the papers as a row.
SpeedRow row_of(const Options& options) {
  for (const NamedConfig& named : paper_configs()) {
    if (named.name != options.preset) continue;
    SpeedRow row{named.name, "", named.config, options.batch, options.sequence};
    if (row.model.vocab == 0) row.model.vocab = options.vocab;
    if (row.sequence == 0) row.sequence = row.model.context;
    row.title = fmt::format("{}, {} x {}", row.name, row.batch, row.sequence);
    return row;
  }
  fail<ConfigError>("there is no configuration '{}' (eddy models lists them)", options.preset);
}

// Returns the row's line of the table, and with --weights adds one to the other.
Cells count(const SpeedRow& row, const Options& options, std::vector<Cells>& weights) {
  const DevicePrecision placement =
      choose_device_precision({"count_gpu_steps", "", ""}, "cuda", options.precision);
  StepTrialOptions trial_options;
  trial_options.model = row.model;
  ModelConfig& m = trial_options.model;
  if (!options.dropout) m.dropout = m.attn_dropout = m.emb_dropout = m.out_dropout = 0;
  trial_options.batch = row.batch;
  trial_options.sequence = row.sequence;
  trial_options.carry_state = true;
  StepTrial trial(trial_options, placement);
  trial.warm_up();
  allocator(placement.device).reset_peak();
  const std::map<std::string, std::int64_t> launches = launches_of(trial);
  const auto peak = static_cast<double>(allocator(placement.device).stats().peak_bytes);
  std::int64_t launched = 0;
  for (const auto& [name, times] : launches) launched += times;

  const std::map<std::string, std::int64_t> before = emulation::unaligned_products();
  KernelCounts counts(options);
  {
    const ObserveKernels watch(counts, placement.device);
    static_cast<void>(trial.step_uncaptured());
  }
  if (options.kernels) {
    ProfileRates rates;
    rates.ceilings.product.best = options.tf32;
    rates.half_product = options.bf16;
    rates.ceilings.memory = {{std::int64_t{1} << 40, {options.memory, options.memory}, {}}};
    StepProfiler profiler(placement.device, rates);
    const ObserveKernels watch(profiler, placement.device);
    const ObserveTape tape(profiler);
    profiler.start();
    static_cast<void>(trial.step_uncaptured());
    profiler.finish("(clip and optimizer)");
    std::printf("%s\n\n", row.title.c_str());
    print_kernels(counts);
    print_ops("op", profiler.by_op());
    print_ops("module", over_layers(profiler.by_module()));
    print_counts("launch", launches);
  }
  if (options.weights) weights.push_back(count_weights(row, options, trial, placement.device, counts));
  if (options.alignment) {
    std::map<std::string, std::int64_t> products = emulation::unaligned_products();
    for (const auto& [product, times] : before) products[product] -= times;
    print_counts(("unaligned: " + row.title).c_str(), products);
  }
  const double roofline = counts.all.seconds * 1e3;
  return {row.title,
          std::to_string(launched),
          table_number(counts.all.flops * 1e-12),
          table_number(counts.all.bytes * 1e-9),
          table_number(roofline),
          table_number(roofline + static_cast<double>(launched) * options.launch * 1e-3),
          table_number(peak / (1 << 30)),
          trial.captured() ? "yes" : "no"};
}

// Counts the launches of generating one token, in f32, for each position in a block once; from graphs where
// there are some.
void count_token(const SpeedRow& row) {
  const Device device = cuda_device();
  const std::unique_ptr<Model> model = make_model(row.model, Dtype::f32, device);
  Recorder recorder(model->params(), token_recorder(true));
  const std::vector<std::int32_t> ids(static_cast<std::size_t>(row.batch), 0);
  State state;
  const ModelConfig& config = model->full_config();
  const std::int64_t period =
      std::max({config.block, config.chunk, std::min<std::int64_t>(config.window, 512)});
  for (std::int64_t i = 0; i < (kCaptureWarmUp + 2) * period; ++i)
    static_cast<void>(next_logits(*model, ids, state, recorder));
  synchronize(device);
  const std::map<std::string, std::int64_t> before = emulation::launches();
  for (std::int64_t i = 0; i < period; ++i) static_cast<void>(next_logits(*model, ids, state, recorder));
  synchronize(device);
  std::int64_t launched = 0;
  for (const auto& [name, times] : emulation::launches()) launched += times;
  for (const auto& [name, times] : before) launched -= times;
  std::printf("%s: %s launches for a token, the mean over %lld; %zu graphs. %s\n", row.name.c_str(),
              table_number(static_cast<double>(launched) / static_cast<double>(period)).c_str(),
              static_cast<long long>(period), recorder.graphs(), recorder.take_message().c_str());
}

void count_rows(const Options& options) {
  Table table{{"row", "launches", "TFLOP", "GB", "roofline, ms", "with launches, ms", "peak GiB", "captured"},
              {},
              "lr"};
  Table weights{
      {"gradients of weights", "products", "ms", "others idle, ms", "beside them, ms", "launches, ms"},
      {},
      "lr"};
  std::vector<SpeedRow> rows;
  if (options.preset.empty())
    rows = speed_rows(false);
  else
    rows.push_back(row_of(options));
  for (const SpeedRow& row : rows) {
    const auto& wanted = options.rows;
    if (!wanted.empty() && std::find(wanted.begin(), wanted.end(), row.name) == wanted.end()) continue;
    table.rows.push_back(count(row, options, weights.rows));
    allocator(cuda_device()).trim();
  }
  if (options.weights) std::printf("%s\n", to_text(weights).c_str());
  std::printf("%s", to_text(table).c_str());
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("What training steps ask a GPU for, counted where there is none");
  Options options;
  std::string choice = "auto";
  std::vector<std::string> names;
  for (const SpeedRow& row : speed_rows(false)) names.push_back(row.name);
  app.add_option("--rows", options.rows, "Rows of `eddy bench speed` (default: all)")
      ->delimiter(',')
      ->check(CLI::IsMember(names));
  app.add_option("--preset", options.preset, "A configuration that `eddy models` lists, instead of rows");
  app.add_option("--batch", options.batch, "Its sequences")->capture_default_str();
  app.add_option("--sequence", options.sequence, "Tokens of each (default: its context)");
  app.add_option("--vocab", options.vocab, "Its tokens, where it leaves them open")->capture_default_str();
  app.add_option("--precision", options.precision, "bf16, tf32 or f32")->capture_default_str();
  app.add_flag("--token", options.token, "Instead, the launches of a token of its generation");
  app.add_flag("--kernels", options.kernels, "Also each kernel, op and module");
  app.add_flag("--alignment", options.alignment, "Also products whose rows are not aligned to 16 bytes");
  app.add_flag("--weights", options.weights,
               "Also what gradients of weights on a second stream would save at most");
  app.add_flag("--dropout", options.dropout, "With each model's dropout (default: none, as in the table)");
  app.add_option("--choose", choice, "Kernels, as EDDY_KERNELS")->capture_default_str();
  app.add_option("--bf16", options.bf16, "GFLOP/s of products in bf16")->capture_default_str();
  app.add_option("--tf32", options.tf32, "The same of those in f32 beside them")->capture_default_str();
  app.add_option("--memory", options.memory, "GB/s of the GPU's memory")->capture_default_str();
  app.add_option("--launch", options.launch, "Microseconds of a launch")->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  emulation::only_count();
  try {
    set_gpu_kernels(choice);
    if (options.token)
      count_token(row_of(options));
    else
      count_rows(options);
  } catch (const Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  return 0;
}
