// The layout and the checks of Adafactor.
#include "ops/adafactor.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "autograd/tape.h"
#include "ops/checks.h"
#include "ops/op_spec.h"
#include "ops/optimizer.h"
#include "tensor/format.h"

namespace eddy {

constinit Slot<AdafactorArgs> adafactor_slot{"adafactor"};

namespace {

// Elements in a block, enough to pay for handing it to a thread; and the most blocks of a factored tensor,
// each of which has a row of column sums.
constexpr std::int64_t kBlockElements = 1 << 14;
constexpr std::int64_t kMostBlocks = 64;

std::int64_t divide_up(std::int64_t a, std::int64_t b) {
  return (a + b - 1) / b;
}

}  // namespace

AdafactorPlan adafactor_plan(const std::vector<AdafactorParameter>& parameters) {
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
                                                               divide_up(tensor.rows, kMostBlocks))
                                                    : kBlockElements;
    tensor.first_block = static_cast<std::int64_t>(plan.blocks.size());
    tensor.blocks = divide_up(tensor.rows, block_rows);
    for (std::int64_t begin = 0; begin < tensor.rows; begin += block_rows)
      plan.blocks.push_back(
          {static_cast<std::int64_t>(plan.tensors.size()), begin, std::min(begin + block_rows, tensor.rows)});
    tensor.scratch = plan.scratch_elements;
    if (tensor.factored) plan.scratch_elements += tensor.blocks * tensor.columns;
    plan.tensors.push_back(tensor);
  }
  return plan;
}

namespace {

constexpr const char* kName = "adafactor_step";

void check_arena(const Tensor& x, const char* name) {
  checks::floating(kName, x, name);
  if (!x.contiguous())
    fail<ValueError>("{}: {} {} has strides (row-major arenas only)", kName, name, to_string(x.shape()));
}

void check_options(const AdafactorOptions& options, const AdafactorScalars& scalars, bool has_norm) {
  const auto positive = [](const char* name, double value) {
    if (!(value > 0 && std::isfinite(value)))
      fail<ValueError>("{}: {} {} (finite and above 0)", kName, name, value);
  };
  if (!(options.momentum >= 0 && options.momentum < 1))
    fail<ValueError>("{}: momentum {} (0 <= momentum < 1)", kName, options.momentum);
  positive("decay_exponent", options.decay_exponent);
  positive("update_clip", options.update_clip);
  positive("square_eps", options.square_eps);
  positive("least_scale", options.least_scale);
  if (!(scalars.lr >= 0 && std::isfinite(scalars.lr)))
    fail<ValueError>("{}: lr {} (0 or more)", kName, scalars.lr);
  if (scalars.step < 0) fail<ValueError>("{}: step {} (steps are counted from 0)", kName, scalars.step);
  if (!(scalars.clip >= 0))
    fail<ValueError>("{}: clip {} (0 or more; 0 is no clipping)", kName, scalars.clip);
  if (scalars.clip > 0 && !has_norm)
    fail<ValueError>("{}: clip {} without the norm of the gradients (give the result of l2_norm)", kName,
                     scalars.clip);
}

// The bytes of records on a device.
template <class Record>
Tensor on_device(const Record* records, std::size_t count, Device device) {
  const Tensor bytes = Tensor::empty({static_cast<std::int64_t>(count * sizeof(Record))}, Dtype::u8);
  if (count > 0) std::memcpy(bytes.raw_data(), records, count * sizeof(Record));
  return raw::to_device(bytes, device);
}

}  // namespace

void adafactor_step(const Tensor& params, const Tensor& grads, const Tensor& momentum, const Tensor& second,
                    const AdafactorPlan& plan, const AdafactorOptions& options,
                    const AdafactorScalars& scalars, const Tensor& norm) {
  check_arena(params, "params");
  const struct {
    const Tensor& tensor;
    const char* name;
  } others[] = {{grads, "grads"}, {momentum, "momentum"}, {second, "second"}};
  for (const auto& [tensor, name] : others) {
    check_arena(tensor, name);
    checks::same_kind(kName, params, tensor);
    if (!tensor.same(second) && tensor.shape() != params.shape())
      fail<ShapeError>("{}: params {} and {} {} (one shape for both)", kName, to_string(params.shape()), name,
                       to_string(tensor.shape()));
  }
  if (second.elements() != plan.second_elements)
    fail<ShapeError>("{}: second {} for a plan of {} second moments", kName, to_string(second.shape()),
                     plan.second_elements);
  if (params.elements() < plan.arena_elements)
    fail<ShapeError>("{}: params {} for a plan over {} elements", kName, to_string(params.shape()),
                     plan.arena_elements);
  check_options(options, scalars, norm.defined());
  if (norm.defined()) {
    if (norm.dtype() != Dtype::f64 || norm.elements() != 1)
      fail<ValueError>("{}: the norm is {} of {} (one f64, the result of l2_norm)", kName,
                       to_string(norm.shape()), dtype_name(norm.dtype()));
    if (!(norm.device() == params.device()))
      fail<DeviceError>("{}: the norm is on {} and params on {} (one device for all)", kName,
                        to_string(norm.device()), to_string(params.device()));
  }
  wrote_in_place(params, kName);
  if (plan.blocks.empty()) return;
  const Device device = params.device();
  const Tensor tensors = on_device(plan.tensors.data(), plan.tensors.size(), device);
  const Tensor blocks = on_device(plan.blocks.data(), plan.blocks.size(), device);
  const Tensor numbers = on_device(&scalars, 1, device);
  const std::int64_t tensor_count = static_cast<std::int64_t>(plan.tensors.size());
  const std::int64_t block_count = static_cast<std::int64_t>(plan.blocks.size());
  const Tensor column_sums = Tensor::empty({plan.scratch_elements}, Dtype::f64, device);
  const Tensor block_sums = Tensor::empty({block_count, 2}, Dtype::f64, device);
  const Tensor tensor_values = Tensor::empty({tensor_count, 2}, Dtype::f64, device);
  adafactor_slot(device, {params.dtype(), params.raw_data(), grads.raw_data(), momentum.raw_data(),
                          second.raw_data(), static_cast<const AdafactorTensor*>(tensors.raw_data()),
                          tensor_count, static_cast<const AdafactorBlock*>(blocks.raw_data()), block_count,
                          options, static_cast<const AdafactorScalars*>(numbers.raw_data()),
                          norm.defined() ? norm.data<double>() : nullptr, column_sums.data<double>(),
                          block_sums.data<double>(), tensor_values.data<double>()});
}

