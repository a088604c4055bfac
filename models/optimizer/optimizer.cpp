// Optimizers by name, a step that waits for its result, and the schedules' formulas.
#include "models/optimizer/optimizer.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "models/optimizer/adam.h"
#include "models/optimizer/muon.h"
#include "ops/core/records.h"
#include "tensor/base/format.h"
#include "tensor/files/safetensors.h"

namespace eddy {
namespace {

constexpr double kPi = 3.14159265358979323846;

// rsqrt and block_cosine: the share of the warm-up times the schedule at max(t, W).
double block_recurrent_rate(const ScheduleOptions& options, double highest, double t) {
  const double warmup = static_cast<double>(options.warmup);
  const double share = warmup > 0 ? std::min(t, warmup) / warmup : 1;
  const double at = std::max(t, warmup);
  if (value_is(options.schedule, ScheduleName::rsqrt)) return share * highest / std::sqrt(std::max(at, 1.0));
  const double done = at / std::max(1.0, static_cast<double>(options.steps));
  const double low = options.min_learning_rate;
  return share *
         (done <= 1 ? low + (highest - low) * 0.5 * (1 + std::cos(kPi * done)) : 2 * low * std::exp2(-done));
}

// "head.weight, head.bias, ...": the first of them, or none.
std::string first_names(const std::vector<Parameter>& parameters) {
  constexpr std::size_t kNamed = 8;
  if (parameters.empty()) return "none";
  std::string names;
  for (std::size_t i = 0; i < std::min(kNamed, parameters.size()); ++i)
    names += (i > 0 ? ", " : "") + parameters[i].name;
  return parameters.size() > kNamed ? names + ", ..." : names;
}

}  // namespace

ParameterMask parameters_where(const ParamStore& params,
                               const std::function<bool(const Parameter&)>& wanted) {
  ParameterMask mask;
  for (const Parameter& parameter : params.parameters()) mask.push_back(wanted(parameter));
  return mask;
}

Optimizer::Optimizer(ParamStore& params, const OptimizerOptions& options, const ParameterMask& held)
    : params_(params), learning_rate_(options.learning_rate) {
  const std::vector<Parameter>& all = params.parameters();
  if (!held.empty() && held.size() != all.size())
    fail<ValueError>("optimizer: {} marks for {} parameters (one for each)", held.size(), all.size());
  std::int64_t at = 0;
  bool open = false;
  for (std::size_t i = 0; i < all.size(); ++i) {
    const bool is_held = held.empty() || held[i];
    const std::int64_t end = i + 1 < all.size() ? all[i + 1].offset : params.values().elements();
    if (is_held && !open) held_.push_back({i, i, all[i].offset, all[i].offset, at});
    if (is_held) {
      held_.back().last = i + 1;
      held_.back().end = end;
      at += end - all[i].offset;
    }
    open = is_held;
  }
}

Tensor Optimizer::make_statistics() const {
  const Tensor& values = params_.values();
  const std::int64_t elements = held_.empty() ? 0 : held_.back().at + held_.back().end - held_.back().begin;
  return Tensor::zeros({elements}, values.dtype(), values.device());
}

Tensor Optimizer::part_of(const Tensor& statistics, const ParameterRange& range,
                          const Parameter& parameter) const {
  return raw::reshape(
      raw::narrow(statistics, 0, range.at + parameter.offset - range.begin, parameter.shape.elements()),
      parameter.shape);
}

double Optimizer::step(double learning_rate) {
  if (held_.empty() && parts().empty())  // Muon's other parameters are no part of held_
    fail<ValueError>("optimizer: a step would change nothing: {} (parameters: {})",
                     params_.parameters().empty() ? "there are no parameters" : "its mask marks no parameter",
                     first_names(params_.parameters()));
  const detail::AdamScalars numbers = scalars(learning_rate);
  const double norm = apply(upload_records(params_.values().device(), &numbers, 1)).item();
  if (std::isfinite(norm)) count_step();
  return norm;
}

Tensor Optimizer::apply(const Tensor& numbers, const Tensor& before) {
  params_.zero_missing_gradients();
  const Tensor norm = l2_norm(params_.gradients(), before);
  apply_with_norm(numbers, norm);
  params_.renew_bf16_copy();
  return norm;
}

std::map<std::string, Tensor> Optimizer::save() const {
  std::map<std::string, Tensor> tensors{{"steps", Tensor::from(std::vector<std::int64_t>{steps_}, {1})}};
  for (const Part& part : parts()) tensors.emplace(part.name, part.view);
  return tensors;
}

std::int64_t Optimizer::bytes() const {
  std::int64_t bytes = 0;
  for (const Part& part : parts()) bytes += part.view.bytes();
  return bytes;
}

void Optimizer::load(const std::map<std::string, Tensor>& tensors, const std::string& file) {
  const auto find = [&](const std::string& name, const Shape& shape, Dtype dtype) -> const Tensor& {
    const auto found = tensors.find(name);
    if (found == tensors.end() || found->second.shape() != shape || found->second.dtype() != dtype)
      fail<FormatError>(
          "optimizer: {} in {} is missing, or is not {} of {} (was it saved by this optimizer?)", name, file,
          to_string(shape), dtype_name(dtype));
    return found->second;
  };
  const std::vector<Part> all = parts();
  const auto parameter_of = [](const std::string& name) { return name.substr(name.find('.') + 1); };
  std::set<std::string> kept{"steps"}, held;
  for (const Part& part : all) {
    find(part.name, part.view.shape(), part.view.dtype());
    kept.insert(part.name);
    held.insert(parameter_of(part.name));
  }
  for (const auto& [name, tensor] : tensors)
    if (!kept.contains(name) && held.contains(parameter_of(name)))
      fail<FormatError>("optimizer: {} in {} is nothing that this optimizer keeps (was it saved by another?)",
                        name, file);
  steps_ = find("steps", {1}, Dtype::i64).item_int();
  for (const Part& part : all)
    raw::copy_into(part.view, raw::to_device(tensors.at(part.name), part.view.device()));
}

void Optimizer::save(const std::string& path) const {
  save_safetensors(path, save());
}

void Optimizer::load(const std::string& path) {
  load(load_safetensors(path), path);
}

std::unique_ptr<Optimizer> make_optimizer(ParamStore& params, const OptimizerOptions& options,
                                          const ParameterMask& held) {
  const auto name = value_named<OptimizerName>(options.optimizer);
  if (!name)
    fail<ConfigError>("config: train.optimizer is {:?} ({})", options.optimizer,
                      value_choice<OptimizerName>());
  if (*name == OptimizerName::adafactor) return make_adafactor(params, options, held);
  if (*name == OptimizerName::sgd || *name == OptimizerName::lion)
    return make_momentum(params, options, held);
  if (*name == OptimizerName::muon) return std::make_unique<Muon>(params, options, held);
  return std::make_unique<Adam>(params, options, held);
}

double learning_rate_at(const ScheduleOptions& options, double learning_rate, std::int64_t step,
                        double part) {
  const auto schedule = value_named<ScheduleName>(options.schedule);
  if (!schedule)
    fail<ConfigError>("learning_rate_at: the schedule is {:?} ({})", options.schedule,
                      value_choice<ScheduleName>());
  const auto steps = static_cast<double>(options.steps), done = static_cast<double>(step);
  const double t = follows_end(options) && part > done / steps ? part * steps : done;
  if (*schedule == ScheduleName::rsqrt || *schedule == ScheduleName::block_cosine)
    return block_recurrent_rate(options, learning_rate, t);
  const auto warmup = static_cast<double>(options.warmup);
  if (t < warmup)
    return learning_rate * std::min(t + static_cast<double>(options.warmup_from), warmup) / warmup;
  if (*schedule == ScheduleName::constant) return learning_rate;
  const double fallen = std::min(1.0, (t - warmup) / std::max(1.0, steps - warmup));
  const double share = *schedule == ScheduleName::cosine ? 0.5 * (1 + std::cos(kPi * fallen)) : 1 - fallen;
  return options.min_learning_rate + (learning_rate - options.min_learning_rate) * share;
}

bool follows_end(const ScheduleOptions& options) {
  return !value_is(options.schedule, ScheduleName::rsqrt) &&
         (!value_is(options.schedule, ScheduleName::constant) || options.warmup > 0);
}

}  // namespace eddy
