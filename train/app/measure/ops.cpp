// Measures ops, host cost and optimizer.
#include "train/app/measure/ops.h"

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>

#include "autograd/tape.h"
#include "models/optimizer/optimizer.h"
#include "ops/backends.h"
#include "ops/core/op_spec.h"
#include "ops/core/parameter_cache.h"
#include "ops/core/records.h"
#include "ops/cost/counting.h"
#include "ops/optimizer/optimizer.h"
#include "ops/pointwise/pointwise.h"
#include "tensor/base/format.h"
#include "tensor/memory/memory_limit.h"
#include "train/app/measure/bench.h"
#include "train/plan/machine_memory.h"
#include "train/words/human_text.h"
#include "train/words/program_name.h"

namespace eddy::app {
using namespace training;
namespace {

constexpr double kNotMeasured = std::numeric_limits<double>::quiet_NaN();

Tensors on_device(Tensors inputs, Device device) {
  for (Tensor& x : inputs)
    if (x.defined()) x = raw::to_device(x.dtype() == Dtype::f64 ? raw::cast(x, Dtype::f32) : x, device);
  return inputs;
}

// Returns the work of one forward call.
Cost work_of(const OpSpec& spec, const Tensors& inputs) {
  const NoGrad no_grad;
  return counted([&] { static_cast<void>(spec.run(on_device(inputs, counting_device()))); });
}

// Returns the inputs as leaves that share their memory: an op that takes slices of one tensor gets slices.
Tensors tracked(const Tensors& inputs) {
  Tensors leaves;
  for (const Tensor& x : inputs) {
    const bool differentiable = x.defined() && is_floating(x.dtype());
    leaves.push_back(differentiable ? require_grad(raw::alias(x)) : x);
  }
  return leaves;
}

// The outputs that depend on a leaf, and a random cotangent for each; both empty for an op without a
// gradient.
struct Cotangents {
  std::vector<std::size_t> outputs;
  Tensors values;
};

Cotangents cotangents_of(const OpSpec& spec, const Tensors& leaves, Device device) {
  Cotangents result;
  const Tensors ys = spec.run(leaves);
  for (std::size_t i = 0; i < ys.size(); ++i) {
    if (!ys[i].defined() || !requires_grad(ys[i])) continue;
    result.outputs.push_back(i);
    result.values.push_back(
        raw::to_device(raw::cast(sample_normal(ys[i].shape(), "bench.cotangent"), ys[i].dtype()), device));
  }
  return result;
}

// Returns the row of one op; "-" where it has no gradient or no work that can be counted.
std::vector<Cell> bench_op(const OpSpec& spec, const OpsBenchOptions& options, const Ceilings& ceilings) {
  const Device device = options.device;
  const double seconds = options.seconds;
  const Tensors host = spec.bench(), inputs = on_device(host, device);
  for (const Tensor& x : inputs)
    if (x.defined() && x.dtype() == Dtype::f32 && options.matmul != MatmulPrecision::f32)
      mark_parameters(x, options.matmul);
  const Cost cost = work_of(spec, host);
  Timing forward;
  {
    const NoGrad no_grad;
    forward = measure_on(
        device, [&] { static_cast<void>(spec.run(inputs)); }, seconds);
  }
  const Tensors leaves = tracked(inputs);
  const Cotangents cotangents = cotangents_of(spec, leaves, device);
  double backward_ms = kNotMeasured;
  if (!cotangents.outputs.empty()) {
    const Timing both = measure_on(
        device,
        [&] {
          Tensors ys = spec.run(leaves), wanted;
          for (const std::size_t i : cotangents.outputs) wanted.push_back(ys[i]);
          backward(wanted, cotangents.values);
          for (const Tensor& leaf : leaves)
            if (leaf.defined() && requires_grad(leaf)) zero_grad(leaf);
        },
        seconds);
    // Where the backward pass only forwards its cotangent, noise can make the difference negative.
    backward_ms = std::max(0.0, both.best - forward.best) * 1e3;
  }
  const double least = ceilings.least_seconds(cost.flops, cost.bytes);
  const bool counts = least > 0;  // not of a view
  return {spec.name,
          forward.best * 1e3,
          forward.median * 1e3,
          backward_ms,
          counts ? cost.flops / forward.best * 1e-9 : kNotMeasured,
          counts ? cost.bytes / forward.best * 1e-9 : kNotMeasured,
          counts ? 100 * least / forward.best : kNotMeasured,
          !counts                                         ? "-"
          : least > ceilings.least_seconds(0, cost.bytes) ? "compute"
                                                          : "memory",
          ""};
}

bool is_benched(const OpSpec& spec, const std::string& filter) {
  return spec.bench && spec.run && spec.name.find(filter) != std::string::npos;
}

}  // namespace

std::vector<std::string> benched_ops(const std::string& filter) {
  std::vector<std::string> names;
  for (const OpSpec& spec : op_specs())
    if (is_benched(spec, filter)) names.emplace_back(spec.name);
  if (names.empty())
    fail<ValueError>("bench ops: no op has '{}' in its name ({} bench ops --dry-run lists them)", filter,
                     program_name());
  return names;
}

MeasuredTable bench_op_rows(const OpsBenchOptions& options, const Ceilings& ceilings) {
  const auto total = std::ssize(benched_ops(options.filter));
  MeasuredTable table;
  table.key = "ops";
  table.columns = {{"op", "op"},
                   {"forward_ms", "forward ms"},
                   {"forward_median_ms", "median ms"},
                   {"backward_ms", "backward ms"},
                   {"gflops", "GFLOP/s"},
                   {"gbs", "GB/s"},
                   {"roofline_percent", "% of roofline"},
                   {"bound", "bound"},
                   {"refused", ""}};
  const auto refuse = [&table](const OpSpec& spec, const std::string& why) {
    table.add({spec.name, kNotMeasured, kNotMeasured, kNotMeasured, kNotMeasured, kNotMeasured, kNotMeasured,
               "-", why});
    table.notes.push_back(fmt::format("{}: {}", spec.name, why));
  };
  std::int64_t done = 0;
  for (const OpSpec& spec : op_specs()) {
    if (!is_benched(spec, options.filter)) continue;
    if (options.progress) options.progress(done++, total);
    try {
      table.add(bench_op(spec, options, ceilings));
    } catch (const DtypeError& error) {
      refuse(spec, error.what());
    } catch (const DeviceError& error) {
      refuse(spec, error.what());
    } catch (const OutOfMemoryError&) {  // its own text gives advice about training
      refuse(spec, "its tensors do not fit in the memory there is");
      allocator(options.device).trim();
    }
  }
  return table;
}

nlohmann::json bench_host_cost(const OpsBenchOptions& options) {
  const std::int64_t ops = options.host_ops;
  if (ops < 1) fail<ValueError>("bench: a chain of {} ops (at least 1)", ops);
  const Device device = options.device;
  const Tensor one = Tensor::full({1}, 1.0, Dtype::f32, device),
               start = Tensor::full({1}, 0.5, Dtype::f32, device), leaf = require_grad(raw::alias(start));
  const auto chain = [&](const Tensor& first) {
    Tensor x = first;
    for (std::int64_t i = 0; i < ops; ++i) x = add(x, one);
    return x;
  };
  const auto per_op = [&](const Timing& all) { return all.best / static_cast<double>(ops) * 1e6; };
  const auto timed = [&](const Tensor& first) {
    return per_op(measure(
        [&] {
          static_cast<void>(chain(first));
          synchronize(device);
        },
        options.seconds));
  };
  const auto forward = [&] {
    const NoGrad no_grad;
    return timed(start);
  };
  std::vector<double> backward_seconds;
  const Clock::time_point begin = Clock::now();
  do {
    const Tensor y = chain(leaf);
    const Clock::time_point before = Clock::now();
    backward(y);
    synchronize(device);
    backward_seconds.push_back(seconds_between(before));
  } while (backward_seconds.size() < 3 || seconds_between(begin) < options.seconds);
  return {{"forward", forward()},
          {"recorded", timed(leaf)},
          {"backward", per_op(timing_of(std::move(backward_seconds)))}};
}

nlohmann::json bench_optimizer(const OpsBenchOptions& options) {
  if (options.optimizer_parameters < 0)
    fail<ValueError>("bench: an optimizer over {} parameters (at least 1, or 0 for the device's own)",
                     options.optimizer_parameters);
  const Device device = options.device;
  const std::int64_t n = options.optimizer_parameters > 0 ? options.optimizer_parameters
                         : device == kCpu                 ? 10'000'000
                                                          : 150'000'000;
  const Tensor p = Tensor::full({n}, 0.1, Dtype::f32, device),
               g = Tensor::full({n}, 1e-3, Dtype::f32, device), m = Tensor::zeros({n}, Dtype::f32, device),
               v = Tensor::zeros({n}, Dtype::f32, device);
  // As in a training step: already in device memory.
  const detail::AdamScalars numbers{1e-4, 1, 1.0};
  const Tensor segments = detail::decay_table({{0, n, 0.1}}, n, device),
               scalars = upload_records(device, &numbers, 1), norm = l2_norm(g);
  nlohmann::json result{{"parameters", n}};
  const auto time = [&](const std::string& name, double bytes, const std::function<void()>& run) {
    const double seconds = measure_on(device, run, options.seconds).best, count = static_cast<double>(n);
    result[name + "_ms"] = seconds * 1e3;
    result[name + "_ns_per_parameter"] = seconds / count * 1e9;
    result[name + "_gbs"] = bytes * count / seconds * 1e-9;
  };
  const OptimizerOptions defaults;
  const detail::AdamConstants constants{defaults.beta1, defaults.beta2, defaults.eps};
  time("adamw", 28, [&] { detail::adamw_step_on_device(p, g, m, v, segments, constants, scalars, norm); });
  time("norm", 4, [&] { static_cast<void>(l2_norm(g)); });
  return result;
}

Measurement bench_ops(const OpsBenchOptions& options) {
  const bool on_gpu = options.device != kCpu;
  CeilingSizes sizes = options.ceilings;
  if (on_gpu) sizes.product = options.gpu.product_size;
  // Else the system would end this program, or another one.
  const MemoryLimit limit(allocator(options.device), on_gpu ? MemoryLimit::kNone : free_memory());
  Ceilings ceilings;
  nlohmann::json host, optimizer;
  try {
    ceilings = measure_ceilings(3, sizes, options.device, options.matmul);
    host = bench_host_cost(options);
    optimizer = bench_optimizer(options);
  } catch (const OutOfMemoryError&) {
    fail<OutOfMemoryError>(
        "bench ops: what ops are measured against does not fit in the memory there is, {} (end other programs; --memory-check warn overrules this)",
        human_bytes(free_memory()));
  }
  Measurement m;
  m.bench = "ops";
  m.title = "The speed of ops";
  m.tables = {table_of(ceilings)};
  if (on_gpu) m.tables.push_back(bench_gpu_products(options.gpu, options.device));
  m.facts = {{"ceilings", to_json(ceilings)}, {"host_us_per_op", host}, {"optimizer", optimizer}};
  const auto number = [](const nlohmann::json& of, const char* key) { return of[key].get<double>(); };
  std::vector<std::string>& costs = m.tables.back().notes;
  costs.push_back(fmt::format("host cost of one op: {:.3f} us, recorded {:.3f} us, its backward {:.3f} us",
                              number(host, "forward"), number(host, "recorded"), number(host, "backward")));
  costs.push_back(
      fmt::format("AdamW: {:.3f} ns per parameter, {:.1f} GB/s; norm of the gradient: {:.3f} ns, {:.1f} GB/s",
                  number(optimizer, "adamw_ns_per_parameter"), number(optimizer, "adamw_gbs"),
                  number(optimizer, "norm_ns_per_parameter"), number(optimizer, "norm_gbs")));
  if (on_gpu) {
    costs.push_back(fmt::format("over {} parameters: AdamW {:.3f} ms, norm {:.3f} ms",
                                optimizer["parameters"].get<std::int64_t>(), number(optimizer, "adamw_ms"),
                                number(optimizer, "norm_ms")));
  }
  m.tables.push_back(bench_op_rows(options, ceilings));
  return m;
}

}  // namespace eddy::app
