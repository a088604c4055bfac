// Measures ops, host cost and optimizer.
#include "train/bench/ops.h"

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>

#include "autograd/tape.h"
#include "ops/backends.h"
#include "ops/core/op_spec.h"
#include "ops/core/records.h"
#include "ops/optimizer/optimizer.h"
#include "ops/pointwise/pointwise.h"
#include "tensor/base/format.h"
#include "train/bench/bench.h"

namespace eddy {
namespace {

constexpr double kNone = std::numeric_limits<double>::quiet_NaN();

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

OpBenchRow bench_op(const OpSpec& spec, double seconds, const Ceilings& ceilings, Device device) {
  OpBenchRow row;
  row.op = spec.name;
  Tensors inputs = spec.bench();
  for (Tensor& x : inputs)
    if (x.dtype() == Dtype::f64) x = raw::cast(x, Dtype::f32);
  for (Tensor& x : inputs)
    if (x.defined() && !(device == kCpu)) x = raw::to_device(x, device);
  Timing forward;
  {
    const NoGrad no_grad;
    forward = measure_on(
        device, [&] { static_cast<void>(spec.run(inputs)); }, seconds);
  }
  row.forward_ms = forward.best * 1e3;
  row.forward_median_ms = forward.median * 1e3;

  const Tensors leaves = tracked(inputs);
  const Cotangents cotangents = cotangents_of(spec, leaves, device);
  row.backward_ms = kNone;
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
    row.backward_ms = std::max(0.0, both.best - forward.best) * 1e3;
  }

  row.gflops = row.gbs = row.roofline_percent = kNone;
  if (!spec.cost) return row;
  const OpCost cost = spec.cost(inputs);
  const double least = ceilings.least_seconds(cost.flops, cost.bytes);
  if (!(least > 0)) return row;  // a view
  row.gflops = cost.flops / forward.best * 1e-9;
  row.gbs = cost.bytes / forward.best * 1e-9;
  row.roofline_percent = 100 * least / forward.best;
  row.bound = least > ceilings.least_seconds(0, cost.bytes) ? "compute" : "memory";
  return row;
}

OpBenchRow refused_row(const OpSpec& spec, const Error& error) {
  OpBenchRow row;
  row.op = spec.name;
  row.forward_ms = row.forward_median_ms = row.backward_ms = row.gflops = row.gbs = row.roofline_percent =
      kNone;
  row.refused = error.what();
  return row;
}

Timing per_op(const Timing& chain, std::int64_t ops) {
  const auto n = static_cast<double>(ops);
  return {chain.best / n, chain.median / n, chain.runs};
}

}  // namespace

std::vector<OpBenchRow> bench_op_rows(const OpsBenchOptions& options, const Ceilings& ceilings) {
  std::vector<OpSpec> chosen;
  for (OpSpec& spec : op_specs())
    if (spec.bench && spec.run && spec.name.find(options.filter) != std::string::npos)
      chosen.push_back(std::move(spec));
  if (chosen.empty())
    fail<ValueError>("bench ops: no op has '{}' in its name (see eddy bench ops)", options.filter);
  std::vector<OpBenchRow> rows;
  for (const OpSpec& spec : chosen) {
    try {
      rows.push_back(bench_op(spec, options.seconds, ceilings, options.device));
    } catch (const DtypeError& error) {
      rows.push_back(refused_row(spec, error));
    } catch (const DeviceError& error) {
      rows.push_back(refused_row(spec, error));
    }
  }
  return rows;
}

HostCost bench_host_cost(const OpsBenchOptions& options) {
  const std::int64_t ops = options.host_ops;
  if (ops < 1) fail<ValueError>("bench: a chain of {} ops (at least 1)", ops);
  const Device device = options.device;
  const Tensor one = Tensor::full({1}, 1.0, Dtype::f32, device),
               start = Tensor::full({1}, 0.5, Dtype::f32, device);
  const auto chain = [&](const Tensor& first) {
    Tensor x = first;
    for (std::int64_t i = 0; i < ops; ++i) x = add(x, one);
    return x;
  };
  HostCost cost;
  {
    const NoGrad no_grad;
    cost.forward_us = per_op(measure(
                                 [&] {
                                   static_cast<void>(chain(start));
                                   synchronize(device);
                                 },
                                 options.seconds),
                             ops)
                          .best *
                      1e6;
  }
  const Tensor leaf = require_grad(raw::alias(start));
  cost.recorded_us = per_op(measure(
                                [&] {
                                  static_cast<void>(chain(leaf));
                                  synchronize(device);
                                },
                                options.seconds),
                            ops)
                         .best *
                     1e6;
  std::vector<double> backward_seconds;
  const BenchClock::time_point begin = BenchClock::now();
  do {
    const Tensor y = chain(leaf);
    const BenchClock::time_point before = BenchClock::now();
    backward(y);
    synchronize(device);
    backward_seconds.push_back(elapsed_seconds(before));
  } while (backward_seconds.size() < 3 || elapsed_seconds(begin) < options.seconds);
  cost.backward_us = per_op(timing_of(std::move(backward_seconds)), ops).best * 1e6;
  return cost;
}

