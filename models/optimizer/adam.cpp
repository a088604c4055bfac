// Adam's state, and which parameters a step changes.
#include "models/optimizer/adam.h"

#include <algorithm>
#include <utility>

#include "autograd/tape.h"
#include "ops/core/capture.h"
#include "tensor/base/format.h"

namespace eddy {
namespace {

// The ranges [begin, end) of the arena whose parameters are held and a gradient reached, neighbours joined; the
// whole arena, padding included, when all were.
std::vector<ParameterRange> reached_ranges(const ParamStore& params,
                                           const std::vector<ParameterRange>& held) {
  std::vector<ParameterRange> ranges;
  const std::vector<Parameter>& all = params.parameters();
  for (const ParameterRange& range : held) {
    bool open = false;
    for (std::size_t i = range.first; i < range.last; ++i) {
      const bool reached = grad(all[i].value).defined();
      const std::int64_t begin = all[i].offset, end = i + 1 < range.last ? all[i + 1].offset : range.end;
      if (reached && !open) ranges.push_back({i, i, begin, end, range.at + begin - range.begin});
      if (reached) ranges.back().end = end;
      open = reached;
    }
  }
  return ranges;
}

// The segments inside a range, counted from its beginning. A segment is a parameter's, so none is cut.
std::vector<DecaySegment> segments_within(const std::vector<DecaySegment>& segments, std::int64_t begin,
                                          std::int64_t end) {
  std::vector<DecaySegment> found;
  for (const DecaySegment& segment : segments)
    if (segment.begin >= begin && segment.end <= end)
      found.push_back({segment.begin - begin, segment.end - begin, segment.decay});
  return found;
}

void check(const OptimizerOptions& options) {
  if (options.optimizer != "adamw" && options.optimizer != "adam")
    fail<ConfigError>("Adam: optimizer is {:?} (adamw or adam; make_optimizer makes all)", options.optimizer);
  const auto require = [](bool holds, const char* name, double value, const char* rule) {
    if (!holds) fail<ConfigError>("Adam: {} is {} ({})", name, value, rule);
  };
  require(options.beta1 >= 0 && options.beta1 < 1, "beta1", options.beta1, "at least 0 and below 1");
  require(options.beta2 >= 0 && options.beta2 < 1, "beta2", options.beta2, "at least 0 and below 1");
  require(options.eps > 0, "eps", options.eps, "above 0");
  require(options.weight_decay >= 0, "weight_decay", options.weight_decay, "0 or more");
  require(options.clip >= 0, "clip", options.clip, "0 or more");
}

}  // namespace

Adam::Adam(ParamStore& params, const OptimizerOptions& options, const ParameterMask& held)
    : Optimizer(params, options, held),
      constants_{options.beta1, options.beta2, options.eps},
      clip_(options.clip) {
  check(options);
  m_ = make_statistics();
  v_ = make_statistics();
  if (options.optimizer == "adamw" && options.weight_decay > 0)
    for (const Parameter& parameter : params.parameters())
      if (parameter.shape.rank() >= 2)
        segments_.push_back(
            {parameter.offset, parameter.offset + parameter.shape.elements(), options.weight_decay});
}

AdamScalars Adam::scalars(double learning_rate) const {
  const AdamScalars next{learning_rate, steps_ + 1, clip_};
  detail::check_scalars("adamw_step", next, 1);
  return next;
}

std::vector<Adam::Range> Adam::ranges_of() {
  const std::vector<ParameterRange> reached = reached_ranges(params_, held_);
  std::vector<Range> ranges = ranges_;
  const auto same = [](const ParameterRange& borders, const Range& range) {
    return borders.begin == range.begin && borders.end == range.end;
  };
  if (!std::equal(reached.begin(), reached.end(), ranges.begin(), ranges.end(), same)) {
    ranges.clear();
    for (const ParameterRange& borders : reached) {
      const std::int64_t begin = borders.begin, end = borders.end;
      ranges.push_back(
          {begin, end, borders.at,
           decay_table(segments_within(segments_, begin, end), end - begin, params_.values().device())});
    }
    store_unless_capturing(ranges_, ranges);
  }
  for (const Range& range : ranges) keep_for_capture(range.decays);
  return ranges;
}

void Adam::update(const Tensor& numbers, const Tensor& norm) {
  for (const Range& range : ranges_of()) {
    const auto part = [&](const Tensor& arena, std::int64_t begin) {
      const std::int64_t count = range.end - range.begin;
      return count == arena.elements() ? arena : raw::narrow(arena, 0, begin, count);
    };
    adamw_step_on_device(part(params_.values(), range.begin), part(params_.gradients(), range.begin),
                         part(m_, range.at), part(v_, range.at), range.decays, constants_, numbers, norm);
  }
}

std::vector<Optimizer::Part> Adam::parts() const {
  std::vector<Part> found;
  for (const ParameterRange& range : held_)
    for (std::size_t i = range.first; i < range.last; ++i) {
      const Parameter& parameter = params_.parameters()[i];
      for (const Tensor* arena : {&m_, &v_})
        found.push_back({(arena == &m_ ? "m." : "v.") + parameter.name, part_of(*arena, range, parameter)});
    }
  return found;
}

}  // namespace eddy