// ---- samples
// ---------------------------------------------------------------------------------------------------------

namespace {

constexpr AdafactorOptions kOptions;
constexpr AdafactorScalars kScalars = {0.03, 4, 1.5};

// One parameter of the shape of p, at the arena's start.
Tensors adafactor_reference(const Tensors& x) {
  const Shape shape = x[0].shape();
  std::vector<double> p = x[0].to_vector<double>(), g = x[1].to_vector<double>(),
                      m = x[2].to_vector<double>(), second = x[3].to_vector<double>();
  const std::size_t n = p.size();
  double norm = 0, size = 0, update_size = 0;
  for (const double value : g) norm += value * value;
  for (double& value : g) value *= std::min(1.0, kScalars.clip / (std::sqrt(norm) + 1e-6));
  const double beta2 = 1 - std::pow(static_cast<double>(kScalars.step) + 1, -0.8);
  std::vector<double> u(n);
  if (shape.rank() == 2 && shape[0] >= 128 && shape[1] >= 128) {
    const std::size_t rows = static_cast<std::size_t>(shape[0]), columns = n / rows;
    for (double& value : second) value *= beta2;
    for (std::size_t i = 0; i < n; ++i) {
      const double square = (1 - beta2) * (g[i] * g[i] + 1e-30);
      second[i / columns] += square / static_cast<double>(columns);
      second[rows + i % columns] += square / static_cast<double>(rows);
    }
    double mean = 0;
    for (std::size_t i = 0; i < rows; ++i) mean += second[i] / static_cast<double>(rows);
    for (std::size_t i = 0; i < n; ++i)
      u[i] = g[i] / std::sqrt(second[i / columns] / mean * second[rows + i % columns]);
  } else {
    for (std::size_t i = 0; i < n; ++i) {
      second[i] = beta2 * second[i] + (1 - beta2) * (g[i] * g[i] + 1e-30);
      u[i] = g[i] / std::sqrt(second[i]);
    }
  }
  for (std::size_t i = 0; i < n; ++i) {
    size += p[i] * p[i] / static_cast<double>(n);
    update_size += u[i] * u[i] / static_cast<double>(n);
  }
  const double rate = kScalars.lr * std::max(std::sqrt(size), 1e-3) / std::max(1.0, std::sqrt(update_size));
  for (std::size_t i = 0; i < n; ++i) {
    m[i] = 0.9 * m[i] + 0.1 * rate * u[i];
    p[i] -= m[i];
  }
  return {Tensor::from(p, shape), Tensor::from(m, shape), Tensor::from(second, x[3].shape())};
}

}  // namespace

std::vector<OpSpec> adafactor_specs() {
  OpSpec spec;
  spec.name = "adafactor";
  spec.formula = "p - m, m = 0.9 m + 0.1 rate g / sqrt(second moment), factored for matrices";
  spec.run = [](const Tensors& x) {
    const Tensor p = raw::copy(x[0]), m = raw::copy(x[2]), second = raw::copy(x[3]);
    const Tensor g = raw::contiguous(x[1]);
    adafactor_step(p, g, m, second, adafactor_plan({{0, p.shape()}}), kOptions, kScalars, l2_norm(g));
    return Tensors{p, m, second};
  };
  spec.reference = adafactor_reference;
  const auto sample = [](const Shape& shape, double scale) {
    const std::int64_t second = adafactor_factored(shape) ? shape[0] + shape[1] : shape.elements();
    return Tensors{sample_normal(shape, "p", 0.1), sample_normal(shape, "g", scale),
                   sample_normal(shape, "m", 0.01),
                   sample_uniform({second}, "second", 0.5 * scale * scale, 2 * scale * scale)};
  };
  // Small parameters: the least scale takes over.
  Tensors tiny = sample({3, 5}, 0.1);
  tiny[0] = sample_normal({3, 5}, "p", 1e-5);
  spec.samples = {{"size_0", sample({0}, 1), false},
                  {"size_1", sample({1}, 0.1), false},
                  {"odd_tail", sample({67}, 0.1), false},
                  {"matrix_with_a_short_side", sample({127, 130}, 0.001), false},
                  {"least_factored", sample({128, 128}, 0.001), false},
                  {"factored", sample({301, 131}, 0.001), false},
                  {"many_blocks", sample({40001}, 0.003), false},
                  {"clipped", sample({67}, 10), false},
                  {"tiny_parameters", tiny, false},
                  {"large", sample({33}, 1e6), false}};
  spec.roundings = 32;
  spec.bench = [sample] {
    Tensors inputs;
    for (const Tensor& x : sample({2048, 2048}, 1)) inputs.push_back(raw::cast(x, Dtype::f32));
    return inputs;
  };
  spec.cost = [](const Tensors& x) {
    return OpCost{16 * static_cast<double>(x[0].elements()), 7 * static_cast<double>(x[0].bytes())};
  };
  return {spec};
}

}  // namespace eddy
