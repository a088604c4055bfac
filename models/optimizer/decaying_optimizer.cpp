// Which parameters a step changes, and their decay.
#include "models/optimizer/decaying_optimizer.h"

#include <algorithm>

#include "autograd/tape.h"
#include "ops/core/capture.h"

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
std::vector<detail::DecaySegment> segments_within(const std::vector<detail::DecaySegment>& segments,
                                                  std::int64_t begin, std::int64_t end) {
  std::vector<detail::DecaySegment> found;
  for (const detail::DecaySegment& segment : segments)
    if (segment.begin >= begin && segment.end <= end)
      found.push_back({segment.begin - begin, segment.end - begin, segment.decay});
  return found;
}

// `count` elements of an arena.
Tensor arena_part(const Tensor& arena, std::int64_t begin, std::int64_t count) {
  return count == arena.elements() ? arena : raw::narrow(arena, 0, begin, count);
}

}  // namespace

DecayingOptimizer::DecayingOptimizer(ParamStore& params, const OptimizerOptions& options,
                                     const ParameterMask& held, double decay)
    : Optimizer(params, options, held), clip_(options.clip) {
  if (decay > 0)
    for (const Parameter& parameter : params.parameters())
      if (parameter.shape.rank() >= 2)
        segments_.push_back({parameter.offset, parameter.offset + parameter.shape.elements(), decay});
}

detail::AdamScalars DecayingOptimizer::scalars(double learning_rate) const {
  const detail::AdamScalars next{learning_rate, steps_ + 1, clip_};
  detail::check_scalars("optimizer", next, 1);
  return next;
}

std::vector<DecayingOptimizer::Range> DecayingOptimizer::ranges_of() {
  const std::vector<ParameterRange> reached = reached_ranges(params_, held_);
  std::vector<Range> ranges = ranges_;
  const auto same = [](const ParameterRange& borders, const Range& range) {
    return borders.begin == range.begin && borders.end == range.end;
  };
  if (!std::equal(reached.begin(), reached.end(), ranges.begin(), ranges.end(), same)) {
    ranges.clear();
    for (const ParameterRange& borders : reached) {
      const std::int64_t begin = borders.begin, end = borders.end;
      ranges.push_back({begin, end, borders.at,
                        detail::decay_table(segments_within(segments_, begin, end), end - begin,
                                            params_.values().device())});
    }
    store_unless_capturing(ranges_, ranges);
  }
  for (const Range& range : ranges) keep_for_capture(range.decays);
  return ranges;
}

Tensor DecayingOptimizer::values_of(const Range& range) const {
  return arena_part(params_.values(), range.begin, range.end - range.begin);
}
Tensor DecayingOptimizer::gradients_of(const Range& range) const {
  return arena_part(params_.gradients(), range.begin, range.end - range.begin);
}
Tensor DecayingOptimizer::statistics_of(const Tensor& moments, const Range& range) const {
  return arena_part(moments, range.at, range.end - range.begin);
}

std::vector<Optimizer::Part> DecayingOptimizer::parts_of(
    const std::vector<std::pair<std::string, Tensor>>& moments) const {
  std::vector<Part> found;
  for (const ParameterRange& range : held_)
    for (std::size_t i = range.first; i < range.last; ++i) {
      const Parameter& parameter = params_.parameters()[i];
      for (const auto& [name, moment] : moments)
        found.push_back({name + "." + parameter.name, part_of(moment, range, parameter)});
    }
  return found;
}

}  // namespace eddy