OptimizerCost bench_optimizer(const OpsBenchOptions& options) {
  const std::int64_t n = options.optimizer_parameters > 0 ? options.optimizer_parameters
                         : options.device == kCpu         ? 10'000'000
                                                          : 150'000'000;
  if (options.optimizer_parameters < 0)
    fail<ValueError>("bench: an optimizer over {} parameters (at least 1, or 0 for the device's own)",
                     options.optimizer_parameters);
  const Device device = options.device;
  const Tensor p = Tensor::full({n}, 0.1, Dtype::f32, device),
               g = Tensor::full({n}, 1e-3, Dtype::f32, device), m = Tensor::zeros({n}, Dtype::f32, device),
               v = Tensor::zeros({n}, Dtype::f32, device);
  // As in a training step: already in device memory.
  const AdamScalars numbers{1e-4, 1, 1.0};
  const Tensor segments = decay_table({{0, n, 0.1}}, n, device),
               scalars = upload_records(device, &numbers, 1), norm = l2_norm(g);
  const double adamw =
      measure_on(
          device, [&] { adamw_step_on_device(p, g, m, v, segments, {}, scalars, norm); }, options.seconds)
          .best;
  const double norm_time = measure_on(
                               device, [&] { static_cast<void>(l2_norm(g)); }, options.seconds)
                               .best;
  const auto count = static_cast<double>(n);
  OptimizerCost cost;
  cost.parameters = n;
  cost.adamw_ns = adamw / count * 1e9;
  cost.adamw_gbs = 28 * count / adamw * 1e-9;
  cost.norm_ns = norm_time / count * 1e9;
  cost.norm_gbs = 4 * count / norm_time * 1e-9;
  return cost;
}

OpsBench bench_ops(const OpsBenchOptions& options) {
  OpsBench bench;
  const bool on_gpu = !(options.device == kCpu);
  CeilingSizes sizes = options.ceilings;
  if (on_gpu) sizes.product = options.gpu.product_size;
  bench.ceilings = measure_ceilings(3, sizes, options.device);
  if (on_gpu) {
    GpuBenchOptions gpu = options.gpu;
    gpu.filter = options.filter;
    bench.gpu.products = bench_gpu_products(gpu, options.device);
    bench.gpu.memory = bench_gpu_memory(gpu, bench.ceilings.memory.back().copy.best, options.device);
  }
  bench.host = bench_host_cost(options);
  bench.optimizer = bench_optimizer(options);
  bench.rows = bench_op_rows(options, bench.ceilings);
  return bench;
}

Measurement measurement_of(const OpsBench& bench) {
  Measurement m;
  m.bench = "ops";
  m.title = "The speed of ops";
  m.facts = {{"ceilings", to_json(bench.ceilings)},
             {"host_us_per_op",
              {{"forward", bench.host.forward_us},
               {"recorded", bench.host.recorded_us},
               {"backward", bench.host.backward_us}}},
             {"gpu", {{"products", nlohmann::json::array()}, {"memory", nlohmann::json::array()}}},
             {"optimizer",
              {{"parameters", bench.optimizer.parameters},
               {"adamw_ms", bench.optimizer.adamw_ms()},
               {"norm_ms", bench.optimizer.norm_ms()},
               {"adamw_ns_per_parameter", bench.optimizer.adamw_ns},
               {"adamw_gbs", bench.optimizer.adamw_gbs},
               {"norm_ns_per_parameter", bench.optimizer.norm_ns},
               {"norm_gbs", bench.optimizer.norm_gbs}}}};
  m.tables = {table_of(bench.ceilings)};
  for (MeasuredTable& table : tables_of(bench.gpu))
    if (!table.series.empty()) m.tables.push_back(std::move(table));
  std::vector<std::string>& costs = m.tables.back().notes;
  costs.push_back(fmt::format("host cost of one op: {:.3f} us, recorded {:.3f} us, its backward {:.3f} us",
                              bench.host.forward_us, bench.host.recorded_us, bench.host.backward_us));
  costs.push_back(
      fmt::format("AdamW: {:.3f} ns per parameter, {:.1f} GB/s; norm of the gradient: {:.3f} ns, {:.1f} GB/s",
                  bench.optimizer.adamw_ns, bench.optimizer.adamw_gbs, bench.optimizer.norm_ns,
                  bench.optimizer.norm_gbs));
  if (!(bench.ceilings.device == kCpu))
    costs.push_back(fmt::format("over {} parameters: AdamW {:.3f} ms, norm {:.3f} ms",
                                bench.optimizer.parameters, bench.optimizer.adamw_ms(),
                                bench.optimizer.norm_ms()));
  MeasuredTable& table = m.tables.emplace_back();
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
  for (const OpBenchRow& row : bench.rows) {
    table.add({row.op, row.forward_ms, row.forward_median_ms, row.backward_ms, row.gflops, row.gbs,
               row.roofline_percent, row.bound, row.refused});
    if (!row.refused.empty()) table.notes.push_back(fmt::format("{}: {}", row.op, row.refused));
  }
  return m;
}

}  // namespace eddy
