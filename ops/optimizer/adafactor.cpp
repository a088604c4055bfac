// The layout and the checks of Adafactor.
#include "ops/optimizer/adafactor.h"

#include <algorithm>
#include <cmath>

#include "autograd/tape.h"
#include "ops/core/checks.h"
#include "ops/core/records.h"
#include "tensor/base/format.h"

namespace eddy {

using namespace detail;

namespace {

// Elements in a block, enough to be worth a chunk of its own; and the maximum number of blocks of a factored
// tensor, each of which has a row of column sums.
constexpr std::int64_t kBlockElements = 1 << 14;
constexpr std::int64_t kMostRowBlocks = 64;

std::int64_t divide_up(std::int64_t a, std::int64_t b) {
  return (a + b - 1) / b;
}

}  // namespace

AdafactorPlan detail::adafactor_plan(const std::vector<AdafactorParameter>& parameters) {
  AdafactorPlan plan;
  for (const AdafactorParameter& parameter : parameters) {
    if (parameter.begin < plan.arena_elements)
      fail<ValueError>(
          "adafactor: a parameter {} at {} after the arena's first {} elements are taken "
          "(disjoint, in rising order)",
          to_string(parameter.shape), parameter.begin, plan.arena_elements);
    const std::int64_t elements = parameter.shape.elements();
    plan.arena_elements = parameter.begin + elements;
    if (elements == 0) continue;
    AdafactorTensor tensor;
    tensor.begin = parameter.begin;
    tensor.factored = adafactor_factored(parameter.shape);
    tensor.rows = tensor.factored ? parameter.shape[0] : elements;
    tensor.columns = tensor.factored ? parameter.shape[1] : 1;
    tensor.second = plan.second_elements;
    plan.second_elements += tensor.factored ? tensor.rows + tensor.columns : elements;
    const std::int64_t block_rows = tensor.factored ? std::max(divide_up(kBlockElements, tensor.columns),
                                                               divide_up(tensor.rows, kMostRowBlocks))
                                                    : kBlockElements;
    tensor.first_block = std::ssize(plan.blocks);
    tensor.blocks = divide_up(tensor.rows, block_rows);
    for (std::int64_t begin = 0; begin < tensor.rows; begin += block_rows)
      plan.blocks.push_back({std::ssize(plan.tensors), begin, std::min(begin + block_rows, tensor.rows)});
    tensor.scratch = plan.scratch_elements;
    if (tensor.factored) plan.scratch_elements += tensor.blocks * tensor.columns;
    plan.tensors.push_back(tensor);
  }
  return plan;
}

namespace {

constexpr const char* kAdafactor = "adafactor_step";

void check_options(const AdafactorOptions& options) {
  const auto positive = [](const char* name, double value) {
    if (!(value > 0 && std::isfinite(value)))
      fail<ValueError>("{}: {} {} (finite and above 0)", kAdafactor, name, value);
  };
  if (!(options.momentum >= 0 && options.momentum < 1))
    fail<ValueError>("{}: momentum {} (0 <= momentum < 1)", kAdafactor, options.momentum);
  positive("decay_exponent", options.decay_exponent);
  positive("update_clip", options.update_clip);
  positive("square_eps", options.square_eps);
  positive("least_scale", options.least_scale);
}

// Everything but the tables and the scalars.
void check_step(const Tensor& params, const Tensor& grads, const Tensor& momentum, const Tensor& second,
                const AdafactorPlan& plan, const AdafactorOptions& options, const Tensor& norm) {
  check_arenas(kAdafactor, params, {{grads, "grads"}, {momentum, "momentum"}, {second, "second"}}, norm);
  if (second.elements() != plan.second_elements)
    fail<ShapeError>("{}: second {} for a plan of {} second moments", kAdafactor, to_string(second.shape()),
                     plan.second_elements);
  if (params.elements() < plan.arena_elements)
    fail<ShapeError>("{}: params {} for a plan over {} elements", kAdafactor, to_string(params.shape()),
                     plan.arena_elements);
  check_options(options);
}

void run_adafactor(const Tensor& params, const Tensor& grads, const Tensor& momentum, const Tensor& second,
                   const AdafactorPlan& plan, const AdafactorTables& tables, const AdafactorOptions& options,
                   const Tensor& scalars, const Tensor& norm) {
  wrote_in_place(params, kAdafactor);
  if (plan.blocks.empty()) return;
  const Device device = params.device();
  const std::int64_t tensor_count = std::ssize(plan.tensors);
  const std::int64_t block_count = std::ssize(plan.blocks);
  const Tensor column_sums = Tensor::empty({plan.scratch_elements}, Dtype::f64, device);
  const Tensor block_sums = Tensor::empty({block_count, 2}, Dtype::f64, device);
  const Tensor tensor_values = Tensor::empty({tensor_count, 2}, Dtype::f64, device);
  adafactor_slot(device,
                 {params.dtype(), params.raw_data(), grads.raw_data(), momentum.raw_data(), second.raw_data(),
                  static_cast<const AdafactorTensor*>(tables.tensors.raw_data()), tensor_count,
                  static_cast<const AdafactorBlock*>(tables.blocks.raw_data()), block_count, options,
                  static_cast<const AdafactorScalars*>(scalars.raw_data()),
                  norm.defined() ? norm.mutable_data<double>() : nullptr, column_sums.mutable_data<double>(),
                  block_sums.mutable_data<double>(), tensor_values.mutable_data<double>()});
}

}  // namespace

void detail::adafactor_step(const Tensor& params, const Tensor& grads, const Tensor& momentum,
                            const Tensor& second, const AdafactorPlan& plan, const AdafactorOptions& options,
                            const AdafactorScalars& scalars, const Tensor& norm) {
  check_step(params, grads, momentum, second, plan, options, norm);
  check_scalars(kAdafactor, scalars, 0);
  check_clip(kAdafactor, scalars, norm);
  run_adafactor(params, grads, momentum, second, plan, adafactor_tables(plan, params.device()), options,
                upload_records(params.device(), &scalars, 1), norm);
}

AdafactorTables detail::adafactor_tables(const AdafactorPlan& plan, Device device) {
  return {upload_records(device, plan.tensors), upload_records(device, plan.blocks)};
}

void detail::adafactor_step_on_device(const Tensor& params, const Tensor& grads, const Tensor& momentum,
                                      const Tensor& second, const AdafactorPlan& plan,
                                      const AdafactorTables& tables, const AdafactorOptions& options,
                                      const Tensor& scalars, const Tensor& norm) {
  check_step(params, grads, momentum, second, plan, options, norm);
  if (record_count<AdafactorTensor>(tables.tensors) != std::ssize(plan.tensors) ||
      record_count<AdafactorBlock>(tables.blocks) != std::ssize(plan.blocks))
    fail<ShapeError>("{}: the tables are of another plan (the result of adafactor_tables)", kAdafactor);
  check_scalars(kAdafactor, scalars);
  if (tables.tensors.device() != params.device() || scalars.device() != params.device())
    fail<DeviceError>("{}: tables on {}, scalars on {} and params on {} (one device for all)", kAdafactor,
                      to_string(tables.tensors.device()), to_string(scalars.device()),
                      to_string(params.device()));
  run_adafactor(params, grads, momentum, second, plan, tables, options, scalars, norm);
}

}  // namespace eddy
